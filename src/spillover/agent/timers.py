"""When to look at running tasks again: at the end of their walltime, and of their grace."""

import heapq
from collections.abc import Collection, Iterator
from enum import Enum
from typing import Final

from spillover.core.events import Lease

SPARE: Final = 1_000
"""Timers that may be there beyond what running tasks need before useless ones are thrown away."""


class Due(Enum):
    """What a timer is for."""

    WALLTIME = "walltime"
    KILL = "kill"


class Timers:
    """All timers of an agent, the soonest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Lease, Due]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at: int, lease: Lease, due: Due, running: Collection[Lease]) -> None:
        """Remember to look at a lease again; those that do not run any more need not be."""
        if len(self._heap) > SPARE + 4 * len(running):
            # Tasks mostly end long before their walltime: without this their timers would pile up.
            self._heap = [timer for timer in self._heap if timer[2] in running]
            heapq.heapify(self._heap)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, lease, due))

    def ring(self, now: int) -> Iterator[tuple[Lease, Due]]:
        """All that are due; each once."""
        while self._heap and self._heap[0][0] <= now:
            _, _, lease, due = heapq.heappop(self._heap)
            yield lease, due

    def soonest(self) -> int | None:
        """When the next one is due; None if there is none."""
        return self._heap[0][0] if self._heap else None
