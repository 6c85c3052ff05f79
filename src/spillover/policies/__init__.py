"""The built-in policies, with one module for each axis."""
