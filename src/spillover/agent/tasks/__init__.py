"""Runs the tasks of an agent as processes: starts, signals, isolates and cleans up."""
