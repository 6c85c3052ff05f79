"""Queued jobs, as the cycle walks them: lanes of jobs that are alike, in the order of their first job.

A `JobQueue` holds one heap of jobs for each lane and a heap of their heads. Entries are deleted lazily, when they come to the front.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from spillover.core.jobs import Kind
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.gangs import GangCandidates
from spillover.deciding.queue.heaps import in_order
from spillover.model.ids import JobId

FEW = 128
"""Lanes that are sorted faster than a heap of them is read in order."""

Entry = tuple[Any, int, JobId]
"""Key of the order, number of the job, and its id: sorts as jobs are tried."""


class Lane:
    """Jobs of one shape, needs, queue and project that back off from the same clusters: tried as one."""

    __slots__ = (
        "gangs_owned",
        "gangs_rented",
        "kind",
        "least",
        "owned",
        "rented",
        "serial",
        "timed",
        "total",
        "weighed",
    )

    def __init__(self, kind: Kind, serial: int) -> None:
        self.kind = kind
        shape = kind.shape
        self.least = shape.least
        """The smallest task of its jobs: where that does not fit, none does."""
        self.total = shape.total
        """What one of its jobs asks for: where less is free on all machines together, none fits."""
        self.serial = serial
        """Tells two lanes apart that held the same job at different times."""
        self.timed = False
        """Whether some of its jobs have deadlines: where one of those would be too late, the next one may start."""
        self.weighed = False
        """Whether the index knows it by what its jobs ask for."""
        self.owned: list[Candidates] | None = None
        """Where its jobs may run on owned capacity, in the order to be tried; None until somebody asked."""
        self.rented: list[Candidates] | None = None
        """Likewise on rented capacity."""
        self.gangs_owned: list[GangCandidates] | None = None
        """Where its gangs may run on owned capacity; None until somebody asked."""
        self.gangs_rented: list[GangCandidates] | None = None
        """Likewise on rented capacity."""

    def copy(self) -> "Lane":
        """The same, without the candidates that it has found."""
        own = Lane(self.kind, self.serial)
        own.timed, own.weighed = self.timed, self.weighed
        return own

    def forget_clusters(self) -> None:
        """There are other clusters: where its jobs may run has to be asked again."""
        self.owned = self.rented = None
        self.gangs_owned = self.gangs_rented = None

    def __lt__(self, other: "Lane") -> bool:
        return self.serial < other.serial


class JobQueue:
    """Lanes in the order of their first jobs."""

    def __init__(self, valid: "Callable[[Lane, Entry], bool]") -> None:
        self.valid = valid
        self.heaps: dict[Lane, list[Entry]] = {}
        self.first: dict[Lane, Entry] = {}
        """The current head of each lane."""
        self.heads: list[tuple[Entry, Lane]] | None = None
        """Heap of heads, those that are not in `first` void; None until there are so many lanes that it is worth it."""
        self.woken: dict[Lane, None] = {}
        """Lanes that have a new head since the last cycle, or another job that may start before its head does."""

    def copy_from(self, other: "JobQueue", lane_of: "Callable[[Lane], Lane]") -> None:
        """Hold what another one holds, in lanes of its own."""
        self.heaps = {lane_of(lane): heap.copy() for lane, heap in other.heaps.items()}
        self.first = {lane_of(lane): entry for lane, entry in other.first.items()}
        self.woken = {lane_of(lane): None for lane in other.woken}

    def push(self, lane: Lane, entry: Entry) -> None:
        """Put a job in."""
        heap = self.heaps.get(lane)
        if heap is None:
            self.heaps[lane] = [entry]
            self._lead(lane, entry)
        else:
            heapq.heappush(heap, entry)
            self.settle(lane)
            if lane.timed and lane in self.first:
                self.woken[lane] = None

    def settle(self, lane: Lane) -> None:
        """Drop what is no longer valid from the front of a lane, and note its head."""
        heap = self.heaps.get(lane)
        if heap is None:
            return
        while heap and not self.valid(lane, heap[0]):
            heapq.heappop(heap)
        if not heap:
            del self.heaps[lane]
            self.first.pop(lane, None)
            self.woken.pop(lane, None)
        elif self.first.get(lane) != heap[0]:
            self._lead(lane, heap[0])

    def _lead(self, lane: Lane, head: Entry) -> None:
        """Another job is the first of a lane."""
        self.first[lane] = head
        self.woken[lane] = None
        if self.heads is None:
            return
        heapq.heappush(self.heads, (head, lane))
        if len(self.heads) > 2 * len(self.first) + FEW:
            self.heads = None  # most are void: begin anew when somebody asks

    def lanes(self) -> Iterator[tuple[Entry, Lane]]:
        """Each lane with its head, in order."""
        if len(self.first) <= FEW:
            yield from sorted([(entry, lane) for lane, entry in self.first.items()])
            return
        if self.heads is None:
            self.heads = [(entry, lane) for lane, entry in self.first.items()]
            heapq.heapify(self.heads)
        heads = self.heads
        while heads and self.first.get(heads[0][1]) != heads[0][0]:
            heapq.heappop(heads)  # or every walk would pass them again
        previous: Entry | None = None
        for entry, lane in in_order(heads):
            if self.first.get(lane) == entry and entry != previous:
                previous = entry
                yield entry, lane

    def awake(self) -> list[tuple[Entry, Lane]]:
        """Each lane that has a new head since the last cycle, with that, in order."""
        return sorted([(self.first[lane], lane) for lane in self.woken])

    def jobs(self, lane: Lane) -> Iterator[Entry]:
        """The valid entries of a lane, in order."""
        previous: Entry | None = None
        for entry in in_order(self.heaps.get(lane, ())):
            if entry != previous and self.valid(lane, entry):
                previous = entry
                yield entry


class Walk:
    """Goes through lanes in order, until so many were stuck; a lane is only gone on with when its last job was placed."""

    __slots__ = ("_count", "_front", "_heads", "_jobs", "_next", "_opened", "_patience")

    def __init__(
        self,
        heads: Iterator[tuple[Entry, Lane]],
        jobs: Callable[[Lane], Iterator[Entry]],
        depth: int,
        count: int,
    ) -> None:
        self._heads = heads
        """The first job of each lane; a lane that comes twice is looked at once."""
        self._jobs = jobs
        self._patience = depth
        """How many more lanes may be stuck."""
        self._opened: dict[Lane, Iterator[Entry] | None] = {}
        """Lanes that were tried, with their jobs that were not yet; None while only the first was looked at."""
        self._count = count
        self._front: list[tuple[Entry, Lane]] = []
        self._next = next(heads, None)

    def __len__(self) -> int:
        return self._count

    def next(self) -> tuple[Entry, Lane] | None:
        """The first job, over all lanes, that was not looked at yet."""
        while self._patience > 0:
            if self._front and (self._next is None or self._front[0][0] <= self._next[0]):
                return heapq.heappop(self._front)
            if self._next is None:
                return None
            found = self._next
            lane = found[1]
            self._next = next(self._heads, None)
            if lane in self._opened:
                continue
            self._opened[lane] = None
            return found
        return None

    def stuck(self) -> None:
        """The job that was looked at last does not fit: one lane less may be stuck."""
        self._patience -= 1

    def again(self, entry: Entry, lane: Lane) -> None:
        """Come back to a job: an array with more members pending."""
        heapq.heappush(self._front, (entry, lane))

    def go_on(self, lane: Lane) -> None:
        """Look at the next job of a lane as well."""
        others = self._opened[lane]
        if others is None:
            others = self._opened[lane] = self._jobs(lane)
            next(others, None)  # the first one
        following = next(others, None)
        if following is not None:
            self.again(following, lane)
