"""Forecasts which waiting jobs will not start in time, where the first of them have reservations.

The jobs with reservations are booked in the order of the queue, each in the first span that those ahead leave. Other
jobs start where they fit, in the order of time, and delay none of the booked ones. When a booked job starts, the next
one in the queue gets its reservation. A job that would be late is rented at once, so nothing is kept for it.
"""

import heapq

from spillover.deciding.capacity.amounts import Wants
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.spans import Booking, Release
from spillover.deciding.capacity.timeline import Timeline
from spillover.deciding.forecast.starts import Asked, Late, Outlook, Waiter, overdue
from spillover.model.ids import JobId
from spillover.model.units import FOREVER


def booked_latecomers(outlook: Outlook, limits: dict[JobId, int], most: int) -> list[Late]:
    """Return waiting jobs that do not start by their limits, looking at `most` ends and twice as many starts."""
    forecast = _Forecast(outlook, limits, most)
    forecast.run()
    return forecast.late


class _Waiting:
    """A waiting job in the forecast."""

    __slots__ = ("asked", "booked", "count", "floor", "limit", "order", "waiter")

    def __init__(self, order: int, waiter: Waiter, limit: int, asked: Asked, now: int) -> None:
        self.order = order
        """Its position in the queue."""
        self.waiter = waiter
        self.limit = limit
        self.asked = asked
        self.count = waiter.many
        """How much of it still waits."""
        self.booked = 0
        """How much of that has a reservation."""
        self.floor = now + 1
        """Before this time it cannot start, nanoseconds UTC."""


class _Forecast:
    """Runs the queue forward on a timeline of owned capacity."""

    def __init__(self, outlook: Outlook, limits: dict[JobId, int], most: int) -> None:
        now = outlook.now
        self._place = outlook.place
        ends = sorted(
            [
                (end.at if end.at > now else overdue(now, end.began), number, end)
                for number, end in enumerate(outlook.ends)
            ]
        )
        self._horizon = ends[most][0] if len(ends) > most else FOREVER
        """Starts after this time are left undecided."""
        held: dict[Machine, list[tuple[int, Wants]]] = {}
        for at, _, end in ends:
            for _, machine, wants in end.held:
                held.setdefault(machine, []).append((at, wants))
        releases = [Release(at, each) for at, _, end in ends for each in end.groups]
        self._timeline = Timeline(now, releases, lambda machine: held.get(machine, ()))
        self._timeline.reserve(outlook.clusters.values())
        self._queue = [
            _Waiting(order, each, limits[each.job], outlook.asked(each.job), now)
            for order, each in enumerate(outlook.queue)
            if outlook.asked is not None
        ]
        self._next = 0
        """The first job in the queue that may get a reservation."""
        self._left = outlook.reservations
        """How many more jobs may have one."""
        self._starts: list[tuple[int, int, bool, _Waiting]] = []
        """Heap of times at which jobs may start, each with its place in the queue, and whether it is booked then."""
        self._looks = 2 * most
        self.late: list[Late] = []

    def run(self) -> None:
        """Start jobs in the order of time, until all are decided or the looks are used up."""
        self._reserve()
        self._starts += [(each.floor, each.order, False, each) for each in self._queue]
        heapq.heapify(self._starts)
        while self._starts and self._looks > 0:
            at, _, booked, each = heapq.heappop(self._starts)
            if booked:
                each.count -= 1
                each.booked -= 1
                self._left += 1
                self._reserve()
            elif each.count > each.booked:
                self._start(each, at)

    def _start(self, each: _Waiting, at: int) -> None:
        """Start a job without a reservation, if it fits at a time; otherwise try it again when it may."""
        found = self._search(each)
        if found is None:
            return
        if found.start > at:
            heapq.heappush(self._starts, (found.start, each.order, False, each))
            return
        self._timeline.take(found)
        each.count -= 1
        heapq.heappush(self._starts, (at, each.order, False, each))

    def _reserve(self) -> None:
        """Give reservations to the next jobs of the queue."""
        while self._left > 0 and self._next < len(self._queue) and self._looks > 0:
            each = self._queue[self._next]
            found = self._search(each) if each.count > each.booked else None
            if found is None:
                self._next += 1
                continue
            self._timeline.take(found)
            each.booked += 1
            self._left -= 1
            heapq.heappush(self._starts, (found.start, each.order, True, each))

    def _search(self, each: _Waiting) -> Booking | None:
        """Return the first span for a job; None if that would be late, or too far ahead to tell."""
        self._looks -= 1
        asks, runtime, self._timeline.requester = each.asked
        found = self._timeline.earliest(asks, runtime, self._place, each.floor)
        each.floor = FOREVER if found is None else found.start
        if each.floor >= each.limit:
            if each.limit <= self._horizon and each.limit < FOREVER:
                self.late.append(Late(each.waiter.job, each.count - each.booked, each.limit))
            each.count = each.booked
            return None
        return found
