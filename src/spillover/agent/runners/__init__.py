"""How each kind of work is run: one runner for each, behind one port."""
