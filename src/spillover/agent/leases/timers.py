"""Keeps timers for running tasks: a notice before their walltime, its end, and the end of their grace."""

import heapq
from collections.abc import Collection, Iterator
from enum import Enum
from typing import Final

from spillover.core.events import Lease

SPARE: Final = 1_000
"""Number of surplus timers, beyond those of running tasks, before useless ones are dropped."""


class Due(Enum):
    """What to do when a timer is due."""

    WALLTIME = "walltime"
    NOTICE = "notice"
    KILL = "kill"


class Timers:
    """All timers of an agent, the soonest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Lease, Due]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at: int, lease: Lease, due: Due, running: Collection[Lease]) -> None:
        """Set a timer for a lease; drop timers of leases outside `running` if there are too many."""
        if len(self._heap) > SPARE + 4 * len(running):
            # Most tasks end long before their walltime. Without this their timers would accumulate.
            self._heap = [timer for timer in self._heap if timer[2] in running]
            heapq.heapify(self._heap)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, lease, due))

    def ring(self, now: int) -> Iterator[tuple[Lease, Due]]:
        """Remove and yield all timers that are due."""
        while self._heap and self._heap[0][0] <= now:
            _, _, lease, due = heapq.heappop(self._heap)
            yield lease, due

    def soonest(self) -> int | None:
        """Return when the next timer is due; None if there is none."""
        return self._heap[0][0] if self._heap else None
