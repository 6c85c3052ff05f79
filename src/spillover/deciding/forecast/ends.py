"""What owned capacity is expected to look like later: who ends when, and when a job that does not fit now would."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from spillover.core.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.deciding.capacity.amounts import Vector, Wants, change, count, fits
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Future, HeldCapacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.forecast.estimates import began_at
from spillover.deciding.protocols import Place
from spillover.model.ids import ClusterName, JobId, NodeName, task_key
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, MINUTE

_AT = attrgetter("at")


class Release(Struct, frozen=True, gc=False):
    """Something that is expected to become free."""

    at: int
    """Nanoseconds UTC."""
    held: HeldCapacity


class End(NamedTuple):
    """When one job on owned capacity is expected to end; sorts by that."""

    at: int
    """Nanoseconds UTC: its start and the runtime that is expected of it."""
    number: int
    job: JobId
    began: int
    """Nanoseconds UTC."""
    held: tuple[HeldCapacity, ...]
    """What becomes free then."""


def overdue_among(ends: Sequence[End], now: int) -> int:
    """How many of these have outrun what was expected of them: they come first."""
    return bisect_right(ends, now, key=_AT)


class Ends:
    """When what runs on owned capacity is expected to end."""

    def __init__(
        self, state: State, clusters: Mapping[ClusterName, Capacity], expect: Callable[[Job], int]
    ) -> None:
        self._state = state
        self._clusters = clusters
        self._expect = expect
        """Nanoseconds that a job runs."""
        self._of: dict[JobId, End] = {}
        self.sorted: list[End] = []
        """Soonest first."""

    def copy_from(self, other: "Ends") -> None:
        """Expect what another one expects, of machines of its own."""
        for end in other.sorted:
            own = self._of[end.job] = end._replace(held=tuple([self._own(held) for held in end.held]))
            self.sorted.append(own)

    def _own(self, held: HeldCapacity) -> HeldCapacity:
        """The same, on a machine of its own; one that was dropped is the same to all."""
        cluster = self._clusters[held.cluster.name]
        return HeldCapacity(cluster, cluster.by_name.get(held.machine.name, held.machine), held.wants)

    def set(self, job: Job) -> None:
        """A job was placed, or has started; others than placed ones on owned capacity are forgotten."""
        self.forget(job.id)
        phase = job.phase
        if not isinstance(phase, Placed | Running) or self._state.is_rented(phase.cluster):
            return
        cluster = self._clusters.get(phase.cluster)
        if cluster is None:
            return
        began = began_at(phase, self._state.facts.jumped)
        at = began + self._expect(job)
        end = self._of[job.id] = End(at, job.number, job.id, began, self._held(job, phase, cluster))
        insort(self.sorted, end)

    def forget(self, job: JobId) -> None:
        """A job is not placed any more."""
        end = self._of.pop(job, None)
        if end is not None:
            del self.sorted[bisect_left(self.sorted, end)]

    def releases(self, now: int) -> Iterator[Release]:
        """What becomes free, soonest first; one that is late ends a minute from now, again and again."""
        late = bisect_right(self.sorted, (now, FOREVER))
        soon = now + MINUTE
        split = bisect_right(self.sorted, (soon, -1))
        for first, last in ((late, split), (0, late), (split, len(self.sorted))):
            for end in self.sorted[first:last]:
                at = end.at if end.at > now else soon
                for held in end.held:
                    yield Release(at, held)

    def next_turn(self, now: int) -> int:
        """When ends come to be expected in another order, if nothing happens; FOREVER if never."""
        late = bisect_right(self.sorted, (now, FOREVER))
        turn = self.sorted[late].at if late < len(self.sorted) else FOREVER
        after = bisect_right(self.sorted, (now + MINUTE, FOREVER))
        if late and after < len(self.sorted):  # what is late comes to be expected after it
            turn = min(turn, self.sorted[after].at - MINUTE)
        return turn

    def _held(self, job: Job, phase: Placed | Running, cluster: Capacity) -> tuple[HeldCapacity, ...]:
        """What a job holds; nothing while it is prefetched."""
        nodes = self._state.nodes
        found: dict[NodeName, tuple[Resources, int]] = {}
        for task in job.tasks:
            name = task.node
            held = (
                nodes[f"{phase.cluster}/{name}"].holding.get(task_key(job.id, job.attempt, task.rank))
                if task.lives
                else None
            )
            if held is not None:
                before = found.get(name)
                found[name] = (held, 1) if before is None else (before[0] + held, before[1] + 1)
        return tuple(
            [
                HeldCapacity(cluster, cluster.by_name[name], cluster.layout.held(held, many))
                for name, (held, many) in found.items()
            ]
        )


class ReservedCapacity:
    """What is kept for a job that does not fit yet: what it needs at the time when it is expected to start."""

    def __init__(self, at: int, cluster: Capacity, spare: dict[int, Vector]) -> None:
        self.at = at
        """When it is expected to start, nanoseconds UTC."""
        self.cluster = cluster
        self.spare = spare
        """For each of its machines, by its index, what is free then beyond what it needs."""

    def allows(self, machine: Machine, wants: Wants, until: int) -> bool:
        """Whether a task that ends then can run there without delaying the job."""
        if until <= self.at or machine.index not in self.spare:
            return True
        return fits(wants, self.spare[machine.index])

    def took(self, machine: Machine, wants: Wants, until: int) -> None:
        """A task was placed."""
        if until > self.at and machine.index in self.spare:
            change(self.spare[machine.index], wants, -1)


def reserve(
    shape: Shape, clusters: Sequence[Capacity], releases: Iterable[Release], place: Place
) -> ReservedCapacity | None:
    """The first time at which all tasks of a shape fit on one of these clusters, and where; None if they never will."""
    later = {cluster.name: _Later(cluster, shape) for cluster in clusters}
    at: int | None = None
    for release in releases:
        if at is not None and release.at > at and (found := _first_fit(later, at, place)) is not None:
            return found
        at = release.at
        one = later.get(release.held.cluster.name)
        if one is not None:
            one.release(release.held)
    return _first_fit(later, at, place) if at is not None else None


def _first_fit(later: "dict[ClusterName, _Later]", at: int, place: Place) -> ReservedCapacity | None:
    for one in later.values():
        if one.changed and (spare := one.fit(place)) is not None:
            return ReservedCapacity(at, one.cluster, spare)
    return None


class _Later:
    """One cluster as it will be, for jobs of one shape."""

    def __init__(self, cluster: Capacity, shape: Shape) -> None:
        self.cluster = cluster
        self.shape = shape
        self._future = Future()
        self._wants = cluster.layout.wants(shape.resources)
        plain = not shape.needs and shape.rules is None
        self._machines = {
            machine: 0
            for machine in cluster.machines
            if machine.ready and ((plain and not machine.repels) or machine.admits(shape))
        }
        """Those that the job may run on, with how many tasks like the first fit."""
        self.changed = False
        for machine in self._machines:
            self._machines[machine] = count(self._wants, self._future.free(machine))
        self._fitting = sum(self._machines.values())
        """How many tasks like the first fit on all of them."""

    def release(self, held: HeldCapacity) -> None:
        """Something becomes free."""
        machine = held.machine
        before = self._machines.get(machine)
        if before is None:
            return
        self._future.release(held)
        fitting = self._machines[machine] = count(self._wants, self._future.free(machine))
        self._fitting += fitting - before
        self.changed = True

    def fit(self, place: Place) -> dict[int, Vector] | None:
        """What is left on the machines that the job would take; None if it does not fit."""
        self.changed = False
        shape, future = self.shape, self._future
        if self._fitting < shape.tasks - (0 if shape.rest is None else 1):
            return None
        if shape.tasks == 1:
            taken = future.place_one(shape, dict.fromkeys(self._machines, self.cluster), place)
        else:
            taken = future.place_gang(shape, self.cluster, self._machines, place)
        if taken is None:
            return None
        return {held.machine.index: list(future.free(held.machine)) for held in taken}
