"""Reservations: capacity kept for the first job that does not fit, which later jobs may not delay."""
