"""Stories of an external cluster, on a virtual clock: the real core and the real reconciler against a cluster that fails."""
