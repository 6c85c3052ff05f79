"""Stories of external clusters on a virtual clock: the real core and reconciler against clusters that fail."""
