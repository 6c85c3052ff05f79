"""Drivers of clusters."""
