"""Counts jobs that have not ended by what they have in common, when somebody asks, in slices.

A queue of a million jobs takes a second of CPU for that, so a count is kept for a while that is long beside the time it
took.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from spillover.control.live.loop import Loop
from spillover.core.appliers.queue import live_of
from spillover.core.records.jobs import Job, Kind

KEEP: Final = 20
"""A count is kept for so many times as long as it took, which bounds its part of a core to a twentieth."""


class JobCounts:
    """The jobs that have not ended; members of arrays count one by one."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._until = 0
        """When the count is too old, on the monotonic clock."""
        self.counts = Counter[tuple[Kind, str]]()
        """By kind and state."""

    async def refresh(self) -> None:
        """Count again if that is due; raise CommandError if the state cannot be shown."""
        begun = self._loop.time.monotonic()
        if begun < self._until:
            return
        counts = Counter[tuple[Kind, str]]()
        for key, count in await self._loop.scan(lambda jobs: _counted(jobs).items()):
            counts[key] += count
        self.counts = counts
        ended = self._loop.time.monotonic()
        self._until = ended + KEEP * (ended - begun)


def _counted(jobs: Sequence[Job]) -> Counter[tuple[Kind, str]]:
    """Return how many jobs of each kind and state have not ended."""
    counts = Counter[tuple[Kind, str]]()
    for job in jobs:
        if live := live_of(job):
            counts[job.kind, str(job.state)] += live
    return counts
