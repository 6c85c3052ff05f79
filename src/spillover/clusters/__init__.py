"""Cluster kinds and their drivers."""
