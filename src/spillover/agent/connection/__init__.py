"""Connects an agent to its server and to other agents."""
