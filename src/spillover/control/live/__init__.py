"""The running server: one engine, its journal, its clock and its gate."""
