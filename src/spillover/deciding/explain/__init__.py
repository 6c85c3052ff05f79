"""Explains why a job waits, and why each cluster takes it or not."""
