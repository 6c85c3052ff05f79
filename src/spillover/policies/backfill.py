"""Whether jobs may pass a job that does not fit."""


class Strict:
    """Nothing behind a job that does not fit is tried on owned capacity."""

    strict = True
    reservations = 0


class OutOfOrder:
    """Whatever fits starts, also past jobs that do not fit; large jobs may wait long."""

    strict = False
    reservations = 0


class Easy:
    """Whatever fits starts if it does not delay the first job that does not fit: room is kept for that one.

    Looks at when what runs is expected to end; CPUs, memory and GPUs are all counted.
    """

    strict = False
    reservations = 1
