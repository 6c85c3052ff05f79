"""Implements the store in a PostgreSQL database, for several servers."""
