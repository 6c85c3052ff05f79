"""Requests of users: submit jobs, change them, ask what would happen."""
