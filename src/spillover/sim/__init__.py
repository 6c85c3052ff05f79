"""Simulates jobs of a trace, with the engine of the live server on a virtual clock."""
