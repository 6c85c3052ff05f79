"""Clusters that others run: the book compared with what a driver sees, and the difference asked for."""
