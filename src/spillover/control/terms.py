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


def check_lost_after(lost_after: int, heartbeat: int | None) -> str | None:
    """What is wrong with a configured time, if anything: agents must be able to end a task before it is given away."""
    beat = heartbeat or SLOWEST
    if lost_after <= 2 * beat:
        return f"lost_after has to be longer than two heartbeats ({2 * beat / SECOND:g}s)"
    return None
