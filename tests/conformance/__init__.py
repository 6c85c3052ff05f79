"""Suites of the ports, run on every kind of store; a package, so that what they share ends with them."""
