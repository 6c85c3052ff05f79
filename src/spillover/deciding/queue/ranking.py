"""Lanes in an order that ranks projects: the jobs of one project keep their order, only projects are ranked anew.

Entries are those of a `JobQueue`, with the rank of the project before their key: `((rank, key), number, job)`. The heads are kept
apart for each project, so that a walk sorts projects, not lanes.
"""

import heapq
from collections.abc import Callable, Iterator
from copy import copy
from itertools import groupby
from typing import cast

from spillover.core.state import State
from spillover.core.usage import TICK, Meter, moment
from spillover.deciding.protocols import Policies, Ranks
from spillover.deciding.queue.heaps import in_order
from spillover.deciding.queue.lanes import FEW, Entry, JobQueue, Lane
from spillover.model.units import FOREVER


class Ranking:
    """Projects in the order in which they are tried, as the policy ranked them last."""

    def __init__(self, state: State, policies: Policies) -> None:
        self._state = state
        self._order = cast("Ranks", policies.order)
        self._at = self._settled = -1
        """As of when projects were ranked, and were so for a plan that was carried out."""
        self.ranks: dict[str, int] = {}
        """Lower is earlier; of the projects that somebody asked for, as there may be many others."""
        self.rank(state.facts.now)

    def copy(self, state: State) -> "Ranking":
        """The same, of a book of its own."""
        own = copy(self)
        own._state, own._meter = state, Meter(state, self._now)  # noqa: SLF001 - one of its own kind
        own.ranks = self.ranks.copy()
        return own

    def rank(self, now: int) -> None:
        """Rank projects by what they have used up to now."""
        self._at, self._now = self._moment(now), now
        self._read()

    def rank_of(self, project: str) -> int:
        """The rank of a project as of when projects were ranked, by what is known to be used now."""
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
        """An entry as it sorts now."""
        return ((self.rank_of(project), entry[0]), entry[1], entry[2])

    def settle(self) -> None:
        """A plan was made by these ranks."""
        self._settled = self._at

    def outdated(self, now: int, *, passed: bool) -> bool:
        """Whether ranks may be others than those of the last plan, so that a job may start that had to wait for others."""
        return passed and self._moment(now) != self._settled

    def next_time(self, *, passed: bool) -> int:
        """When to rank anew, if another rank could let a job start that had to wait for others.

        While no project uses anything, what each has used fades alike, and ranks stay.
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
        self._projects: dict[str, list[tuple[Entry, Lane]]] = {}
        """A heap of heads for each project; those that are not in `first` are void."""
        self._limits: dict[str, int] = {}
        """How long each heap may grow before void heads are dropped."""

    def copy_from(self, other: JobQueue, lane_of: Callable[[Lane], Lane]) -> None:
        """See JobQueue."""
        super().copy_from(other, lane_of)
        for lane, head in self.first.items():
            self._projects.setdefault(lane.kind.project, []).append((head, lane))
        for project, heap in self._projects.items():
            heapq.heapify(heap)
            self._limits[project] = 2 * len(heap) + FEW

    def _lead(self, lane: Lane, head: Entry) -> None:
        """See JobQueue."""
        super()._lead(lane, head)
        project = lane.kind.project
        heap = self._projects.setdefault(project, [])
        heapq.heappush(heap, (head, lane))
        if len(heap) > self._limits.setdefault(project, FEW):
            heap = [(head, each) for head, each in dict.fromkeys(heap) if self.first.get(each) == head]
            heapq.heapify(heap)
            self._projects[project] = heap
            self._limits[project] = 2 * len(heap) + FEW

    def lanes(self) -> Iterator[tuple[Entry, Lane]]:
        """See JobQueue."""
        if len(self.first) <= FEW:
            yield from sorted(self._ranked_head(lane) for lane in self.first)
            return
        self._tidy_projects()
        projects = sorted((self._ranking.rank_of(project), project) for project in self._projects)
        for _, group in groupby(projects, key=lambda ranked: ranked[0]):
            yield from heapq.merge(*(self._lanes_of(project) for _, project in group))

    def awake(self) -> list[tuple[Entry, Lane]]:
        """See JobQueue."""
        return sorted(self._ranked_head(lane) for lane in self.woken)

    def jobs(self, lane: Lane) -> Iterator[Entry]:
        """See JobQueue."""
        project = lane.kind.project
        return (self._ranking.ranked(entry, project) for entry in super().jobs(lane))

    def _ranked_head(self, lane: Lane) -> tuple[Entry, Lane]:
        return self._ranking.ranked(self.first[lane], lane.kind.project), lane

    def _lanes_of(self, project: str) -> Iterator[tuple[Entry, Lane]]:
        """Each lane of a project with its head, in order."""
        previous: Entry | None = None
        for entry, lane in in_order(self._projects[project]):
            if entry != previous and self.first.get(lane) == entry:
                previous = entry
                yield self._ranking.ranked(entry, project), lane

    def _tidy_projects(self) -> None:
        """Drop void heads from the front of each project, and projects that have no lane left."""
        for project, heap in list(self._projects.items()):
            while heap and self.first.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if not heap:
                del self._projects[project], self._limits[project]
