"""Forecasts which waiting jobs will not start on owned capacity while waiting is worth it.

It simulates the expected ends of running jobs, and gives the capacity that becomes free to the queue in its order, as
cycles would. It ignores jobs that may arrive later, and looks at a bounded number of ends.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from spillover.deciding.capacity.amounts import Wants
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Future, Group
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.spans import Ask
from spillover.deciding.capacity.windows import Requester
from spillover.deciding.forecast.ends import End, overdue_among
from spillover.deciding.protocols import Place, Rental
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, MINUTE


class Waiter(Struct, frozen=True, gc=False):
    """A job that waits for owned capacity."""

    job: JobId
    shape: Shape
    expected: int
    """Expected runtime in nanoseconds."""
    known: bool
    """Whether anything is known about its runtime; otherwise `expected` is an assumption."""
    arrived: int
    """When it began to wait, in steady time."""
    latest: int
    """Until when it waits at most, in steady time."""
    many: int
    """Number of waiting members of an array; 1 for other jobs."""
    rentable: bool
    """Whether it could be rented instead. Otherwise it only occupies a place in the queue, or may already be rented."""


class Outlook(Struct, frozen=True):
    """What is known after the cycle has placed jobs."""

    now: int
    """Nanoseconds UTC."""
    steady: int
    """Now in steady time."""
    queue: list[Waiter]
    """Waiting jobs in the order in which they are tried."""
    fresh: Mapping[JobId, int]
    """The new ones among them, with their latest starts."""
    ends: Sequence[End]
    """Expected ends of jobs on owned capacity, soonest first."""
    clusters: Mapping[ClusterName, Capacity]
    """The owned clusters."""
    place: Place
    strict: bool
    """Whether nothing behind a job that does not fit is tried."""
    openings: Sequence[tuple[int, Group]] = ()
    """When advance reservations end, nanoseconds UTC, and the machines that are open to all from then on."""
    barred: "Barred | None" = None
    """Returns whether advance reservations keep a job from a machine; None if there are none."""
    reservations: int = 0
    """How many waiting jobs have a reservation."""
    asked: "Callable[[JobId], Asked] | None" = None
    """Returns what a waiting job asks for over time; not None if jobs have reservations."""
    rentals: "Renting | None" = None
    """What renting waiting jobs now would mean; None if no cluster has a pool."""


class Renting(Protocol):
    """What renting waiting jobs now would mean, on machines of pools."""

    def in_order(self, waiters: Sequence[Waiter]) -> Mapping[JobId, Rental]:
        """Return what renting each of these jobs would mean: each takes the room that those before it leave.

        If a machine must be ordered for a job, others share what the job leaves of it. Jobs that cannot be rented are
        missing.
        """
        ...

    def together(self, waiters: Sequence[Waiter]) -> Mapping[JobId, Rental]:
        """Return the same for those of these jobs for which machines must be ordered, if nobody else shares them."""
        ...


class Asked(NamedTuple):
    """What a waiting job asks of owned capacity over time."""

    asks: Sequence[Ask]
    """Of each cluster, in the order to try them."""
    runtime: int
    """Nanoseconds."""
    requester: Requester
    """For whom machines with advance reservations are looked at."""


Barred: TypeAlias = Callable[[JobId, Machine, int], bool]
"""Returns whether a job may not start on a machine at a time, nanoseconds UTC."""


class Late(Struct, frozen=True, gc=False):
    """A job that would not start in time."""

    job: JobId
    many: int
    """Number of late members of an array; 1 for other jobs."""
    limit: int
    """The time by which it should have started, nanoseconds UTC."""
    paid: bool = False
    """Whether it would start at once if it is rented, and add nothing to the bill."""


class Reviewing(Protocol):
    """A wait policy that reviews waiting jobs when a new job stays queued."""

    most_jobs: int
    """How many of the jobs that waited before it reviews, first ones first."""

    def review(self, outlook: Outlook) -> list[Late]:
        """Return the jobs to rent now."""
        ...


def first_end(outlook: Outlook) -> int:
    """Return the first expected end; for jobs that have run longer than expected, see `overdue`."""
    ends, now = outlook.ends, outlook.now
    late = overdue_among(ends, now)
    soonest = ends[late].at if late < len(ends) else FOREVER
    if not late and not outlook.openings:
        return soonest  # as at most looks ahead
    opens = [at for at, _ in outlook.openings]
    return min([soonest, *opens, *[overdue(now, end.began) for end in ends[:late]]])


def overdue(now: int, began: int) -> int:
    """Return the expected end of a job that has run longer than expected: the longer it ran, the later."""
    return now + max(MINUTE, (now - began) * 3 // 10)


def latecomers(outlook: Outlook, limits: dict[JobId, int], most: int) -> list[Late]:
    """Return waiting jobs that do not fit by their limits if running jobs end as expected, looking at `most` ends.

    Jobs that are undecided after so many ends are left out. If nothing ends any more, all remaining jobs are late.
    """
    replay = _Replay(outlook, limits)
    seen = 0
    while replay.left and seen < most and replay.may_decide(most - seen):
        at = replay.next_end()
        replay.leave(at)
        if at >= FOREVER:
            break
        seen += replay.release(at)
        replay.start(at)
    return replay.late


class _Waiting:
    """A waiting job in the simulation."""

    __slots__ = ("count", "limit", "order", "waiter")

    def __init__(self, limit: int, order: int, waiter: Waiter) -> None:
        self.limit = limit
        self.order = order
        """Its position in the queue."""
        self.waiter = waiter
        self.count = waiter.many
        """How much of it still waits; 0 once it has started or left."""


class _Kind(NamedTuple):
    """Waiting jobs of one shape."""

    shape: Shape
    alike: deque[_Waiting]
    least: Mapping[Capacity, Wants]
    """The least that any of its tasks asks of each cluster."""


class _Replay:
    """Simulates owned capacity and the queue."""

    def __init__(self, outlook: Outlook, limits: dict[JobId, int]) -> None:
        self._outlook = outlook
        self._clusters = outlook.clusters
        late = overdue_among(outlook.ends, outlook.now)
        self._at = late
        """Index of the next expected end."""
        self._heap: list[tuple[int, int, Sequence[Group]]] = [
            (overdue(outlook.now, end.began), number, end.groups)
            for number, end in enumerate(outlook.ends[:late])
        ]
        """Ends of overdue jobs, and of jobs that started in the simulation."""
        self._serial = late
        for at, group in outlook.openings:
            self._serial += 1
            self._heap.append((at, self._serial, (group,)))
        heapq.heapify(self._heap)
        self._gained: list[Sequence[Group]] = []
        """What became free since machines were last searched."""
        self.late: list[Late] = []
        self._queue: deque[_Waiting] = deque()
        """All waiting jobs in order; those that started or left are dropped when they reach the front."""
        self._alike: dict[Shape, deque[_Waiting]] = {}
        """The same jobs by shape."""
        for order, each in enumerate(outlook.queue):
            waiting = _Waiting(limits[each.job], order, each)
            self._queue.append(waiting)
            self._alike.setdefault(each.shape, deque()).append(waiting)
        self._singles: list[_Kind] = []
        """Jobs of one task by shape."""
        self._gangs: list[tuple[_Kind, list[tuple[Capacity, Resources]]]] = []
        """Gangs by shape, with the clusters on which they may run and what all of a gang asks for.

        A cluster with less free holds no gang of this shape. This spares a look at its machines.
        """
        for shape, alike in self._alike.items():
            kind = _Kind(shape, alike, self._wants(shape.smallest))
            if shape.is_gang:
                clusters = [each for each in self._clusters.values() if each.spec.gangs]
                self._gangs.append((kind, [(each, shape.total) for each in clusters]))
            else:
                self._singles.append(kind)
        self._future = Future(outlook.clusters.values() if self._gangs else ())
        self._limits = [(each.limit, each.order, each) for each in self._queue if each.limit < FOREVER]
        """Heap of jobs with a limit: those that can be rented."""
        heapq.heapify(self._limits)
        self.left = len(self._limits)
        """How many of those still wait; the simulation ends when none does."""

    def next_end(self) -> int:
        """Return when the next job ends."""
        ends, heap = self._outlook.ends, self._heap
        at = ends[self._at].at if self._at < len(ends) else FOREVER
        return heap[0][0] if heap and heap[0][0] < at else at

    def may_decide(self, many: int) -> bool:
        """Return whether the limit of a job that still waits may pass before so many jobs have ended."""
        ends, last = self._outlook.ends, self._at + many - 1
        if last >= len(ends):
            return True
        limits = self._limits
        while not limits[0][2].count:
            heapq.heappop(limits)
        return limits[0][0] <= ends[last].at  # so many have ended by then, however many start until then

    def leave(self, at: int) -> None:
        """Remove jobs whose limit passes before the next end; if nothing ends any more, all jobs that can be rented."""
        limits = self._limits
        while limits and limits[0][0] <= at:
            limit, _, each = heapq.heappop(limits)
            if each.count:
                self.late.append(Late(each.waiter.job, each.count, limit))
                each.count = 0
                self.left -= 1

    def release(self, at: int) -> int:
        """Release the capacity of jobs that end now; return how many end."""
        ends, heap = self._outlook.ends, self._heap
        release, gained = self._future.release, self._gained
        last = self._at
        while last < len(ends) and ends[last].at <= at:
            end = ends[last]
            release(end.groups)
            gained.append(end.groups)
            last += 1
        many = last - self._at
        while heap and heap[0][0] <= at:
            groups = heapq.heappop(heap)[2]
            release(groups)
            gained.append(groups)
            many += 1
        self._at = last
        return many

    def start(self, at: int) -> None:
        """Start jobs that fit now, in order. What fitted nowhere before can only fit where capacity became free."""
        if self._outlook.strict:
            self._gained.clear()
            while (head := _head(self._queue)) is not None and self._starts(head, at, self._roomy(head)):
                pass
            return
        possible, gained = self._possible()
        if not possible:
            return
        heads = [(head.order, head) for kind in possible if (head := _head(kind.alike)) is not None]
        heapq.heapify(heads)
        while heads:
            _, head = heapq.heappop(heads)
            if self._starts(head, at, gained):
                following = _head(self._alike[head.waiter.shape])
                if following is not None:
                    heapq.heappush(heads, (following.order, following))

    def _starts(self, each: _Waiting, at: int, machines: Mapping[Machine, Capacity]) -> bool:
        """Start one job or array member if it fits, a single task on one of these machines; return whether it did."""
        parts = self._take(each.waiter, machines, at)
        if parts is None:
            return False
        self._serial += 1
        heapq.heappush(self._heap, (at + each.waiter.expected, self._serial, parts))
        each.count -= 1
        if not each.count and each.limit < FOREVER:
            self.left -= 1
        return True

    # --- free capacity

    def _possible(self) -> tuple[list[_Kind], dict[Machine, Capacity]]:
        """Return shapes of which a task fits on a machine that gained capacity, and those machines, for single tasks."""
        future, kinds = self._future, self._singles
        if self._gangs:
            may_hold = future.may_hold
            for kind, totals in self._gangs:
                for cluster, total in totals if kind.alike else ():
                    if may_hold(cluster, total):
                        kinds = [*kinds, kind]
                        break
            if not kinds:
                return [], {}  # as after most ends, if the queue has large gangs only
        gained = self._gained
        groups = gained[0] if len(gained) == 1 else [each for groups in gained for each in groups]
        gained.clear()
        alone = len(groups) == 1 and len(groups[0].machines) == 1
        if alone or (groups and _is_alone(groups)):
            # Usually one job has ended. Reading its machine once saves a call for every shape at every end.
            cluster, machines, _ = groups[0]
            first = machines[0]
            free = future.free(first)
            if not first.ready:
                return [], {}
            return _fitting(kinds, cluster, first, free), {first: cluster}
        possible = [
            kind
            for kind in kinds
            if kind.alike
            and any(future.gives(group, kind.shape, kind.least[group.cluster]) for group in groups)
        ]
        on: dict[Machine, Capacity] = {}
        if (
            possible and not possible[0].shape.is_gang
        ):  # single tasks come first; gangs find their own machines
            for cluster, machines, _ in groups:
                on.update(dict.fromkeys(machines, cluster))
        return possible, on

    def _roomy(self, head: _Waiting) -> dict[Machine, Capacity]:
        """Return all machines with room for a single task; nothing for a gang, which finds its own."""
        shape = head.waiter.shape
        if shape.is_gang:
            return {}
        return {
            machine: cluster
            for cluster in self._clusters.values()
            for machine in self._future.fitting(cluster, shape)
        }

    def _wants(self, asked: Resources) -> dict[Capacity, Wants]:
        """Return the request of a task in each cluster."""
        return {cluster: cluster.layout.wants(asked) for cluster in self._clusters.values()}

    def _take(self, waiter: Waiter, machines: Mapping[Machine, Capacity], at: int) -> Sequence[Group] | None:
        """Take capacity for all tasks of a job; return None if there is not enough."""
        place, barred, shape = self._outlook.place, self._outlook.barred, waiter.shape
        if shape.tasks == 1 and not shape.most:  # as `is_gang`, without a call for every job that is tried
            if barred is not None:
                machines = {
                    each: cluster for each, cluster in machines.items() if not barred(waiter.job, each, at)
                }
            return self._future.place_one(shape, machines, place)
        for cluster in self._clusters.values():
            if cluster.spec.gangs and self._future.may_hold(cluster, shape.total):
                fitting = self._future.fitting(cluster, shape)
                if barred is not None:
                    fitting = {
                        each: many for each, many in fitting.items() if not barred(waiter.job, each, at)
                    }
                taken = self._future.place_gang(shape, cluster, fitting, place)
                if taken is not None:
                    return taken
        return None


def _fitting(kinds: Sequence[_Kind], cluster: Capacity, machine: Machine, free: Sequence[int]) -> list[_Kind]:
    """Return the kinds of which a job still waits and a task fits on a machine with this much free."""
    found: list[_Kind] = []
    for kind in kinds:
        if not kind.alike:
            continue
        wants = kind.least[cluster]
        for position, amount in wants:  # as `fits`, without a call for every shape at every end
            if free[position] < amount:
                break
        else:
            if wants and machine.admits(kind.shape):
                found.append(kind)
    return found


def _head(waiting: deque[_Waiting]) -> _Waiting | None:
    """Return the first job that still waits."""
    while waiting and not waiting[0].count:
        waiting.popleft()
    return waiting[0] if waiting else None


def _is_alone(groups: Sequence[Group]) -> bool:
    """Return whether all groups are on the same single machine, as if several jobs of a small cluster end."""
    first = groups[0].machines
    return all(len(each.machines) == 1 and each.machines[0] is first[0] for each in groups)
