"""Out of order."""


class OutOfOrder:
    """Whatever fits starts, also past jobs that do not fit; large jobs may wait long."""

    strict = False
    reservations = 0
