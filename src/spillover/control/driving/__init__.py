"""External clusters: compares the state with what a driver sees, and orders the difference."""
