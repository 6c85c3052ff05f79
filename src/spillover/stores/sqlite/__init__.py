"""Implements the store in one SQLite file."""
