"""Reconcilers, one a file."""
