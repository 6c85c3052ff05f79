"""The provider `hetzner`: servers of Hetzner Cloud."""
