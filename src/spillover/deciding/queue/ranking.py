"""Orders lanes by ranked projects. The jobs of one project keep their order; only projects change ranks.

Entries are those of a `JobQueue` with the rank of the project before the key: `((rank, key), number, job)`. Each
project has its own heap of heads, so a walk sorts projects instead of lanes.
"""

import heapq
from collections.abc import Callable, Iterator
from copy import copy
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias, cast

from spillover.core.learned.usage import TICK, Meter, moment
from spillover.core.state import State
from spillover.deciding.protocols import Policies, Ranks
from spillover.deciding.queue.heaps import in_order
from spillover.deciding.queue.lanes import FEW, Entry, JobQueue, Lane
from spillover.deciding.queue.limits import LaneLimits, are_reached
from spillover.model.units import FOREVER

_Group: TypeAlias = tuple[str, LaneLimits]
"""A project, and the limits of a queue."""
_RANK: Final = itemgetter(0)


class Ranking:
    """The ranks of projects, as the order policy last computed them."""

    def __init__(self, state: State, policies: Policies) -> None:
        self._state = state
        self._order = cast("Ranks", policies.order)
        self._at = self._settled = -1
        """The moment of the latest ranking, and that of the last ranking that a finished cycle used."""
        self.ranks: dict[str, int] = {}
        """Rank by project; lower is earlier. Computed on demand, because there may be many projects."""
        self.rank(state.facts.now)

    def copy(self, state: State) -> "Ranking":
        """Return a copy for another state."""
        own = copy(self)
        own._state, own._meter = state, Meter(state, self._now)  # noqa: SLF001 - one of its own kind
        own.ranks = self.ranks.copy()
        return own

    def rank(self, now: int) -> None:
        """Rank projects by their usage up to now."""
        self._at, self._now = self._moment(now), now
        self._read()

    def rank_of(self, project: str) -> int:
        """Return the rank of a project at the time of the latest ranking."""
        if self._uses != self._state.uses:
            self._read()
        rank = self.ranks.get(project)
        if rank is None:
            rank = self.ranks[project] = self._order.ranks(project, self._meter.used(project))
        return rank

    def _read(self) -> None:
        self._uses, self._meter = self._state.uses, Meter(self._state, self._now)
        self.ranks.clear()

    def ranked(self, entry: Entry, project: str) -> Entry:
        """Return an entry with its present rank."""
        return ((self.rank_of(project), entry[0]), entry[1], entry[2])

    def settle(self) -> None:
        """Record that a cycle used these ranks."""
        self._settled = self._at

    def outdated(self, now: int, *, passed: bool) -> bool:
        """Return whether ranks may have changed since the last cycle, so that jobs that waited for others may start."""
        return passed and self._moment(now) != self._settled

    def next_time(self, *, passed: bool) -> int:
        """Return when to rank again, if new ranks could let a job start that waits for others.

        While no project uses anything, all usage fades at the same rate and the ranks stay.
        """
        if not passed or not self._state.holders:
            return FOREVER
        return (self._settled // TICK + 1) * TICK

    def _moment(self, now: int) -> int:
        sharing = self._state.facts.sharing
        return 0 if sharing is None else moment(sharing, now)


class RankedJobQueue(JobQueue):
    """Lanes by the rank of their project, then by their first jobs."""

    def __init__(self, valid: Callable[[Lane, Entry], bool], ranking: Ranking) -> None:
        super().__init__(valid)
        self._ranking = ranking
        self._projects: dict[_Group, list[tuple[Entry, Lane]]] = {}
        """A heap of heads for each project and the limits of its queues; heads that differ from `first` are void."""
        self._limits: dict[_Group, int] = {}
        """The length at which each heap drops void heads."""

    def copy_from(self, other: JobQueue, lane_of: Callable[[Lane], Lane]) -> None:
        """See JobQueue."""
        super().copy_from(other, lane_of)
        for lane, head in self.first.items():
            self._projects.setdefault((lane.kind.project, lane.limits), []).append((head, lane))
        for group, heap in self._projects.items():
            heapq.heapify(heap)
            self._limits[group] = 2 * len(heap) + FEW

    def _lead(self, lane: Lane, head: Entry) -> None:
        """See JobQueue."""
        super()._lead(lane, head)
        group = lane.kind.project, lane.limits
        heap = self._projects.setdefault(group, [])
        heapq.heappush(heap, (head, lane))
        if len(heap) > self._limits.setdefault(group, FEW):
            heap = [(head, each) for head, each in dict.fromkeys(heap) if self.first.get(each) == head]
            heapq.heapify(heap)
            self._projects[group] = heap
            self._limits[group] = 2 * len(heap) + FEW

    def lanes(self) -> Iterator[tuple[Entry, Lane]]:
        """See JobQueue."""
        if len(self.first) <= FEW:
            yield from sorted(self._ranked_head(lane) for lane in self.first)
            return
        yield from self._merged(everything=True)

    def startable(self) -> Iterator[tuple[Entry, Lane]]:
        """See JobQueue."""
        if len(self.first) <= FEW:
            yield from sorted(self._ranked_head(lane) for lane in self.first if not lane.is_held_back)
            return
        yield from self._merged(everything=False)

    def _merged(self, *, everything: bool) -> Iterator[tuple[Entry, Lane]]:
        """See JobQueue."""
        self._tidy_projects()
        ranked = [
            (self._ranking.rank_of(group[0]), group)
            for group in self._projects
            if everything or not are_reached(group[1])
        ]
        ranked.sort(key=_RANK)
        for _, alike in groupby(ranked, key=_RANK):
            yield from heapq.merge(*(self._lanes_of(group, everything=everything) for _, group in alike))

    def awake(self) -> list[tuple[Entry, Lane]]:
        """See JobQueue."""
        return sorted(self._ranked_head(lane) for lane in self.woken)

    def jobs(self, lane: Lane) -> Iterator[Entry]:
        """See JobQueue."""
        project = lane.kind.project
        return (self._ranking.ranked(entry, project) for entry in super().jobs(lane))

    def _ranked_head(self, lane: Lane) -> tuple[Entry, Lane]:
        return self._ranking.ranked(self.first[lane], lane.kind.project), lane

    def _lanes_of(self, group: "_Group", *, everything: bool) -> Iterator[tuple[Entry, Lane]]:
        """Yield each lane of a project under the same limits with its head, in order."""
        previous: Entry | None = None
        project, limits = group
        for entry, lane in in_order(self._projects[group]):
            if limits and not everything and are_reached(limits):
                return
            if entry != previous and self.first.get(lane) == entry:
                previous = entry
                yield self._ranking.ranked(entry, project), lane

    def _tidy_projects(self) -> None:
        """Drop void heads from the front of each project, and projects without lanes."""
        for group, heap in list(self._projects.items()):
            while heap and self.first.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if not heap:
                del self._projects[group], self._limits[group]
