"""Clusters of our own agents: those that are connected, and those that the server starts on its own machine."""
