"""Forecasts owned capacity: when running jobs end, and when a job that does not fit now will."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.deciding.capacity.amounts import Vector, Wants, change, fits
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Future, Group, HeldCapacity, grouped
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.spans import Release
from spillover.deciding.forecast.estimates import began_at
from spillover.deciding.protocols import Place
from spillover.model.ids import ClusterName, JobId, NodeName, task_key
from spillover.model.inside import Granted
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, MINUTE

_AT = attrgetter("at")


class End(NamedTuple):
    """The expected end of one job on owned capacity. Ends sort by time."""

    at: int
    """Its start plus its expected runtime, nanoseconds UTC."""
    number: int
    job: JobId
    began: int
    """Nanoseconds UTC."""
    held: tuple[HeldCapacity, ...]
    """The capacity that becomes free then."""
    groups: tuple[Group, ...]
    """The same, with machines together on which it holds the same."""


def overdue_among(ends: Sequence[End], now: int) -> int:
    """Return how many of these have run longer than expected; they come first."""
    return bisect_right(ends, now, key=_AT)


def next_turn(ends: Sequence[End], now: int) -> int:
    """Return when the order of these changes if nothing happens; FOREVER if never."""
    late = bisect_right(ends, (now, FOREVER))
    turn = ends[late].at if late < len(ends) else FOREVER
    after = bisect_right(ends, (now + MINUTE, FOREVER))
    if late and after < len(ends):  # from then on, overdue jobs are expected to end after it
        turn = min(turn, ends[after].at - MINUTE)
    return turn


class Ends:
    """The expected ends of all jobs on owned capacity."""

    def __init__(
        self, state: State, clusters: Mapping[ClusterName, Capacity], expect: Callable[[Job], int]
    ) -> None:
        self._state = state
        self._clusters = clusters
        self._expect = expect
        """Returns the expected runtime of a job in nanoseconds."""
        self._of: dict[JobId, End] = {}
        self._sorted: list[End] = []
        self._outdated: dict[JobId, None] = {}
        """Gangs of which tasks have ended since. All tasks of most gangs end at once, and then none is looked at."""
        self.version = 0
        """Rises whenever an end changes."""
        self._on: dict[Machine, dict[JobId, tuple[End, Wants]]] | None = None
        """By machine, the jobs on it and what each holds there; None until somebody asks."""
        self._shared: dict[Machine, None] = {}
        """Machines that one gang has for itself, and that share one entry of `_on`, which never changes."""

    @property
    def sorted(self) -> list[End]:
        """All expected ends, soonest first."""
        if self._outdated:
            for job in list(self._outdated):
                self.set(self._state.jobs[job])
        return self._sorted

    def copy_from(self, other: "Ends") -> None:
        """Copy the ends of another instance, with own machines."""
        for end in other._sorted:  # noqa: SLF001 - one of its own kind, which must not change
            held = tuple([self._own(held) for held in end.held])
            own = self._of[end.job] = end._replace(held=held, groups=grouped(held))
            self._sorted.append(own)
        self._outdated = other._outdated.copy()  # noqa: SLF001

    def _own(self, held: HeldCapacity) -> HeldCapacity:
        """Return the same capacity on an own machine; dropped machines are shared."""
        cluster = self._clusters[held.cluster.name]
        return HeldCapacity(cluster, cluster.by_name.get(held.machine.name, held.machine), held.wants)

    def set(self, job: Job) -> None:
        """Update the expected end of a job; forget it unless it is placed on owned capacity."""
        self.forget(job.id)
        phase = job.phase
        if not isinstance(phase, Placed | Running) or self._state.is_rented(phase.cluster):
            return
        cluster = self._clusters.get(phase.cluster)
        if cluster is None:
            return
        began = began_at(phase, self._state.facts.jumped)
        at = began + self._expect(job)
        held = self._held(job, phase, cluster)
        self.version += 1
        end = self._of[job.id] = End(at, job.number, job.id, began, held, grouped(held))
        insort(self._sorted, end)
        if self._on is not None:
            self._add_on(self._on, end)

    def shrink(self, gang: JobId) -> None:
        """Note that a gang holds less than before, because some of its tasks ended."""
        if gang in self._of:
            self.version += 1
            self._outdated[gang] = None

    def forget(self, job: JobId) -> None:
        """Forget a job that is no longer placed."""
        end = self._of.pop(job, None)
        if end is not None:
            self.version += 1
            del self._sorted[bisect_left(self._sorted, end)]
            self._outdated.pop(job, None)
            if self._on is not None:
                for _, machine, _ in end.held:
                    if machine in self._shared:
                        del self._on[machine], self._shared[machine]
                    else:
                        del self._on[machine][job]

    def coming(self, now: int) -> Iterator[tuple[int, End]]:
        """Yield ends with their times, soonest first. Overdue jobs are expected to end in a minute."""
        ends, soon = self.sorted, now + MINUTE
        late = bisect_right(ends, (now, FOREVER))
        split = bisect_right(ends, (soon, -1))
        # Overdue jobs are first in the list, but are expected to end a minute from now, between the other two parts.
        for first, last in ((late, split), (0, late), (split, len(ends))):
            for end in ends[first:last]:
                yield end.at if end.at > now else soon, end

    def releases(self, now: int) -> Iterator[Release]:
        """Yield capacity that becomes free, soonest first."""
        for at, end in self.coming(now):
            for group in end.groups:
                yield Release(at, group)

    def on(self, machine: Machine, now: int) -> list[tuple[int, Wants]]:
        """Return what jobs hold on a machine, and until when. Overdue jobs are expected to end in a minute."""
        here = self._by_machine().get(machine)
        if not here:
            return []
        if len(here) == 1:  # as on most machines of large clusters
            ((end, wants),) = here.values()
            return [(end.at if end.at > now else now + MINUTE, wants)]
        return [(end.at if end.at > now else now + MINUTE, wants) for end, wants in here.values()]

    def same_on(self, machines: Sequence[Machine]) -> bool:
        """Return whether the same jobs hold the same on all of these machines, or nothing on any."""
        on = self._by_machine()
        here = list(map(on.get, machines))
        return here.count(here[0]) == len(here) or not any(here)

    def _by_machine(self) -> dict[Machine, dict[JobId, tuple[End, Wants]]]:
        """Return what each job holds on each machine."""
        if self._outdated or self._on is None:
            ends = self.sorted
            if self._on is None:
                self._on = {}
                for end in ends:
                    self._add_on(self._on, end)
        return self._on

    def _add_on(self, on: dict[Machine, dict[JobId, tuple[End, Wants]]], end: End) -> None:
        for _, machines, wants in end.groups:
            if len(machines) > 1 and not any(map(on.get, machines)):
                alone = {end.job: (end, wants)}
                on.update(dict.fromkeys(machines, alone))
                self._shared.update(dict.fromkeys(machines))
                continue
            for machine in machines:
                if machine in self._shared:
                    del self._shared[machine]
                    on[machine] = on[machine].copy()
                on.setdefault(machine, {})[end.job] = (end, wants)

    def _held(self, job: Job, phase: Placed | Running, cluster: Capacity) -> tuple[HeldCapacity, ...]:
        """Return what a job holds; nothing while it is prefetched."""
        nodes = self._state.nodes
        if job.extra.gang is None:  # as most jobs
            node = nodes[f"{phase.cluster}/{phase.node}"]
            only = node.holding.get(task_key(job.id, job.attempt))
            if only is None:
                return ()
            if node.alone:
                return (_whole(cluster, node.name),)
            machine, wants = cluster.by_name[node.name], cluster.layout.held(only, 1)
            if node.granted:
                granted = node.granted.get(task_key(job.id, job.attempt))
                wants = machine.with_granted(wants, ((granted, only.memory),))
            return (HeldCapacity(cluster, machine, wants),)
        found: dict[NodeName, tuple[Node, Resources, int]] = {}
        named: dict[NodeName, list[tuple[Granted | None, int]]] = {}
        for task in job.tasks:
            if not task.lives:
                continue
            name = task.node
            node = nodes[f"{phase.cluster}/{name}"]
            asked = node.holding.get(task_key(job.id, job.attempt, task.rank))
            if asked is not None:
                if job.extra.granted:
                    named.setdefault(name, []).append((job.extra.granted[task.rank], asked.memory))
                before = found.get(name)
                found[name] = (node, asked, 1) if before is None else (node, before[1] + asked, before[2] + 1)
        held: list[HeldCapacity] = []
        last: tuple[Resources, int] | None = None
        same: Wants = ()
        for name, (node, amounts, many) in found.items():
            if node.alone:
                held.append(_whole(cluster, name))
                continue
            if last is None or last[0] is not amounts or last[1] != many:  # nearly all nodes hold the same
                last, same = (amounts, many), cluster.layout.held(amounts, many)
            machine = cluster.by_name[name]
            own = machine.with_granted(same, named[name]) if named else same
            held.append(HeldCapacity(cluster, machine, own))
        return tuple(held)


def _whole(cluster: Capacity, name: NodeName) -> HeldCapacity:
    """Return a machine that a job has for itself."""
    machine = cluster.by_name[name]
    return HeldCapacity(cluster, machine, machine.whole)


class ReservedCapacity:
    """Capacity reserved for a job that does not fit yet: what it needs when it is expected to start."""

    def __init__(self, at: int, cluster: Capacity, spare: dict[int, Vector]) -> None:
        self.at = at
        """When the job is expected to start, nanoseconds UTC."""
        self.cluster = cluster
        self.spare = spare
        """By index of each reserved machine, what is free then beyond the reservation."""

    def allows(self, machine: Machine, wants: Wants, until: int) -> bool:
        """Return whether a task that ends at `until` can run there without delaying the job."""
        if until <= self.at or machine.index not in self.spare:
            return True
        return fits(wants, self.spare[machine.index])

    def took(self, machine: Machine, wants: Wants, until: int) -> None:
        """Count a task that was placed."""
        if until > self.at and machine.index in self.spare:
            change(self.spare[machine.index], wants, -1)


def reserve(
    shape: Shape, clusters: Sequence[Capacity], coming: Iterable[tuple[int, End]], place: Place
) -> ReservedCapacity | None:
    """Reserve the first time and place at which all tasks of a shape fit on one of these clusters; None if never."""
    later = {cluster.name: _Later(cluster, shape) for cluster in clusters}
    at: int | None = None
    for when, end in coming:
        if not end.held:
            continue
        if at is not None and when > at and (found := _first_fit(later, at, place)) is not None:
            return found
        at = when
        one = later.get(end.held[0].cluster.name)
        if one is not None:
            one.release(end)
    return _first_fit(later, at, place) if at is not None else None


def _first_fit(later: "dict[ClusterName, _Later]", at: int, place: Place) -> ReservedCapacity | None:
    for one in later.values():
        if one.may_fit and (spare := one.fit(place)) is not None:
            return ReservedCapacity(at, one.cluster, spare)
    return None


class _Later:
    """One cluster in the future, for jobs of one shape."""

    def __init__(self, cluster: Capacity, shape: Shape) -> None:
        self.cluster = cluster
        self.shape = shape
        self._total = shape.total
        self._future = Future([cluster])
        self.may_fit = False
        """Whether the cluster as a whole has enough free, and more than at the last call of `fit`."""

    def release(self, end: End) -> None:
        """Free capacity that a job releases."""
        self._future.release(end.groups)
        self.may_fit = self._future.may_hold(self.cluster, self._total)

    def fit(self, place: Place) -> dict[int, Vector] | None:
        """Return what is left on the machines that the job would use; None if it does not fit."""
        self.may_fit = False
        shape, future = self.shape, self._future
        fitting = future.fitting(self.cluster, shape)
        if not fitting:
            return None
        if not shape.is_gang:
            taken = future.place_one(shape, dict.fromkeys(fitting, self.cluster), place)
        else:
            taken = future.place_gang(shape, self.cluster, fitting, place)
        if taken is None:
            return None
        return {machine.index: list(future.free(machine)) for group in taken for machine in group.machines}
