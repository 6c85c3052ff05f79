"""Composition root: configuration in, a running server out."""
