"""Protocols between control and its stores, clusters, clocks and callers."""
