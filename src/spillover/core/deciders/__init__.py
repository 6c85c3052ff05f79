"""Deciders, with one module for each family of proposals. `decide` has the table."""
