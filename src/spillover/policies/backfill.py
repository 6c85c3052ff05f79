"""Backfill policies: whether jobs may pass a job that does not fit."""


class Strict:
    """Tries nothing on owned capacity behind a job that does not fit."""

    strict = True
    reservations = 0


class OutOfOrder:
    """Starts every job that fits, even past jobs that do not fit. Large jobs may wait long."""

    strict = False
    reservations = 0


class Easy:
    """Starts every job that fits and does not delay the first job that does not fit. That job has a reservation.

    It uses the expected ends of running jobs, and counts CPUs, memory and GPUs.
    """

    strict = False
    reservations = 1
