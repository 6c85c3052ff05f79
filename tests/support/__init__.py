"""Helpers for tests: real servers, agents and clusters, and whole systems on a virtual clock."""
