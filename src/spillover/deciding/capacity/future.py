"""What is free later: as it is now, with what is expected to be released and taken until then."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
from spillover.deciding.protocols import Place
from spillover.model.ids import ClusterName
from spillover.model.job import Shape
from spillover.model.resources import Resources


class HeldCapacity(NamedTuple):
    """What a job holds on one machine."""

    cluster: Capacity
    machine: Machine
    wants: Wants
    """Of all its tasks there."""


class Future:
    """Machines as they are expected to be at some later time. It never touches the machines themselves."""

    def __init__(self, clusters: Iterable[Capacity] = ()) -> None:
        self._free: dict[Machine, Vector] = {}
        """Of machines that are not as they are now."""
        self._sums: dict[ClusterName, Vector] = {each.name: each.sum.copy() for each in clusters}
        """What is free on all machines together, of the clusters for which somebody asks that."""
        self._shown = _Shown()

    def free(self, machine: Machine) -> Sequence[int]:
        """What is free on a machine by then."""
        free = self._free.get(machine)
        if free is not None:
            return free
        return machine.free if machine.free[CPU] != CLOSED else _begin(machine)

    def fits(self, machine: Machine, shape: Shape, wants: Wants) -> bool:
        """Whether a task can start on a machine by then."""
        free = self._free.get(machine)
        if free is None:
            free = machine.free if machine.free[CPU] != CLOSED else _begin(machine)
        for position, amount in wants:  # as `amounts.fits`: asked for every shape at every end
            if free[position] < amount:
                return False
        return bool(wants) and machine.ready and machine.admits(shape)

    def count(self, machine: Machine, wants: Wants) -> int:
        """How many tasks find room on a machine that admits them."""
        return count(wants, self.free(machine))

    def score(self, place: Place, machine: Machine, shape: Shape) -> int:
        """What a place policy says of a machine as it is then."""
        self._shown.look_at(machine, self.free(machine))
        return place.score(self._shown, shape)

    def release(self, held: HeldCapacity) -> None:
        """A job ends, or does not start after all, and what it held is free."""
        cluster, machine, wants = held
        free = self._free.get(machine)
        if free is None:
            free = self._free[machine] = _begin(machine)
        for position, amount in wants:
            free[position] += amount
        if self._sums:
            change(self._sums[cluster.name], wants, 1)

    def take(self, held: HeldCapacity) -> None:
        """Some tasks start."""
        cluster, machine, wants = held
        free = self._free.get(machine)
        if free is None:
            free = self._free[machine] = _begin(machine)
        change(free, wants, -1)
        if self._sums:
            change(self._sums[cluster.name], wants, -1)

    def may_hold(self, cluster: Capacity, shape: Shape) -> bool:
        """Whether as much is free on all machines of a cluster together as all tasks of a job ask for."""
        asked, free = shape.total, self._sums[cluster.name]
        return asked.gpu <= free[GPU] and asked.cpu <= free[CPU] and asked.memory <= free[MEMORY]

    def place_one(
        self, shape: Shape, machines: Mapping[Machine, Capacity], place: Place
    ) -> list[HeldCapacity] | None:
        """Let a task start on the machine that the place policy would choose of these; None if it fits on none."""
        found: HeldCapacity | None = None
        best: tuple[int, int] = (0, 0)
        asked_of, wants = None, NOWHERE
        for machine, cluster in machines.items():
            if cluster is not asked_of:
                asked_of, wants = cluster, cluster.layout.wants(shape.resources)
            if self.fits(machine, shape, wants):
                score = (self.score(place, machine, shape), machine.index) if len(machines) > 1 else best
                if found is None or score < best:
                    found, best = HeldCapacity(cluster, machine, wants), score
        if found is None:
            return None
        self.take(found)
        return [found]

    def place_gang(
        self, shape: Shape, cluster: Capacity, machines: Iterable[Machine], place: Place
    ) -> list[HeldCapacity] | None:
        """Let all tasks of a job start on these machines of a cluster, whole machines first and the smaller last task last; None if they do not fit."""
        wants, held = cluster.layout.wants(shape.resources), list[HeldCapacity]()
        machines = list(machines)
        scored = [
            (self.score(place, machine, shape), machine.index)
            for machine in machines
            if self.fits(machine, shape, wants)
        ]
        left = shape.tasks - (0 if shape.rest is None else 1)
        for _, index in sorted(scored):
            if not left:
                break
            machine = cluster.slots[index]
            tasks = min(left, self.count(machine, wants))
            held.append(HeldCapacity(cluster, machine, times(wants, tasks)))
            self.take(held[-1])
            left -= tasks
        if not left and shape.rest is not None:
            last = self.place_one(shape.least, dict.fromkeys(machines, cluster), place)
            left = 1 if last is None else 0
            held += last or ()
        if not left:
            return held
        for each in held:
            self.release(each)
        return None


class _Shown(FreeAmounts):
    """A machine as it is expected to be."""

    __slots__ = ("free", "labels", "layout", "name", "total")

    labels: Mapping[str, str]
    name: str
    total: Resources

    def look_at(self, machine: Machine, free: Sequence[int]) -> None:
        """Show a machine on which this much is free."""
        self.free, self.layout = free, machine.layout
        self.name, self.labels, self.total = machine.name, machine.labels, machine.total


def _begin(machine: Machine) -> Vector:
    """What is free on a machine now; one on which nothing may start has no CPU left."""
    free = machine.free.copy()
    if free[CPU] == CLOSED:
        free[CPU] = 0
    return free
