"""Chooses heartbeat intervals and lease terms that fit each other and the number of agents."""

from typing import Final

from spillover.model.units import SECOND
from spillover.ports.cluster import LeaseTerms

FASTEST: Final = 2 * SECOND
SLOWEST: Final = 10 * SECOND
"""Longest heartbeat of agents that keep the terms of their registration, in nanoseconds."""
SLOWEST_OF_MANY: Final = 80 * SECOND
"""Longest heartbeat of agents that accept new terms later, in nanoseconds."""
A_SECOND: Final = 125
"""Heartbeats per second of all agents, unless that needs a longer interval than above; uses 9 to 10% of a core."""
RETURNING: Final = 800
"""Agents that reconnect per second after an outage of the server; each costs it about a millisecond."""
SHORT: Final = 30 * SECOND


def lease_terms(agents: int, heartbeat: int | None = None, *, adapts: bool = True) -> LeaseTerms:
    """Return the terms for a number of agents; a configured heartbeat is used as it is.

    An agent that does not adapt gets short heartbeats: it also does not know that tasks outlive their server by three.
    """
    slowest = SLOWEST_OF_MANY if adapts else SLOWEST
    beat = heartbeat or min(slowest, max(FASTEST, agents * SECOND // A_SECOND + SECOND))
    return LeaseTerms(beat, max(SHORT if heartbeat is None else 0, 4 * beat))


def spread(agents: int) -> int:
    """Return the nanoseconds over which agents reconnect after an outage of the server; 0 for a few agents."""
    return agents * SECOND // RETURNING if agents > RETURNING // 10 else 0


def lasting(lost_after: int, heartbeat: int) -> int:
    """Return the nanoseconds that a started task outlives its server: `lost_after`, at least three heartbeats."""
    return max(lost_after, 3 * heartbeat)


def least_lost_after(heartbeat: int | None) -> int:
    """Return the smallest `lost_after` that a job may set, in nanoseconds, for the configured or the slowest heartbeat.

    An agent that cannot renew ends tasks one heartbeat before this time. With less than three heartbeats, one late
    heartbeat would end tasks.
    """
    return 3 * (heartbeat or SLOWEST)
