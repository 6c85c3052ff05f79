"""Predicts free capacity: what is free now, plus expected releases, minus expected starts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
    count,
    times,
)
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import FreeAmounts, Machine
from spillover.deciding.capacity.matching import Fitting
from spillover.deciding.protocols import Place
from spillover.model.ids import ClusterName
from spillover.model.job import Shape
from spillover.model.resources import Resources


class HeldCapacity(NamedTuple):
    """What a job holds on one machine."""

    cluster: Capacity
    machine: Machine
    wants: Wants
    """The resources of all its tasks there."""


class Future:
    """Machines as they are expected to be at a later time. It never changes the machines themselves."""

    def __init__(self, clusters: Iterable[Capacity] = ()) -> None:
        self._free: dict[Machine, Vector] = {}
        """What is free on machines that differ from now."""
        self._sums: dict[ClusterName, Vector] = {each.name: each.sum.copy() for each in clusters}
        """What is free in each whole cluster, for the clusters passed in."""
        self._shown = ExpectedMachine()
        self._admitting: dict[tuple[Capacity, Shape], list[Machine]] = {}
        """Ready machines of a cluster that admit a shape; they stay the same in all that is forecast."""

    def free(self, machine: Machine) -> Sequence[int]:
        """Return what is free on a machine at that time."""
        free = self._free.get(machine)
        if free is not None:
            return free
        return machine.free if machine.free[CPU] != CLOSED else _begin(machine)

    def fits(self, machine: Machine, shape: Shape, wants: Wants) -> bool:
        """Return whether a task can start on a machine at that time."""
        free = self._free.get(machine)
        if free is None:
            free = machine.free if machine.free[CPU] != CLOSED else _begin(machine)
        for position, amount in wants:  # as `amounts.fits`, inlined: it runs for every shape at every end
            if free[position] < amount:
                return False
        if not wants or not machine.ready or not machine.admits(shape):
            return False
        return shape.topology is None or not shape.topology.exclusive or machine.is_empty(free)

    def fitting(self, cluster: Capacity, shape: Shape) -> dict[Machine, int]:
        """Return the machines of a cluster that admit a job, each with the number of tasks of its first part that fit."""
        machines = self._admitting.get((cluster, shape))
        if machines is None:
            anywhere = not (
                shape.needs or shape.rules or shape.where or shape.runs or shape.topology or shape.reservation
            )
            machines = self._admitting[cluster, shape] = [
                machine
                for machine in cluster.machines
                if machine.ready and ((anywhere and not machine.repels) or machine.admits(shape))
            ]
        (_, first), *_ = shape.parts
        wants, asked = cluster.layout.wants(first.resources), first.resources
        scarce, least = (GPU, asked.gpu) if asked.gpu else (CPU, asked.cpu)
        changed = self._free
        found = dict.fromkeys(machines, 0)
        for machine in machines:
            free = changed.get(machine) or machine.free
            if free[CPU] == CLOSED:
                free = _begin(machine)
            if free[scarce] >= least:  # few machines of a full cluster, so this spares most calls
                found[machine] = machine.tasks_of(first, wants, free)
        return found

    def count(self, machine: Machine, wants: Wants) -> int:
        """Return how many tasks fit on a machine that admits them."""
        return count(wants, self.free(machine))

    def score(self, place: Place, machine: Machine, shape: Shape) -> int:
        """Return the score of a machine as it will be."""
        self._shown.look_at(machine, self.free(machine))
        return place.score(self._shown, shape)

    def release(self, held: HeldCapacity) -> Vector:
        """Free what a job held, because it ends or does not start; return what is then free on the machine."""
        cluster, machine, wants = held
        free = self._free.get(machine)
        if free is None:
            free = self._free[machine] = _begin(machine)
        for position, amount in wants:
            free[position] += amount
        if self._sums:
            change(self._sums[cluster.name], wants, 1)
        return free

    def take(self, held: HeldCapacity) -> None:
        """Take what starting tasks hold."""
        cluster, machine, wants = held
        free = self._free.get(machine)
        if free is None:
            free = self._free[machine] = _begin(machine)
        change(free, wants, -1)
        if self._sums:
            change(self._sums[cluster.name], wants, -1)

    def may_hold(self, cluster: Capacity, shape: Shape) -> bool:
        """Return whether a whole cluster has enough free for all tasks of a job."""
        asked, free = shape.total, self._sums[cluster.name]
        return asked.gpu <= free[GPU] and asked.cpu <= free[CPU] and asked.memory <= free[MEMORY]

    def place_one(
        self, shape: Shape, machines: Mapping[Machine, Capacity], place: Place
    ) -> list[HeldCapacity] | None:
        """Place a task on the best of these machines; return None if it fits on none."""
        found: HeldCapacity | None = None
        best: tuple[int, int] = (0, 0)
        asked_of, wants = None, NOWHERE
        for machine, cluster in machines.items():
            if cluster is not asked_of:
                asked_of, wants = cluster, cluster.layout.wants(shape.resources)
            if self.fits(machine, shape, wants):
                score = (self.score(place, machine, shape), machine.index) if len(machines) > 1 else best
                if found is None or score < best:
                    alone = shape.topology is not None and shape.topology.exclusive
                    found, best = HeldCapacity(cluster, machine, machine.whole if alone else wants), score
        if found is None:
            return None
        self.take(found)
        return [found]

    def place_gang(
        self, shape: Shape, cluster: Capacity, fitting: Mapping[Machine, int], place: Place
    ) -> list[HeldCapacity] | None:
        """Place all tasks of a gang; return None if they do not fit. See `fitting`."""
        chosen = matching.choose(fitting, shape, cluster, _FutureRoom(self, cluster, place))
        if chosen is None:
            return None
        alone = shape.topology is not None and shape.topology.exclusive
        held = [
            HeldCapacity(cluster, machine, machine.whole if alone else times(wants, tasks))
            for _, machine, wants, tasks in chosen
        ]
        for each in held:
            self.take(each)
        return held


class _FutureRoom:
    """What is free on the machines of one cluster at that time."""

    def __init__(self, future: Future, cluster: Capacity, place: Place) -> None:
        self._future = future
        self._cluster = cluster
        self._place = place
        self._taken: list[HeldCapacity] = []

    def count(self, machine: Machine, shape: Shape, wants: Wants) -> int:
        """Return how many tasks fit on a machine that admits them."""
        return machine.tasks_of(shape, wants, self._future.free(machine))

    def rank(self, fitting: Fitting, shape: Shape) -> list[tuple[int, int, int]]:
        """Return score, index and number of tasks of each machine, best first."""
        score, place = self._future.score, self._place
        return sorted(
            [(score(place, machine, shape), machine.index, many) for machine, many in fitting.items()]
        )

    def take(self, machine: Machine, wants: Wants) -> None:
        """Take capacity on trial."""
        self._taken.append(HeldCapacity(self._cluster, machine, wants))
        self._future.take(self._taken[-1])

    def undo(self) -> None:
        """Give back all that was taken on trial."""
        for held in self._taken:
            self._future.release(held)
        self._taken.clear()


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


def _begin(machine: Machine) -> Vector:
    """Return what is free on a machine now; a closed machine has no CPU left."""
    free = machine.free.copy()
    if free[CPU] == CLOSED:
        free[CPU] = 0
    return free
