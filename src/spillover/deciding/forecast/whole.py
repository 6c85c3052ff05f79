"""Forecasts which waiting jobs will not start in time where every task takes a whole machine: by counting machines.

It gives what `latecomers` gives. If all waiting jobs ask for whole machines, and machines are alike, then it does not
matter which of the idle ones a job gets. So this fast path only counts them, and saves nearly all of the work on large
clusters of such jobs. Where anything is less simple, it gives no answer.
"""

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import product
from operator import attrgetter
from typing import Final

from spillover.deciding.capacity.amounts import Wants, change, count, fits
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.counts import counts_in, runs_anywhere
from spillover.deciding.capacity.future import Group
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.forecast.ends import overdue_among
from spillover.deciding.forecast.starts import Late, Outlook, Waiter, overdue
from spillover.model.ids import JobId
from spillover.model.job import Shape
from spillover.model.units import FOREVER

_FREE = attrgetter("free")
_PLAIN = attrgetter("plain")
MOST_REQUESTS: Final = 4
"""Unlike requests of tasks that are compared with each other. More of them do not all take whole machines."""


def whole_latecomers(outlook: Outlook, limits: Mapping[JobId, int], most: int) -> list[Late] | None:
    """Return waiting jobs that do not start by their limits, as `latecomers`; None if counting machines cannot tell."""
    if outlook.strict or outlook.openings or outlook.barred is not None or len(outlook.clusters) != 1:
        return None
    (cluster,) = outlook.clusters.values()
    shapes = dict.fromkeys([each.shape for each in outlook.queue])
    idle = _idle_machines(cluster, shapes)
    if idle is None:
        return None
    first = next(iter(idle), None) or _first_to_end(outlook)
    if first is None or first.plain is None or not _take_whole(cluster, shapes, first.plain):
        return None
    if any(each.plain != first.plain or each.free != list(first.plain) for each in idle):
        return None
    line = _Line(outlook, limits, cluster, first.plain, len(idle))
    return line.late if line.run(most) else None


def _idle_machines(cluster: Capacity, shapes: Mapping[Shape, None]) -> Mapping[Machine, int] | None:
    """Return the machines where a task fits now; None if they are not the same for all shapes."""
    idle: Mapping[Machine, int] | None = None
    for shape in shapes:
        if shape.most or shape.groups or shape.rest is not None or not runs_anywhere(shape):
            return None
        if shape.is_gang and not cluster.spec.gangs:
            return None
        here = counts_in(cluster, shape).tasks
        if idle is None:
            idle = here
        elif idle.keys() != here.keys():
            return None
        if here and not shape.is_gang:
            return None  # something else than room keeps it from starting
    return idle


def _first_to_end(outlook: Outlook) -> Machine | None:
    for end in outlook.ends:
        if end.groups:
            return end.groups[0].machines[0]
    return None


def _take_whole(cluster: Capacity, shapes: Mapping[Shape, None], idle: Sequence[int]) -> bool:
    """Return whether an idle machine holds one task of any of these shapes, and then no other."""
    if cluster.layout.size != len(idle):
        return False
    requests = {cluster.layout.wants(each.resources): None for each in shapes}
    if len(requests) > MOST_REQUESTS:
        return False
    return all(
        count(one, idle) == 1 if one is other else fits(one, idle) and not fits(other, _without(idle, one))
        for one, other in product(requests, requests)
    )


def _without(idle: Sequence[int], wants: Wants) -> list[int]:
    """Return what is left of an idle machine."""
    left = list(idle)
    change(left, wants, -1)
    return left


class _Waiting:
    """A waiting job in the forecast."""

    __slots__ = ("count", "limit", "order", "waiter")

    def __init__(self, limit: int, order: int, waiter: Waiter) -> None:
        self.limit = limit
        self.order = order
        """Its position in the queue."""
        self.waiter = waiter
        self.count = waiter.many
        """How much of it still waits; 0 once it has started or left."""


class _Line:
    """Runs the queue forward on a number of idle machines. See `starts` for the plain way."""

    def __init__(
        self,
        outlook: Outlook,
        limits: Mapping[JobId, int],
        cluster: Capacity,
        plain: tuple[int, ...],
        idle: int,
    ) -> None:
        self._outlook = outlook
        self._cluster = cluster
        self._plain = plain
        """What is free on an idle machine."""
        self._idle = idle
        """How many machines are idle."""
        self._busy: dict[Wants, list[int]] = {}
        """By what a job holds, what is free on a machine that it has for itself."""
        self.late: list[Late] = []
        now, ends = outlook.now, outlook.ends
        self._at = overdue_among(ends, now)
        """Index of the next expected end."""
        self._heap: list[tuple[int, int, int, Sequence[Group]]] = [
            (overdue(now, end.began), number, 0, end.groups) for number, end in enumerate(ends[: self._at])
        ]
        """Ends of overdue jobs, and of jobs that started in the forecast, which have so many machines."""
        heapq.heapify(self._heap)
        self._serial = self._at
        self._alike: dict[int, deque[_Waiting]] = {}
        """Waiting jobs by the number of machines that they need, in order."""
        self._limits: list[tuple[int, int, _Waiting]] = []
        """Heap of jobs with a limit."""
        for order, each in enumerate(outlook.queue):
            waiting = _Waiting(limits[each.job], order, each)
            self._alike.setdefault(each.shape.tasks, deque()).append(waiting)
            if waiting.limit < FOREVER:
                self._limits.append((waiting.limit, order, waiting))
        heapq.heapify(self._limits)
        self._sizes = sorted(self._alike)
        self._left = len(self._limits)
        """How many of those still wait; the forecast ends when none does."""

    def run(self, most: int) -> bool:
        """Look at `most` ends, and note who is late; return False if a job does not have its machines for itself."""
        ends, heap, seen = self._outlook.ends, self._heap, 0
        while self._left and seen < most and self._may_decide(most - seen):
            at = ends[self._at].at if self._at < len(ends) else FOREVER
            if heap and heap[0][0] < at:
                at = heap[0][0]
            self._leave(at)
            if at >= FOREVER:
                break
            many, gained = self._release(at)
            if gained < 0:
                return False
            seen += many
            self._idle += gained
            if gained and self._idle >= self._sizes[0]:
                self._start(at)
        return True

    def _may_decide(self, many: int) -> bool:
        """Return whether the limit of a job that still waits may pass before so many jobs have ended."""
        ends, last, limits = self._outlook.ends, self._at + many - 1, self._limits
        if last >= len(ends):
            return True
        while not limits[0][2].count:
            heapq.heappop(limits)
        return limits[0][0] <= ends[last].at

    def _leave(self, at: int) -> None:
        """Remove jobs whose limit passes before the next end; if nothing ends any more, all jobs that can be rented."""
        limits = self._limits
        while limits and limits[0][0] <= at:
            limit, _, each = heapq.heappop(limits)
            if each.count:
                self.late.append(Late(each.waiter.job, each.count, limit))
                each.count = 0
                self._left -= 1

    def _release(self, at: int) -> tuple[int, int]:
        """Return how many jobs end now, and how many machines they leave idle; -1 if that is not all of a machine."""
        ends, heap, last, many, gained = self._outlook.ends, self._heap, self._at, 0, 0
        while last < len(ends) and ends[last].at <= at:
            freed = self._freed(ends[last].groups)
            if freed < 0:
                return many, -1
            gained += freed
            last += 1
            many += 1
        self._at = last
        while heap and heap[0][0] <= at:
            _, _, machines, groups = heapq.heappop(heap)
            freed = self._freed(groups) if groups else machines
            if freed < 0:
                return many, -1
            gained += freed
            many += 1
        return many, gained

    def _freed(self, groups: Sequence[Group]) -> int:
        """Return how many machines a running job has for itself; -1 if it shares one, or one is not like the others."""
        freed, plain = 0, self._plain
        for cluster, machines, wants in groups:
            busy = self._busy.get(wants)
            if busy is None:
                busy = self._busy[wants] = _without(plain, wants)
            if len(machines) == 1:
                (machine,) = machines
                alone = machine.plain == plain and machine.free == busy
            else:
                alone = (
                    list(map(_PLAIN, machines)).count(plain)
                    == list(map(_FREE, machines)).count(busy)
                    == len(machines)
                )
            if not alone or cluster is not self._cluster or busy[0] == plain[0]:
                return -1
            freed += len(machines)
        return freed

    def _start(self, at: int) -> None:
        """Start jobs that fit now, in order."""
        idle = self._idle
        heads = []
        for size in self._sizes:
            if size > idle:
                break
            if (head := _head(self._alike[size])) is not None:
                heads.append((head.order, size, head))
        heapq.heapify(heads)
        while heads:
            _, size, head = heads[0]
            if size > idle:
                heapq.heappop(heads)
                continue
            idle -= size
            self._serial += 1
            heapq.heappush(self._heap, (at + head.waiter.expected, self._serial, size, ()))
            head.count -= 1
            if not head.count and head.limit < FOREVER:
                self._left -= 1
            following = _head(self._alike[size])
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.order, size, following))
        self._idle = idle


def _head(waiting: deque[_Waiting]) -> _Waiting | None:
    """Return the first job that still waits."""
    while waiting and not waiting[0].count:
        waiting.popleft()
    return waiting[0] if waiting else None
