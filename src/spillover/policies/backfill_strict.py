"""Strict order."""


class Strict:
    """Nothing behind a job that does not fit is tried on owned capacity."""

    strict = True
    reservations = 0
