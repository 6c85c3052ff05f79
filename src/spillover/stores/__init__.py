"""Implements journal, election and archive in memory, in SQLite and in PostgreSQL."""
