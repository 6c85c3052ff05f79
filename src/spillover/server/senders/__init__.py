"""Sends messages to people and programs: by HTTP, and by mail."""
