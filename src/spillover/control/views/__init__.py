"""Answers to users: jobs, clusters, costs, history and output."""
