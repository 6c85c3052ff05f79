"""The provider `gce`: instances of Google Compute Engine."""
