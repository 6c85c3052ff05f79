"""Backfill policies: whether jobs may pass a job that does not fit."""

from typing import Final

from spillover.model.policy_options import MOST_RESERVATIONS

DEPTH: Final = 500
"""How many jobs have a reservation under `conservative`, unless configured."""


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


class Hybrid:
    """Starts every job that fits and does not delay any of the first `depth` jobs that do not fit.

    Each of those has a reservation: the first span that running jobs and earlier reservations leave.
    """

    strict = False

    def __init__(self, depth: int) -> None:
        if not 1 <= depth <= MOST_RESERVATIONS:
            raise ValueError(f"depth must be from 1 to {MOST_RESERVATIONS}")
        self.reservations = depth


class Conservative(Hybrid):
    """Starts every job that fits and does not delay any job ahead of it.

    Beyond `depth` jobs that do not fit there are no reservations, so that no cycle takes long.
    """

    def __init__(self, depth: int = DEPTH) -> None:
        super().__init__(depth)
