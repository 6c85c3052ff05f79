"""Commands and output."""
