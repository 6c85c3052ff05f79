"""Decides which calls to the provider of a pool are due, and what its answers mean."""
