"""How long leases last, and that the numbers fit each other."""

from typing import Final

from spillover.model.units import SECOND
from spillover.ports.cluster import LeaseTerms

FASTEST: Final = 2 * SECOND
SLOWEST: Final = 10 * SECOND
"""Unless there are many agents."""
SLOWEST_OF_MANY: Final = 30 * SECOND
RATE: Final = 300
"""Heartbeats a second that a server takes from many agents."""
SHORT: Final = 30 * SECOND


def lease_terms(agents: int, heartbeat: int | None = None, *, adapts: bool = True) -> LeaseTerms:
    """Terms for so many agents; a heartbeat that was configured is taken as it is.

    An agent that does not adapt would end a short-lived task that others keep for three of their long heartbeats.
    """
    beat = heartbeat or min(SLOWEST, max(FASTEST, agents * SECOND // 200 + SECOND))
    if heartbeat is None and adapts:
        beat = max(beat, min(SLOWEST_OF_MANY, agents * SECOND // RATE))
    return LeaseTerms(beat, max(SHORT if heartbeat is None else 0, 4 * beat))


def lasting(lost_after: int, heartbeat: int) -> int:
    """Nanoseconds that a started task outlives its server: as its job says, and three heartbeats at the least."""
    return max(lost_after, 3 * heartbeat)


def least_lost_after(heartbeat: int | None) -> int:
    """Nanoseconds that a task has to outlive its server at the least, by the configured heartbeat or the slowest.

    An agent ends what it cannot renew one heartbeat before that time: with less than three, a late heartbeat would end tasks.
    """
    return 3 * (heartbeat or SLOWEST)
