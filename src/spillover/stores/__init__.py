"""Journal, election and archive on memory, SQLite and PostgreSQL."""
