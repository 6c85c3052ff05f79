"""Predicts free capacity: what is free now, plus expected releases, minus expected starts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, cast

from spillover.deciding.capacity import matching
from spillover.deciding.capacity.amounts import (
    CLOSED,
    CPU,
    GPU,
    MEMORY,
    NOWHERE,
    Vector,
    Wants,
    change,
    times,
)
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.counts import Changed, CountsKey, TaskCounts, counts_in, counts_key, opened
from spillover.deciding.capacity.machine import FreeAmounts, Machine
from spillover.deciding.capacity.matching import Fitting
from spillover.deciding.protocols import Place
from spillover.model.ids import ClusterName
from spillover.model.job import Shape
from spillover.model.resources import Resources

_FREE = attrgetter("free")
_INDEX = attrgetter("index")


class HeldCapacity(NamedTuple):
    """What a job holds on one machine."""

    cluster: Capacity
    machine: Machine
    wants: Wants
    """The resources of all its tasks there."""


class Group(NamedTuple):
    """What a job holds on several machines, the same on each."""

    cluster: Capacity
    machines: tuple[Machine, ...]
    wants: Wants
    """The resources on one of them."""


def grouped(held: Sequence[HeldCapacity]) -> tuple[Group, ...]:
    """Group machines on which a job holds the same. Most gangs are one group."""
    if len(held) == 1:
        ((cluster, machine, wants),) = held
        return (Group(cluster, (machine,), wants),)
    groups: dict[tuple[Capacity, Wants], list[Machine]] = {}
    for cluster, machine, wants in held:
        groups.setdefault((cluster, wants), []).append(machine)
    return tuple([Group(cluster, tuple(machines), wants) for (cluster, wants), machines in groups.items()])


class Future:
    """Machines as they are expected to be at a later time. It never changes the machines themselves."""

    def __init__(self, clusters: Iterable[Capacity] = ()) -> None:
        self._free: dict[Machine, Vector] = {}
        """What is free on machines that differ from now. Machines may share a vector, so it never changes."""
        self._sums: dict[ClusterName, Vector] = {each.name: each.sum.copy() for each in clusters}
        """What is free in each whole cluster, for the clusters passed in."""
        self._shown = ExpectedMachine()
        self._ended: list[Sequence[Group]] = []
        """Capacity of ended jobs that is in the sums, but not yet on machines. Most ends let no job start."""
        self._changed: list[Changed] = []
        """Machines as they changed, oldest first; some occur several times."""
        self._counts: dict[tuple[Capacity, CountsKey], TaskCounts] = {}
        """Where tasks of a shape fit, by the shape and by its key."""

    def free(self, machine: Machine) -> Sequence[int]:
        """Return what is free on a machine at that time."""
        if self._ended:
            self._settle()
        free = self._free.get(machine)
        if free is not None:
            return free
        return machine.free if machine.free[CPU] != CLOSED else opened(machine)

    def fits(self, machine: Machine, shape: Shape, wants: Wants) -> bool:
        """Return whether a task can start on a machine at that time."""
        if self._ended:
            self._settle()
        free = self._free.get(machine)
        if free is None:
            free = machine.free if machine.free[CPU] != CLOSED else opened(machine)
        for position, amount in wants:  # as `amounts.fits`, inlined: it runs for every shape at every end
            if free[position] < amount:
                return False
        if not wants or not machine.ready or not machine.admits(shape):
            return False
        return shape.topology is None or machine.holds(shape, wants, free)

    def gives(self, group: Group, shape: Shape, wants: Wants) -> bool:
        """Return whether a task can start at that time on any machine of a job that ended."""
        return any(self.fits(machine, shape, wants) for machine in group.machines)

    def fitting(self, cluster: Capacity, shape: Shape) -> Mapping[Machine, int]:
        """Return machines with room for tasks of a job, each with the number of tasks of its first part that fit."""
        if self._ended:
            self._settle()
        parts = shape.parts
        first = self._counted(cluster, parts[0].shape)
        if len(parts) == 1:
            return first
        return dict.fromkeys(self._counted(cluster, shape.least), 0) | first

    def _counted(self, cluster: Capacity, shape: Shape) -> dict[Machine, int]:
        """Return machines with room for tasks of a shape. Count again only where something changed since the last call."""
        counts = self._counts.get((cluster, shape))
        if counts is None:
            key = counts_key(shape)
            counts = self._counts.get((cluster, key))
            if counts is None:
                counts = self._counts[cluster, key] = counts_in(cluster, shape).later()
            self._counts[cluster, shape] = counts
        counts.expect(self._changed)
        return counts.tasks

    def _score(self, place: Place, machine: Machine, shape: Shape) -> int:
        """Return the score of a machine as it will be."""
        self._shown.look_at(machine, self.free(machine))
        return place.score(self._shown, shape)

    def release(self, groups: Sequence[Group]) -> None:
        """Free what a job held, because it ends. With gangs, jobs that end at the same time are freed together."""
        if not self._sums:
            if len(groups) != 1 or len(groups[0].machines) != 1:
                self._change(groups, 1)
                return
            # As `_change`. Nearly all jobs that end in a queue of single tasks are such: this halves the work.
            ((cluster, machines, wants),) = groups
            (machine,) = machines
            free = (self._free.get(machine) or machine.free).copy()
            if free[CPU] == CLOSED:
                free[CPU] = 0
            for position, amount in wants:
                free[position] += amount
            self._free[machine] = free
            self._changed.append((cluster, machines, free))
            return
        self._ended.append(groups)
        for cluster, machines, wants in groups:
            change(self._sums[cluster.name], wants, len(machines))

    def _settle(self) -> None:
        """Free on each machine what ended jobs held there."""
        if len(self._ended) == 1:
            self._change(self._ended[0], 1)
        else:
            made: dict[Machine, Vector] = {}  # vectors that only this call has, so that it may change them
            for group in [each for groups in self._ended for each in groups]:
                free = made.get(group.machines[0]) if len(group.machines) == 1 else None
                if free is not None:  # most jobs of a small cluster ended on the same machines
                    for position, amount in group.wants:
                        free[position] += amount
                    continue
                self._change((group,), 1)
                if len(group.machines) == 1:
                    made[group.machines[0]] = self._free[group.machines[0]]
                else:
                    made.clear()
        self._ended.clear()

    def _change(self, groups: Iterable[Group], sign: int) -> None:
        """Free or take capacity on machines."""
        frees, changed = self._free, self._changed
        for cluster, machines, wants in groups:
            if len(machines) == 1:
                (machine,) = machines
                free = (frees.get(machine) or machine.free).copy()
                if free[CPU] == CLOSED:  # as `_changed`, inlined: most jobs have one machine
                    free[CPU] = 0
                for position, amount in wants:
                    free[position] += sign * amount
                frees[machine] = free
                changed.append((cluster, machines, free))
                continue
            before = self._on_each(machines)
            if before.count(before[0]) == len(before):
                # Machines of a gang are mostly alike. Changing them together takes a quarter of the time.
                free = _changed(before[0], wants, sign)
                frees.update(dict.fromkeys(machines, free))
                changed.append((cluster, machines, free))
                continue
            for machine, was in zip(machines, before, strict=True):
                free = frees[machine] = _changed(was, wants, sign)
                changed.append((cluster, (machine,), free))

    def _on_each(self, machines: Collection[Machine]) -> list[Vector]:
        """Return what is free on each of some machines; CPU may be `CLOSED`."""
        expected = list(map(self._free.get, machines))
        if all(expected):
            return cast("list[Vector]", expected)
        if not any(expected):
            return list(map(_FREE, machines))
        return [free or machine.free for free, machine in zip(expected, machines, strict=True)]

    def take(self, groups: Sequence[Group]) -> None:
        """Take what starting tasks hold."""
        self._change(groups, -1)
        if self._sums:
            for cluster, machines, wants in groups:
                change(self._sums[cluster.name], wants, -len(machines))

    def may_hold(self, cluster: Capacity, asked: Resources) -> bool:
        """Return whether a whole cluster has this much free. Otherwise no gang that asks for it fits."""
        free = self._sums[cluster.name]
        return asked.gpu <= free[GPU] and asked.cpu <= free[CPU] and asked.memory <= free[MEMORY]

    def place_one(
        self, shape: Shape, machines: Mapping[Machine, Capacity], place: Place
    ) -> list[Group] | None:
        """Place a task on the best of these machines; return None if it fits on none."""
        found: Group | None = None
        best: tuple[int, int] = (0, 0)
        asked_of, wants = None, NOWHERE
        for machine, cluster in machines.items():
            if cluster is not asked_of:
                asked_of, wants = cluster, cluster.layout.wants(shape.resources)
            if self.fits(machine, shape, wants):
                score = (self._score(place, machine, shape), machine.index) if len(machines) > 1 else best
                if found is None or score < best:
                    held = wants
                    if machine.inside is not None or shape.topology is not None:
                        held = machine.share(shape, wants, 1, self.free(machine))
                    found, best = Group(cluster, (machine,), held), score
        if found is None:
            return None
        self.take([found])
        return [found]

    def place_gang(
        self, shape: Shape, cluster: Capacity, fitting: Mapping[Machine, int], place: Place
    ) -> list[Group] | None:
        """Place all tasks of a gang; return None if they do not fit. See `fitting`."""
        wants = cluster.layout.wants(shape.resources)
        inside = bool(cluster.layout.localities) and shape.resources.gpu > 0
        if shape.topology is None and len(shape.parts) == 1 and not inside:
            if sum(fitting.values()) < shape.tasks:
                return None
            alike = self._fill(fitting, shape, cluster, place)
            held = [Group(cluster, tuple(each), times(wants, tasks)) for tasks, each in alike.items()]
        else:
            chosen = matching.choose(fitting, shape, cluster, _FutureRoom(self, cluster, place))
            if chosen is None:
                return None
            held = []
            for part, machine, asked, tasks in chosen:
                own = machine.share(shape.parts[part].shape, asked, tasks, self.free(machine))
                held.append(Group(cluster, (machine,), own))
                self.take(held[-1:])  # the tasks of another part may be on the same machine
            return held
        self.take(held)
        return held

    def _fill(
        self, fitting: Mapping[Machine, int], shape: Shape, cluster: Capacity, place: Place
    ) -> dict[int, list[Machine]]:
        """Return the best machines for all tasks, by the number of tasks that they take."""
        slots, left, chosen = cluster.slots, shape.tasks, dict[int, list[Machine]]()
        frees = self._on_each(fitting)
        if frees.count(frees[0]) == len(frees) and getattr(place, "by_free", False):
            # All machines have the same score, as the whole ones that gangs leave. Their order decides.
            indexes, most = sorted(map(_INDEX, fitting)), next(iter(fitting.values()))
            whole, rest = divmod(left, most)
            if whole:
                chosen[most] = [slots[index] for index in indexes[:whole]]
            if rest:
                chosen[rest] = [slots[indexes[whole]]]
            return chosen
        for _, index, most in self.rank(fitting, place, shape):
            tasks = min(left, most)
            chosen.setdefault(tasks, []).append(slots[index])
            left -= tasks
            if not left:
                break
        return chosen

    def rank(self, fitting: Mapping[Machine, int], place: Place, shape: Shape) -> list[tuple[int, int, int]]:
        """Return score, index and number of tasks of each machine, best first."""
        shown, frees, score = self._shown, self._free, place.score
        scored: list[tuple[int, int, int]] = []
        for machine, many in fitting.items():
            free = frees.get(machine)
            if free is None:
                free = machine.free if machine.free[CPU] != CLOSED else opened(machine)
            shown.look_at(machine, free)
            scored.append((score(shown, shape), machine.index, many))
        scored.sort()
        return scored


def _changed(was: Vector, wants: Wants, sign: int) -> Vector:
    """Return what is free after a change."""
    free = was.copy()
    if free[CPU] == CLOSED:
        free[CPU] = 0
    for position, amount in wants:
        free[position] += sign * amount
    return free


class _FutureRoom:
    """What is free on the machines of one cluster at that time."""

    def __init__(self, future: Future, cluster: Capacity, place: Place) -> None:
        self._future = future
        self._cluster = cluster
        self._place = place
        self._taken: list[Group] = []

    def count(self, machine: Machine, shape: Shape, wants: Wants) -> int:
        """Return how many tasks fit on a machine that admits them."""
        return machine.tasks_of(shape, wants, self._future.free(machine))

    def rank(self, fitting: Fitting, shape: Shape) -> list[tuple[int, int, int]]:
        """Return score, index and number of tasks of each machine, best first."""
        return self._future.rank(fitting, self._place, shape)

    def take(self, machine: Machine, shape: Shape, wants: Wants, tasks: int) -> None:
        """Take capacity for some tasks on trial, with what they need inside of the machine."""
        held = machine.share(shape, wants, tasks, self._future.free(machine))
        self._taken.append(Group(self._cluster, (machine,), held))
        self._future.take(self._taken[-1:])

    def undo(self) -> None:
        """Give back all that was taken on trial."""
        self._future.release(self._taken)
        self._taken = []


class ExpectedMachine(FreeAmounts):
    """A machine as it is expected to be, for place policies."""

    __slots__ = ("_machine", "free", "layout")

    def look_at(self, machine: Machine, free: Sequence[int]) -> None:
        """Show a machine with this much free."""
        self._machine, self.free, self.layout = machine, free, machine.layout

    @property
    def name(self) -> str:
        """Its name."""
        return self._machine.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self._machine.labels

    @property
    def total(self) -> Resources:
        """Its whole capacity."""
        return self._machine.total
