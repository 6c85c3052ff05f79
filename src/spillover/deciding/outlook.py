"""What owned capacity is expected to look like later: who ends when, and when a job that does not fit now would."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from spillover.core.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.deciding.estimates import began_at
from spillover.deciding.machines import Machine
from spillover.deciding.protocols import Place
from spillover.deciding.rooms import Room
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.resources import Others, Resources
from spillover.model.units import FOREVER, MINUTE

_AT = attrgetter("at")


class Release(Struct, frozen=True, gc=False):
    """Room that is expected to become free."""

    at: int
    """Nanoseconds UTC."""
    room: Room
    machine: Machine
    resources: Resources


class End(NamedTuple):
    """When one job on owned capacity is expected to end; sorts by that."""

    at: int
    """Nanoseconds UTC: its start and the runtime that is expected of it."""
    number: int
    job: JobId
    began: int
    """Nanoseconds UTC."""
    parts: tuple[tuple[Room, Machine, Resources], ...]
    """What becomes free then."""


def overdue_among(ends: Sequence[End], now: int) -> int:
    """How many of these have outrun what was expected of them: they come first."""
    return bisect_right(ends, now, key=_AT)


class Ends:
    """When what runs on owned capacity is expected to end."""

    def __init__(self, state: State, rooms: Mapping[ClusterName, Room], expect: Callable[[Job], int]) -> None:
        self._state = state
        self._rooms = rooms
        self._expect = expect
        """Nanoseconds that a job runs."""
        self._of: dict[JobId, End] = {}
        self.sorted: list[End] = []
        """Soonest first."""

    def set(self, job: Job) -> None:
        """A job was placed, or has started; others than placed ones on owned capacity are forgotten."""
        self.forget(job.id)
        phase = job.phase
        if not isinstance(phase, Placed | Running) or self._state.is_rented(phase.cluster):
            return
        room = self._rooms.get(phase.cluster)
        if room is None:
            return
        began = began_at(phase, self._state.facts.jumped)
        at = began + self._expect(job)
        end = self._of[job.id] = End(at, job.number, job.id, began, self._parts(job.id, phase, room))
        insort(self.sorted, end)

    def forget(self, job: JobId) -> None:
        """A job is not placed any more."""
        end = self._of.pop(job, None)
        if end is not None:
            del self.sorted[bisect_left(self.sorted, end)]

    def releases(self, now: int) -> Iterator[Release]:
        """Room that becomes free, soonest first; one that is late ends a minute from now, again and again."""
        late = bisect_right(self.sorted, (now, FOREVER))
        soon = now + MINUTE
        split = bisect_right(self.sorted, (soon, -1))
        for first, last in ((late, split), (0, late), (split, len(self.sorted))):
            for end in self.sorted[first:last]:
                at = end.at if end.at > now else soon
                for room, machine, resources in end.parts:
                    yield Release(at, room, machine, resources)

    def next_turn(self, now: int) -> int:
        """When ends come to be expected in another order, if nothing happens; FOREVER if never."""
        late = bisect_right(self.sorted, (now, FOREVER))
        turn = self.sorted[late].at if late < len(self.sorted) else FOREVER
        after = bisect_right(self.sorted, (now + MINUTE, FOREVER))
        if late and after < len(self.sorted):  # what is late comes to be expected after it
            turn = min(turn, self.sorted[after].at - MINUTE)
        return turn

    def _parts(
        self, job: JobId, phase: Placed | Running, room: Room
    ) -> tuple[tuple[Room, Machine, Resources], ...]:
        """What a job holds; nothing while it waits ahead of room."""
        names = (phase.node,) if not phase.others else tuple(dict.fromkeys((phase.node, *phase.others)))
        held = [(name, self._state.nodes[f"{phase.cluster}/{name}"].holding.get(job)) for name in names]
        return tuple([(room, room.by_name[name], asked) for name, asked in held if asked is not None])


class Reservation:
    """What is kept for a job that does not fit yet: the room that it needs at the time when it is expected to start."""

    def __init__(self, at: int, room: Room, spare: dict[int, list[int]], names: tuple[str, ...] = ()) -> None:
        self.at = at
        """When it is expected to start, nanoseconds UTC."""
        self.room = room
        self.spare = spare
        """For each of its machines, CPU, memory, GPUs and what else the job asks for that are free then beyond what it needs."""
        self.names = names
        """What else that is."""

    def allows(self, machine: Machine, asked: Resources, until: int) -> bool:
        """Whether a task that ends then can have room there without delaying the job."""
        if until <= self.at or machine.index not in self.spare:
            return True
        spare = self.spare[machine.index]
        if asked.cpu > spare[0] or asked.memory > spare[1] or asked.gpu > spare[2]:
            return False
        return not self.names or _fits(spare, asked, self.names)

    def took(self, machine: Machine, asked: Resources, until: int) -> None:
        """A task was given room."""
        if until > self.at and machine.index in self.spare:
            _subtract(self.spare[machine.index], asked, 1, self.names)


def reserve(
    shape: Shape, rooms: Sequence[Room], releases: Iterable[Release], place: Place
) -> Reservation | None:
    """The first time at which all tasks of a shape fit in one of these rooms, and where; None if they never will."""
    views = {room.name: _View(room, shape) for room in rooms}
    at: int | None = None
    for release in releases:
        if at is not None and release.at > at and (found := _first_fit(views, at, place)) is not None:
            return found
        at = release.at
        view = views.get(release.room.name)
        if view is not None:
            view.release(release.machine, release.resources)
    return _first_fit(views, at, place) if at is not None else None


def _first_fit(views: "dict[ClusterName, _View]", at: int, place: Place) -> Reservation | None:
    for view in views.values():
        if view.changed and (spare := view.fit(place)) is not None:
            return Reservation(at, view.room, spare, view.names)
    return None


class _View:
    """One room as it will be."""

    def __init__(self, room: Room, shape: Shape) -> None:
        self.room = room
        self.shape = shape
        self.names = tuple([name for name, _ in shape.resources.other])
        """What is asked for besides CPU, memory and GPUs."""
        plain = not shape.needs and shape.rules is None
        self.free: dict[int, list[int]] = {
            machine.index: [max(0, machine.cpu), machine.memory, machine.gpu]
            for machine in room.machines
            if machine.ready and ((plain and not machine.repels) or machine.admits(shape))
        }
        if self.names:
            for index, free in self.free.items():
                free.extend(_others(room.slots[index].other, self.names))
        self.changed = False
        one = shape.resources
        asked = (one.cpu, one.memory, one.gpu, *_others(one.other, self.names))
        self._asked = [(at, each) for at, each in enumerate(asked) if each]
        """Place and amount of what a task asks for."""
        self._places = sum([self._times(free) for free in self.free.values()])
        """How many tasks like the first find room."""

    def release(self, machine: Machine, resources: Resources) -> None:
        """Some room becomes free."""
        free = self.free.get(machine.index)
        if free is None:
            return
        self._places -= self._times(free)
        free[0] += resources.cpu
        free[1] += resources.memory
        free[2] += resources.gpu
        if self.names:
            for at, one in enumerate(_others(resources.other, self.names), 3):
                free[at] += one
        self._places += self._times(free)
        self.changed = True

    def fit(self, place: Place) -> dict[int, list[int]] | None:
        """What is left on the machines that the job would take; None if it does not fit."""
        self.changed = False
        shape = self.shape
        left = shape.tasks - (0 if shape.rest is None else 1)
        if self._places < left:
            return None
        spare: dict[int, list[int]] = {}
        for index in self._by_score(place, shape):
            if not left:
                break
            free = list(self.free[index])
            count = min(left, self._times(free))
            if count:
                _subtract(free, shape.resources, count, self.names)
                spare[index] = free
                left -= count
        if shape.rest is not None:
            for index in self._by_score(place, shape.least):
                free = spare.get(index) or list(self.free[index])
                if _fits(free, shape.rest, self.names):
                    _subtract(free, shape.rest, 1, self.names)
                    spare[index] = free
                    break
            else:
                return None
        return spare

    def _by_score(self, place: Place, shape: Shape) -> list[int]:
        """Machines in the order in which they would be taken."""
        machines = self.room.slots
        scored = [
            (place.score(free[0], free[1], free[2], shape, machines[index].total), index)
            for index, free in self.free.items()
            if _fits(free, shape.resources, self.names)
        ]
        return [index for _, index in sorted(scored)]

    def _times(self, free: list[int]) -> int:
        """How many tasks find room where this much is free."""
        asked = self._asked
        if len(asked) == 1:
            at, one = asked[0]
            return free[at] // one
        return min([free[at] // one for at, one in asked], default=self.shape.tasks)


def _others(amounts: Others, names: tuple[str, ...]) -> list[int]:
    """How much there is of each of these."""
    have = dict(amounts) if names else {}
    return [have.get(name, 0) for name in names]


def _fits(free: list[int], asked: Resources, names: tuple[str, ...]) -> bool:
    if asked.cpu > free[0] or asked.memory > free[1] or asked.gpu > free[2]:
        return False
    return not names or all(
        one <= left for one, left in zip(_others(asked.other, names), free[3:], strict=True)
    )


def _subtract(free: list[int], asked: Resources, tasks: int, names: tuple[str, ...]) -> None:
    free[0] -= asked.cpu * tasks
    free[1] -= asked.memory * tasks
    free[2] -= asked.gpu * tasks
    if names and asked.other:
        for at, one in enumerate(_others(asked.other, names), 3):
            free[at] -= one * tasks
