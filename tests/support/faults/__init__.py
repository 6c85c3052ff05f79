"""Runs server and agents under faults: their real state machines on virtual hosts, over an unreliable network."""
