"""Backfill that does not delay the first in the queue."""


class Easy:
    """Whatever fits starts if it does not delay the first job that does not fit: room is kept for that one.

    Looks at when what runs is expected to end; CPUs, memory and GPUs are all counted.
    """

    strict = False
    reservations = 1
