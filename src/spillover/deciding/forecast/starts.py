"""Looking ahead: which waiting jobs would not start on owned capacity by the time until which waiting is worth it.

The expected ends of what runs are replayed. What becomes free is given to the queue in its order, as a cycle would do it, but
without jobs that are yet to come. Bounded: only so many ends are looked at.
"""

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from spillover.deciding.capacity.amounts import Wants, fits
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Future, HeldCapacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.forecast.ends import End, overdue_among
from spillover.deciding.protocols import Place
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, MINUTE


class Waiter(Struct, frozen=True, gc=False):
    """A job that waits for owned capacity."""

    job: JobId
    shape: Shape
    expected: int
    """Nanoseconds that it is expected to run."""
    known: bool
    """Whether anything is known of its runtime; else that is only assumed."""
    arrived: int
    """Since when it waits, in steady time."""
    latest: int
    """Until when it waits at the most, in steady time."""
    many: int
    """1, or how many members of an array wait."""
    rentable: bool
    """Whether it could be rented instead; else it is only in the way, or may be rented already."""


class Outlook(Struct, frozen=True):
    """What is known at the end of a cycle's placing."""

    now: int
    """Nanoseconds UTC."""
    steady: int
    """Now, as waits count it."""
    queue: list[Waiter]
    """In the order in which they are tried."""
    fresh: Mapping[JobId, int]
    """Those of them that came just now."""
    ends: Sequence[End]
    """Of what runs on owned capacity, soonest expected first."""
    clusters: Mapping[ClusterName, Capacity]
    """Clusters that are owned."""
    place: Place
    strict: bool
    """Whether nothing behind a job that does not fit is tried."""


class Late(Struct, frozen=True, gc=False):
    """A job that would not start in time."""

    job: JobId
    many: int
    """1, or how many members of an array would not."""
    limit: int
    """By when it would have had to start, nanoseconds UTC."""


class Reviewing(Protocol):
    """A wait policy that looks at what waits when a job comes and stays queued."""

    most_jobs: int
    """How many it looks at of those that waited before; the first ones."""

    def review(self, outlook: Outlook) -> list[Late]:
        """Jobs to be rented now."""
        ...


def first_end(outlook: Outlook) -> int:
    """When anything is expected to end; one that has outrun what was expected of it as `overdue` says."""
    ends, now = outlook.ends, outlook.now
    late = overdue_among(ends, now)
    soonest = ends[late].at if late < len(ends) else FOREVER
    return min([soonest, *[overdue(now, end.began) for end in ends[:late]]])


def overdue(now: int, began: int) -> int:
    """When a job is expected to end that has outrun what was expected of it: the longer it ran, the longer it will."""
    return now + max(MINUTE, (now - began) * 3 // 10)


def latecomers(outlook: Outlook, limits: dict[JobId, int], most: int) -> list[Late]:
    """Waiting jobs that have no room by their limits if what runs ends as expected; `most` ends are looked at.

    Jobs for which that is not known after so many ends are not among them. If nothing ends any more, all are that are left.
    """
    replay = _Replay(outlook, limits)
    seen = 0
    while replay.left and seen < most:
        at = replay.next_end()
        replay.leave(at)
        if at >= FOREVER:
            break
        seen += replay.release(at)
        replay.start(at)
    return replay.late


class _Waiting:
    """A job that waits in the replay."""

    __slots__ = ("count", "limit", "order", "waiter")

    def __init__(self, limit: int, order: int, waiter: Waiter) -> None:
        self.limit = limit
        self.order = order
        """Its place in the queue."""
        self.waiter = waiter
        self.count = waiter.many
        """How much of it still waits; 0 once it has started, or left."""


class _Replay:
    """Owned capacity and the queue, as they are expected to go on."""

    def __init__(self, outlook: Outlook, limits: dict[JobId, int]) -> None:
        self._outlook = outlook
        self._clusters = outlook.clusters
        gangs = any(each.shape.tasks > 1 for each in outlook.queue)
        self._future = Future(outlook.clusters.values() if gangs else ())
        late = overdue_among(outlook.ends, outlook.now)
        self._at = late
        """Which expected end comes next."""
        self._heap: list[tuple[int, int, Sequence[HeldCapacity]]] = [
            (overdue(outlook.now, end.began), number, end.held)
            for number, end in enumerate(outlook.ends[:late])
        ]
        """Ends of those that are overdue, and of those that started in the replay."""
        heapq.heapify(self._heap)
        self._serial = late
        self._gained: dict[Machine, Capacity] = {}
        """Machines on which something became free."""
        self.late: list[Late] = []
        self._queue: deque[_Waiting] = deque()
        """All, in order; those that have started or left are dropped when they come to the front."""
        self._alike: dict[Shape, deque[_Waiting]] = {}
        """Those of one shape, likewise."""
        for order, each in enumerate(outlook.queue):
            waiting = _Waiting(limits[each.job], order, each)
            self._queue.append(waiting)
            self._alike.setdefault(each.shape, deque()).append(waiting)
        self._kinds = [
            (shape, alike, self._wants(shape.rest or shape.resources)) for shape, alike in self._alike.items()
        ]
        """Each shape with those of it, and what its smallest task asks of each cluster."""
        self._limits = [(each.limit, each.order, each) for each in self._queue if each.limit < FOREVER]
        """Heap of those that can be rented."""
        heapq.heapify(self._limits)
        self.left = len(self._limits)
        """How many of those still wait: the replay is about them."""

    def next_end(self) -> int:
        """When something ends next."""
        ends = self._outlook.ends
        at = ends[self._at].at if self._at < len(ends) else FOREVER
        return min(at, self._heap[0][0]) if self._heap else at

    def leave(self, at: int) -> None:
        """Let those go whose limit passes before anything ends; if nothing ever does, all that can be rented."""
        limits = self._limits
        while limits and limits[0][0] <= at:
            limit, _, each = heapq.heappop(limits)
            if each.count:
                self.late.append(Late(each.waiter.job, each.count, limit))
                each.count = 0
                self.left -= 1

    def release(self, at: int) -> int:
        """Let all end that does now; returns how many."""
        ends, heap = self._outlook.ends, self._heap
        release, gained = self._future.release, dict[Machine, Capacity]()
        first = last = self._at
        while last < len(ends) and ends[last].at <= at:
            for held in ends[last].held:
                release(held)
                gained[held.machine] = held.cluster
            last += 1
        started = 0
        while heap and heap[0][0] <= at:
            for held in heapq.heappop(heap)[2]:
                release(held)
                gained[held.machine] = held.cluster
            started += 1
        self._at, self._gained = last, gained
        return last - first + started

    def start(self, at: int) -> None:
        """Let those start that now have room, in order: what fitted nowhere before can only fit where room was gained."""
        if self._outlook.strict:  # those behind a job that does not fit were not tried anywhere
            self._gained = {
                machine: cluster for cluster in self._clusters.values() for machine in cluster.machines
            }
            while (head := _head(self._queue)) is not None and self._starts(head, at):
                pass
            return
        possible = self._possible()
        if not possible:
            return
        heads = [(head.order, head) for alike in possible if (head := _head(alike)) is not None]
        heapq.heapify(heads)
        while heads:
            _, head = heapq.heappop(heads)
            if self._starts(head, at):
                following = _head(self._alike[head.waiter.shape])
                if following is not None:
                    heapq.heappush(heads, (following.order, following))

    def _starts(self, each: _Waiting, at: int) -> bool:
        """Start one more of a job, if there is room."""
        parts = self._take(each.waiter.shape)
        if parts is None:
            return False
        self._serial += 1
        heapq.heappush(self._heap, (at + each.waiter.expected, self._serial, parts))
        each.count -= 1
        if not each.count and each.limit < FOREVER:
            self.left -= 1
        return True

    # --- what is free

    def _possible(self) -> list[deque[_Waiting]]:
        """Those who wait, by shape, of which a task fits where something became free."""
        if len(self._gained) == 1:
            # One job has ended, as most times. Looking at its machine once spares a call for every shape at every end.
            ((machine, cluster),) = self._gained.items()
            free = self._future.free(machine)
            return [
                alike
                for shape, alike, least in self._kinds
                if alike and fits(least[cluster], free) and machine.ready and machine.admits(shape)
            ]
        return [alike for shape, alike, least in self._kinds if alike and self._may_fit(shape, least)]

    def _may_fit(self, shape: Shape, least: Mapping[Capacity, Wants]) -> bool:
        """Whether a task of a shape fits where something became free."""
        return any(
            self._future.fits(machine, shape, least[cluster]) for machine, cluster in self._gained.items()
        )

    def _wants(self, asked: Resources) -> dict[Capacity, Wants]:
        """What a task asks of each cluster."""
        return {cluster: cluster.layout.wants(asked) for cluster in self._clusters.values()}

    def _take(self, shape: Shape) -> Sequence[HeldCapacity] | None:
        """Take what all tasks of a job need; None if there is not enough."""
        place = self._outlook.place
        if shape.tasks == 1:
            return self._future.place_one(shape, self._gained, place)
        for cluster in self._clusters.values():
            if cluster.spec.gangs and self._future.may_hold(cluster, shape):
                taken = self._future.place_gang(shape, cluster, cluster.machines, place)
                if taken is not None:
                    return taken
        return None


def _head(waiting: deque[_Waiting]) -> _Waiting | None:
    """The first that still waits."""
    while waiting and not waiting[0].count:
        waiting.popleft()
    return waiting[0] if waiting else None
