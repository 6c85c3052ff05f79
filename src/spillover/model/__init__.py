"""Immutable values that all other packages use: ids, units, resources, jobs, clusters and reasons."""
