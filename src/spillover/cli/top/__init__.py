"""`spill top`: what a server does, live; `frame` draws from values, `screen` is the terminal, `watching` asks the server."""
