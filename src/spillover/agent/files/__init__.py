"""Keeps an agent's files: inputs and outputs of tasks, what tasks print, and the records that must survive a crash."""
