"""Budgets and cost limits: whether a job may be rented, and what is held for it."""
