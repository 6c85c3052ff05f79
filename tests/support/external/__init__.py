"""Stories of a cluster that others run, on a virtual clock: the real core and the real reconciler against a cluster that fails."""
