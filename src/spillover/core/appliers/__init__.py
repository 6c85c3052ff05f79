"""Appliers, with one module for each family of events. `apply` has the table."""
