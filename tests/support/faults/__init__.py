"""The server and its agents under faults: their real state machines on virtual hosts, behind a network that loses what it can."""
