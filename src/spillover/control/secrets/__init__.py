"""Secrets: encrypts their values, keeps them, and gives them to tasks."""
