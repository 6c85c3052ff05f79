"""External clusters: the book compared with what a driver sees, and the difference asked for."""
