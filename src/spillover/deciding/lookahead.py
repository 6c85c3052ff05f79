"""Looking ahead: which waiting jobs would not start on owned capacity by the time until which waiting is worth it.

The expected ends of what runs are replayed. What becomes free is given to the queue in its order, as a cycle would do it, but
without jobs that are yet to come. Bounded: only so many ends are looked at.
"""

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from spillover.deciding.machines import Machine
from spillover.deciding.outlook import End, overdue_among
from spillover.deciding.protocols import Place
from spillover.deciding.rooms import Room
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.resources import Resources, covers
from spillover.model.units import FOREVER, MINUTE

Parts = Sequence[tuple[Room, Machine, Resources]]
"""Room that a job holds."""


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
    rooms: Mapping[ClusterName, Room]
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
        self._rooms = outlook.rooms
        late = overdue_among(outlook.ends, outlook.now)
        self._at = late
        """Which expected end comes next."""
        self._heap: list[tuple[int, int, Parts]] = [
            (overdue(outlook.now, end.began), number, end.parts)
            for number, end in enumerate(outlook.ends[:late])
        ]
        """Ends of those that are overdue, and of those that started in the replay."""
        heapq.heapify(self._heap)
        self._serial = late
        self._free: dict[Machine, list[int]] = {}
        """CPU, memory and GPUs of machines that are not as they are now."""
        self._totals: dict[ClusterName, list[int]] = {}
        """Free on all machines of a room together."""
        self._gained: dict[Machine, Room] = {}
        self.late: list[Late] = []
        self._queue: deque[_Waiting] = deque()
        """All, in order; those that have started or left are dropped when they come to the front."""
        self._alike: dict[Shape, deque[_Waiting]] = {}
        """Those of one shape, likewise."""
        for order, each in enumerate(outlook.queue):
            waiting = _Waiting(limits[each.job], order, each)
            self._queue.append(waiting)
            self._alike.setdefault(each.shape, deque()).append(waiting)
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
        ends, seen = self._outlook.ends, 0
        self._gained = {}
        while self._at < len(ends) and ends[self._at].at <= at:
            self._give_back(ends[self._at].parts)
            self._at += 1
            seen += 1
        while self._heap and self._heap[0][0] <= at:
            self._give_back(heapq.heappop(self._heap)[2])
            seen += 1
        return seen

    def start(self, at: int) -> None:
        """Let those start that now have room, in order: what fitted nowhere before can only fit where room was gained."""
        if self._outlook.strict:  # those behind a job that does not fit were not tried anywhere
            self._gained = {machine: room for room in self._rooms.values() for machine in room.machines}
            while (head := _head(self._queue)) is not None and self._starts(head, at):
                pass
            return
        possible = [shape for shape, alike in self._alike.items() if alike and self._may_fit(shape)]
        if not possible:
            return
        heads = [(head.order, head) for shape in possible if (head := _head(self._alike[shape])) is not None]
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

    # --- room

    def _room_of(self, machine: Machine) -> list[int]:
        """What is free on a machine by now."""
        free = self._free.get(machine)
        return [max(0, machine.cpu), machine.memory, machine.gpu] if free is None else free

    def _give_back(self, parts: Parts) -> None:
        for room, machine, resources in parts:
            free = self._free.get(machine)
            if free is None:
                free = self._free[machine] = [max(0, machine.cpu), machine.memory, machine.gpu]
            free[0] += resources.cpu
            free[1] += resources.memory
            free[2] += resources.gpu
            total = self._total(room)
            total[0] += resources.cpu
            total[1] += resources.memory
            total[2] += resources.gpu
            self._gained[machine] = room

    def _may_fit(self, shape: Shape) -> bool:
        """Whether a task of a shape fits where room was gained."""
        least = shape.rest or shape.resources
        for machine in self._gained:  # noqa: SIM110 - asked for every shape at every end
            if self._fits(machine, shape, least):
                return True
        return False

    def _fits(self, machine: Machine, shape: Shape, asked: Resources) -> bool:
        free = self._free.get(machine)
        if free is None:  # most machines are as they are now: nothing is made of them only to look
            if asked.gpu > machine.gpu or asked.memory > machine.memory or asked.cpu > max(0, machine.cpu):
                return False
        elif asked.gpu > free[2] or asked.cpu > free[0] or asked.memory > free[1]:
            return False
        if asked.other and not covers(machine.total.other, asked.other):
            return False
        return machine.ready and machine.admits(shape)

    def _take(self, shape: Shape) -> Parts | None:
        """Take room for all tasks of a job; None if there is not enough."""
        if shape.tasks > 1:
            return self._take_gang(shape)
        return self._take_one(shape, shape.resources, self._gained)

    def _take_one(self, shape: Shape, asked: Resources, machines: Mapping[Machine, Room]) -> Parts | None:
        """Take room for one task on the machine that the place policy would choose."""
        found: Machine | None = None
        best: tuple[int, int] = (0, 0)
        for machine in machines:
            if self._fits(machine, shape, asked):
                free = self._room_of(machine)
                score = (
                    self._outlook.place.score(free[0], free[1], free[2], shape, machine.total),
                    machine.index,
                )
                if found is None or score < best:
                    found, best = machine, score
        if found is None:
            return None
        self._use(machines[found], found, asked)
        return ((machines[found], found, asked),)

    def _use(self, room: Room, machine: Machine, asked: Resources) -> None:
        for free in (self._free.setdefault(machine, self._room_of(machine)), self._total(room)):
            free[0] -= asked.cpu
            free[1] -= asked.memory
            free[2] -= asked.gpu

    def _take_gang(self, shape: Shape) -> Parts | None:
        """Take room for all tasks of a gang on one cluster: whole machines first, and the rest last."""
        asked = shape.total
        for room in self._rooms.values():
            total = self._total(room)
            enough = asked.gpu <= total[2] and asked.cpu <= total[0] and asked.memory <= total[1]
            if room.spec.gangs and enough and (parts := self._take_in(room, shape)) is not None:
                return parts
        return None

    def _take_in(self, room: Room, shape: Shape) -> Parts | None:
        """Take room for all tasks of a gang in one room."""
        parts: list[tuple[Room, Machine, Resources]] = []
        left = shape.tasks - (0 if shape.rest is None else 1)
        place = self._outlook.place
        scored: list[tuple[int, int]] = []
        for machine in room.machines:
            if self._fits(machine, shape, shape.resources):
                free = self._room_of(machine)
                score = place.score(free[0], free[1], free[2], shape, machine.total)
                scored.append((score, machine.index))
        for _, index in sorted(scored):
            machine = room.slots[index]
            while left and self._fits(machine, shape, shape.resources):
                self._use(room, machine, shape.resources)
                parts.append((room, machine, shape.resources))
                left -= 1
            if not left:
                break
        if not left and shape.rest is not None:
            last = self._take_one(shape, shape.rest, dict.fromkeys(room.machines, room))
            left = 1 if last is None else 0
            parts += last or ()
        if not left:
            return parts
        for _, machine, asked in parts:
            self._use(room, machine, Resources(-asked.cpu, -asked.memory, -asked.gpu))
        return None

    def _total(self, room: Room) -> list[int]:
        """What is free in a room by now."""
        total = self._totals.get(room.name)
        if total is None:
            total = self._totals[room.name] = [room.cpu, room.memory, room.gpu]
        return total


def _head(waiting: deque[_Waiting]) -> _Waiting | None:
    """The first that still waits."""
    while waiting and not waiting[0].count:
        waiting.popleft()
    return waiting[0] if waiting else None
