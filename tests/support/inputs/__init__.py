"""Odd input from outside, one module for each source, thrown at a real server in this process.

Whatever comes in may cost one job, one agent, one cluster or one request. After it the server answers, a well-behaved agent runs a job
to its end, and a server that starts on the same data is ready and replays its journal. `make fuzz-inputs` tries many;
`make test` tries a few, always the same.
"""
