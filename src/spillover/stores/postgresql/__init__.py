"""Journal, election and archive in a PostgreSQL database, for several servers."""
