"""Budgets and cost limits: whether a job may be rented, and how much to hold for it."""
