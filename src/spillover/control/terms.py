"""How long leases last, and that the numbers fit each other."""

from typing import Final

from msgspec import Struct

from spillover.model.units import SECOND

FASTEST: Final = 2 * SECOND
SLOWEST: Final = 10 * SECOND
SHORT: Final = 30 * SECOND


class LeaseTerms(Struct, frozen=True):
    """The terms that agents are told when they register."""

    heartbeat: int
    """Nanoseconds between two heartbeats."""
    short: int
    """Nanoseconds that a lease lasts without an acknowledged start."""


def lease_terms(agents: int, heartbeat: int | None = None) -> LeaseTerms:
    """Terms for so many agents; a heartbeat that was configured is taken as it is."""
    beat = heartbeat or min(SLOWEST, max(FASTEST, agents * SECOND // 200 + SECOND))
    return LeaseTerms(beat, max(SHORT if heartbeat is None else 0, 4 * beat))


def least_lost_after(heartbeat: int | None) -> int:
    """Nanoseconds that a task has to outlive its server at the least, by the configured heartbeat or the slowest.

    An agent ends what it cannot renew one heartbeat before that time: with less than three, a late heartbeat would end tasks.
    """
    return 3 * (heartbeat or SLOWEST)
