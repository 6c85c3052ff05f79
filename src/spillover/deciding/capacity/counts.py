"""Counts the tasks of a shape that fit on the machines of a cluster, now and later.

Most machines of a full cluster have no room, so only those that have some are kept, and only machines that changed are
counted again. A look ahead then costs what it touches, however many machines there are.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from spillover.deciding.capacity.amounts import CLOSED, CPU, GPU, MEMORY, Vector, Wants, count
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.states import FEW, with_any_memory
from spillover.model.job import Shape
from spillover.model.resources import Resources

Changed: TypeAlias = tuple[Capacity, tuple[Machine, ...], Vector]
"""Machines of one cluster, and what is free on each of them after a change."""
CountsKey: TypeAlias = Shape | tuple[Resources, bool]
"""See `counts_key`."""
MOST_COUNTED = 256
"""Shapes for which a cluster keeps what it counted."""


class TaskCounts:
    """The machines of one cluster that have room for tasks of one shape, each with the number of tasks."""

    __slots__ = ("_anywhere", "_cluster", "_least", "_read", "_scarce", "_shape", "_wants", "tasks")

    def __init__(self, cluster: Capacity, shape: Shape) -> None:
        self._cluster = cluster
        self._shape = shape
        self._wants: Wants = ()
        self._anywhere = runs_anywhere(shape)
        asked = shape.resources
        self._scarce, self._least = (GPU, asked.gpu) if asked.gpu else (CPU, asked.cpu)
        self._read = -1
        """How many changes of the cluster were read, or of those that are expected; -1 before the first look."""
        self.tasks: dict[Machine, int] = {}

    def later(self) -> "TaskCounts":
        """Return a copy, for times at which other machines have room."""
        own = TaskCounts(self._cluster, self._shape)
        own._wants, own._read = self._wants, 0
        own.tasks = self.tasks.copy()
        return own

    def expect(self, changes: Sequence[Changed]) -> None:
        """Count again where machines are expected to change; this is for a copy, which is given all changes so far."""
        for cluster, machines, free in changes[self._read :]:
            if cluster is self._cluster:
                self.count(machines, free)
        self._read = len(changes)

    def follow(self) -> None:
        """Count again where the cluster has changed."""
        cluster, slots = self._cluster, self._cluster.slots
        end = cluster.forgotten + len(cluster.changes)
        if self._read == end:
            return
        if self._read < cluster.forgotten or end - self._read > len(slots):
            self._wants = cluster.layout.wants(self._shape.resources)  # there may be new kinds of resources
            self.tasks.clear()
            if len(slots) > FEW:
                self._count_states()
                self._read = end
                return
            changed: Iterable[Machine] = slots
        else:
            indexes = dict.fromkeys(cluster.changes[self._read - cluster.forgotten :])
            changed = [slots[index] for index in indexes]
        self._read = end
        for machine in changed:
            free = machine.free
            self.count((machine,), opened(machine) if free[CPU] == CLOSED else free)

    def _count_states(self) -> None:
        """Count on all machines, of those in one state at first only on one."""
        slots, shape, wants, tasks = self._cluster.slots, self._shape, self._wants, self.tasks
        memory = shape.resources.memory
        for indexes in self._cluster.states.now().values():
            first = slots[indexes[0]]
            free = with_any_memory(first, opened(first))
            if not first.ready or free[self._scarce] < self._least:
                continue
            many = count(wants, free) if self._anywhere else first.tasks_of(shape, wants, free)
            if not many:
                continue
            there = map(slots.__getitem__, indexes)
            if not self._anywhere or first.repels:
                for machine in there:
                    self.count((machine,), opened(machine))
            elif memory:
                fitting = [(each, min(many, each.free[MEMORY] // memory)) for each in there]
                tasks.update([one for one in fitting if one[1] > 0])
            else:
                tasks.update(dict.fromkeys(there, many))

    def count(self, machines: tuple[Machine, ...], free: Vector) -> None:
        """Count again on machines that all have this much free."""
        shape, tasks = self._shape, self.tasks
        if free[self._scarce] < self._least:  # as on most machines of a full cluster
            for machine in machines:
                tasks.pop(machine, None)
            return
        many, anywhere = count(self._wants, free), self._anywhere
        for machine in machines:
            if not machine.ready or ((machine.repels or not anywhere) and not machine.admits(shape)):
                here = 0
            else:
                here = many if anywhere else machine.tasks_of(shape, self._wants, free)
            if here:
                tasks[machine] = here
            else:
                tasks.pop(machine, None)


def counts_in(cluster: Capacity, shape: Shape) -> TaskCounts:
    """Return the machines of a cluster that have room for tasks of a shape now."""
    known, key = cluster.counts, counts_key(shape)
    counts = known.get(key)
    if counts is None:
        if len(known) >= MOST_COUNTED:
            known.clear()
        counts = known[key] = TaskCounts(cluster, shape)
    counts.follow()
    return counts


def counts_key(shape: Shape) -> CountsKey:
    """Return a key that is the same for shapes whose tasks fit alike: gangs of any size, if only amounts decide."""
    return (shape.resources, shape.is_gang) if runs_anywhere(shape) else shape


def runs_anywhere(shape: Shape) -> bool:
    """Return whether every ready machine without taints admits a shape."""
    return not (
        shape.needs or shape.rules or shape.where or shape.runs or shape.topology or shape.reservation
    )


def opened(machine: Machine) -> Vector:
    """Return what is free on a machine now; a closed machine has no CPU left."""
    free = machine.free.copy()
    if free[CPU] == CLOSED:
        free[CPU] = 0
    return free
