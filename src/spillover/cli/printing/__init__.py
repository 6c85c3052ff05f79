"""Formats tables, progress and values for output."""
