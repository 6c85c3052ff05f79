"""Runs each kind of work with a runner of its own, behind one port."""
