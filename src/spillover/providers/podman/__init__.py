"""The provider `podman`: machines are containers on the server's machine."""
