"""Journal, election and archive in one SQLite file."""
