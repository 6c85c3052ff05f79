"""Reads and checks spill.yaml, and reports all of its problems at once."""
