"""Composition root: builds a running server from its configuration."""
