"""How long leases last, and that the numbers fit each other."""

from typing import Final

from spillover.model.units import SECOND
from spillover.ports.cluster import LeaseTerms

FASTEST: Final = 2 * SECOND
SLOWEST: Final = 10 * SECOND
"""For agents that keep to what they were told when they registered."""
SLOWEST_OF_MANY: Final = 80 * SECOND
"""For those that are told otherwise when agents come and go."""
A_SECOND: Final = 125
"""Heartbeats of all agents in a second, up to those slowest: they cost a server nine to ten hundredths of a core."""
RETURNING: Final = 800
"""Agents a second that come back to a server that was away: each costs it about a millisecond."""
SHORT: Final = 30 * SECOND


def lease_terms(agents: int, heartbeat: int | None = None, *, adapts: bool = True) -> LeaseTerms:
    """Terms for so many agents; a heartbeat that was configured is taken as it is.

    One that does not adapt does not know either that a task lasts three heartbeats at the least.
    """
    slowest = SLOWEST_OF_MANY if adapts else SLOWEST
    beat = heartbeat or min(slowest, max(FASTEST, agents * SECOND // A_SECOND + SECOND))
    return LeaseTerms(beat, max(SHORT if heartbeat is None else 0, 4 * beat))


def spread(agents: int) -> int:
    """Nanoseconds that so many agents are to take to come back to a server that was away; few need not take any."""
    return agents * SECOND // RETURNING if agents > RETURNING // 10 else 0


def lasting(lost_after: int, heartbeat: int) -> int:
    """Nanoseconds that a started task outlives its server: as its job says, and three heartbeats at the least."""
    return max(lost_after, 3 * heartbeat)


def least_lost_after(heartbeat: int | None) -> int:
    """Nanoseconds that a task has to outlive its server at the least, by the configured heartbeat or the slowest.

    An agent ends what it cannot renew one heartbeat before that time: with less than three, a late heartbeat would end tasks.
    """
    return 3 * (heartbeat or SLOWEST)
