"""Sends odd input to a real server in this process, with one module for each source.

Bad input may cost one job, one agent, one cluster or one request. After it, the server must answer, a well-behaved
agent must run a job to its end, and a server that restarts on the same data must be ready and replay its journal. `make
fuzz-inputs` tries many stories. `make test` tries a few, always the same.
"""
