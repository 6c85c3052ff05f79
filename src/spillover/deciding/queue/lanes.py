"""Queued jobs as a cycle walks them: lanes of similar jobs, in the order of their first jobs.

A `JobQueue` has a heap of jobs for each lane, and a heap of the heads of lanes. Void entries stay until they reach the
front of a heap.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from spillover.core.records.jobs import Kind
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.gangs import GangCandidates
from spillover.deciding.capacity.spans import Ask
from spillover.deciding.queue.heaps import SPARE, in_order
from spillover.deciding.queue.limits import NO_LIMITS, LaneLimits, allow, are_reached
from spillover.model.ids import JobId

FEW = 128
"""Up to this many lanes, sorting them is faster than reading a heap in order."""

Entry = tuple[Any, int, JobId]
"""Key of the order policy, number of the job, and its id. Entries sort in the order in which jobs are tried."""


LaneKey = Kind | tuple[Kind, str]
"""The kind of the jobs of a lane, with their user if their queue limits each user."""


class Lane:
    """Queued jobs of one shape, queue and project that back off from the same clusters. A cycle tries them as one.

    They are of one user if their queue limits each user.
    """

    __slots__ = (
        "asks",
        "gangs_owned",
        "gangs_rented",
        "kind",
        "least",
        "limits",
        "owned",
        "rented",
        "serial",
        "timed",
        "total",
        "user",
        "weighed",
    )

    def __init__(self, kind: Kind, serial: int, user: str = "", limits: LaneLimits = NO_LIMITS) -> None:
        self.kind = kind
        self.user = user
        """The user of all its jobs; empty if they may be of several."""
        self.limits = limits
        """The limits of its queue."""
        shape = kind.shape
        self.least = shape.least
        """The shape with the smallest task of a job: where that does not fit, no job of the lane fits."""
        self.total = shape.total
        """The resources of one whole job: where less is free in the whole cluster, no job of the lane fits."""
        self.serial = serial
        """Distinguishes lanes that held the same job at different times."""
        self.timed = False
        """Whether some jobs have deadlines: if one of them is too late, the next one may start."""
        self.weighed = False
        """Whether the lane is in the index's heap of CPU requests."""
        self.owned: list[Candidates] | None = None
        """Candidates on owned clusters, in the order to try them; None until first needed."""
        self.rented: list[Candidates] | None = None
        """Candidates on rented clusters; None until first needed."""
        self.gangs_owned: list[GangCandidates] | None = None
        """Candidates for gangs on owned clusters; None until first needed."""
        self.gangs_rented: list[GangCandidates] | None = None
        """Candidates for gangs on rented clusters; None until first needed."""
        self.asks: list[Ask] | None = None
        """What a job asks of each owned cluster over time; None until first needed."""

    @property
    def key(self) -> "LaneKey":
        """What distinguishes it from other lanes."""
        return (self.kind, self.user) if self.user else self.kind

    @property
    def is_held_back(self) -> bool:
        """Whether the limits of its queue let none of its jobs start now."""
        return bool(self.limits) and not allow(self.limits, self.total)

    def copy(self, limits: LaneLimits) -> "Lane":
        """Return a copy without candidates, with the limits of another index."""
        own = Lane(self.kind, self.serial, self.user, limits)
        own.timed, own.weighed = self.timed, self.weighed
        return own

    def forget_clusters(self) -> None:
        """Drop all candidates, because the clusters have changed."""
        self.owned = self.rented = None
        self.gangs_owned = self.gangs_rented = self.asks = None

    def __lt__(self, other: "Lane") -> bool:
        return self.serial < other.serial


class LightestLanes:
    """Lanes by the CPU that their jobs ask for."""

    __slots__ = ("heap",)

    def __init__(self, heap: Iterable[tuple[int, Lane]] = ()) -> None:
        self.heap = list(heap)
        """Lanes without jobs are void."""

    def add(self, lane: Lane, filled: Collection[Lane]) -> None:
        """Add a lane. It stays when it is empty, because similar jobs are likely to follow; `filled` lanes are not."""
        if len(self.heap) > 2 * len(filled) + SPARE:
            for _, each in self.heap:
                each.weighed = each in filled
            self.heap = [one for one in self.heap if one[1].weighed]
            heapq.heapify(self.heap)
        lane.weighed = True
        heapq.heappush(self.heap, (lane.kind.shape.resources.cpu, lane))

    def cpu(self, filled: Collection[Lane]) -> int:
        """Return the smallest CPU request in any filled lane, in thousandths; 0 if all are empty."""
        heap = self.heap
        while heap and heap[0][1] not in filled:
            heapq.heappop(heap)[1].weighed = False
        return heap[0][0] if heap else 0


class JobQueue:
    """Lanes in the order of their first jobs."""

    def __init__(self, valid: "Callable[[Lane, Entry], bool]") -> None:
        self.valid = valid
        self.heaps: dict[Lane, list[Entry]] = {}
        self.first: dict[Lane, Entry] = {}
        """The current head of each lane."""
        self.heads: dict[LaneLimits, list[tuple[Entry, Lane]]] | None = None
        """Heaps of heads by the limits on their lanes; heads that differ from `first` are void. None while there are
        few lanes.
        """
        self._heads = 0
        """The number of heads in these heaps."""
        self.woken: dict[Lane, None] = {}
        """Lanes with a new head since the last cycle, or with a new job that may start before its head."""

    def copy_from(self, other: "JobQueue", lane_of: "Callable[[Lane], Lane]") -> None:
        """Copy the content of another queue, with own copies of its lanes."""
        self.heaps = {lane_of(lane): heap.copy() for lane, heap in other.heaps.items()}
        self.first = {lane_of(lane): entry for lane, entry in other.first.items()}
        self.woken = {lane_of(lane): None for lane in other.woken}

    def push(self, lane: Lane, entry: Entry) -> None:
        """Add a job to a lane."""
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
        """Drop void entries from the front of a lane, and update its head."""
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
        """Set the head of a lane."""
        self.first[lane] = head
        self.woken[lane] = None
        if self.heads is None:
            return
        heapq.heappush(self.heads.setdefault(lane.limits, []), (head, lane))
        self._heads += 1
        if self._heads > 2 * len(self.first) + FEW:
            self.heads = None  # most are void: rebuild the heap when it is next needed

    def lanes(self) -> Iterator[tuple[Entry, Lane]]:
        """Yield each lane with its head, in order."""
        if len(self.first) <= FEW:
            yield from sorted([(entry, lane) for lane, entry in self.first.items()])
            return
        yield from self._merged(everything=True)

    def startable(self) -> Iterator[tuple[Entry, Lane]]:
        """Yield the lanes from which limits of queues let jobs start, in order.

        Limits that are reached while it is read end the lanes under them too, whatever their number.
        """
        if len(self.first) <= FEW:
            yield from sorted([(entry, lane) for lane, entry in self.first.items() if not lane.is_held_back])
            return
        yield from self._merged(everything=False)

    def _merged(self, *, everything: bool) -> Iterator[tuple[Entry, Lane]]:
        """Return the lanes with their heads, in order: all, or those under limits that are not reached."""
        if self.heads is None:
            self.heads = {}
            for lane, entry in self.first.items():
                self.heads.setdefault(lane.limits, []).append((entry, lane))
            for heap in self.heads.values():
                heapq.heapify(heap)
            self._heads = len(self.first)
        for limits in [limits for limits, heap in self.heads.items() if not self._tidied(heap)]:
            del self.heads[limits]
        parts = [
            self._in_order(limits, heap, everything=everything)
            for limits, heap in self.heads.items()
            if everything or not are_reached(limits)
        ]
        return parts[0] if len(parts) == 1 else heapq.merge(*parts)

    def _tidied(self, heap: list[tuple[Entry, Lane]]) -> bool:
        """Drop void heads from the front, or every walk would skip them again; return whether any head is left."""
        while heap and self.first.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
            self._heads -= 1
        return bool(heap)

    def _in_order(
        self, limits: LaneLimits, heap: list[tuple[Entry, Lane]], *, everything: bool
    ) -> Iterator[tuple[Entry, Lane]]:
        """Yield the lanes under the same limits with their heads, in order."""
        previous: Entry | None = None
        for entry, lane in in_order(heap):
            if limits and not everything and are_reached(limits):
                return
            if self.first.get(lane) == entry and entry != previous:
                previous = entry
                yield entry, lane

    def awake(self) -> list[tuple[Entry, Lane]]:
        """Return each woken lane with its head, in order."""
        return sorted([(self.first[lane], lane) for lane in self.woken])

    def jobs(self, lane: Lane) -> Iterator[Entry]:
        """Yield the valid entries of a lane, in order."""
        previous: Entry | None = None
        for entry in in_order(self.heaps.get(lane, ())):
            if entry != previous and self.valid(lane, entry):
                previous = entry
                yield entry


class Walk:
    """Walks over lanes in order until `depth` of them are stuck. Beyond the first job of a lane, it needs `go_on`."""

    __slots__ = ("_count", "_front", "_heads", "_jobs", "_next", "_opened", "last", "patience")

    def __init__(
        self,
        heads: Iterator[tuple[Entry, Lane]],
        jobs: Callable[[Lane], Iterator[Entry]],
        depth: int,
        count: int,
    ) -> None:
        self._heads = heads
        """The first job of each lane. A lane that occurs twice is visited once."""
        self._jobs = jobs
        self.patience = depth
        """How many more lanes may be stuck."""
        self._opened: dict[Lane, Iterator[Entry] | None] = {}
        """Visited lanes with an iterator over their other jobs; None while only the first job was visited."""
        self._count = count
        self._front: list[tuple[Entry, Lane]] = []
        self._next = next(heads, None)
        self.last: Entry | None = None
        """The last job that was visited."""

    def __len__(self) -> int:
        return self._count

    @property
    def is_over(self) -> bool:
        """Whether no job is left to visit."""
        return not self._front and self._next is None

    def next(self) -> tuple[Entry, Lane] | None:
        """Return the next job in the order of all lanes; None at the end, or when too many lanes are stuck."""
        while self.patience > 0:
            if self._front and (self._next is None or self._front[0][0] <= self._next[0]):
                self.last, _ = found = heapq.heappop(self._front)
                return found
            if self._next is None:
                return None
            found = self._next
            lane = found[1]
            self._next = next(self._heads, None)
            if lane in self._opened:
                continue
            self._opened[lane] = None
            self.last = found[0]
            return found
        return None

    def stuck(self) -> None:
        """Count a lane whose job does not fit."""
        self.patience -= 1

    def again(self, entry: Entry, lane: Lane) -> None:
        """Visit a job again: an array with more pending members."""
        heapq.heappush(self._front, (entry, lane))

    def go_on(self, lane: Lane) -> None:
        """Visit the next job of a lane too."""
        others = self._opened[lane]
        if others is None:
            others = self._opened[lane] = self._jobs(lane)
            next(others, None)  # skip the first one, which was visited
        following = next(others, None)
        if following is not None:
            self.again(following, lane)
