"""The provider `process`: machines are agents as processes on the server's machine."""
