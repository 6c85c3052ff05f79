"""Providers of rented machines, each a plugin."""
