"""`spill top`, a live view of a server: `frame` does layout, `screen` the terminal, `watching` the requests."""
