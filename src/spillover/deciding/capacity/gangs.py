"""Finds machines of one cluster for all tasks of a gang, or for none.

It fills machines one after the other, best first. The smaller last task comes last. A gang that must be in one rack, or
in another level of the cluster, goes to the best vertex that has room for all of it.
"""

from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from spillover.deciding.capacity import matching
from spillover.deciding.capacity.amounts import Wants, count, times
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import HeldCapacity
from spillover.deciding.capacity.levels import Vertex
from spillover.deciding.capacity.machine import Before, Machine
from spillover.deciding.capacity.matching import Fitting
from spillover.deciding.protocols import Place
from spillover.model.job import Shape
from spillover.model.topology import NODE, Topology

MOST_COUNTED = 4096
"""Vertices for which a gang keeps what it counted."""
_SCORE_AND_KEY = itemgetter(0, 1)


class GangCandidates:
    """Finds places for gangs of one shape in one cluster."""

    __slots__ = ("_counted", "_last", "_others", "_together", "cluster", "shape", "total")

    def __init__(self, cluster: Capacity, shape: Shape) -> None:
        self.cluster = cluster
        self.shape = shape
        self.total = shape.total
        self._others = Candidates(cluster, shape)
        self._last = None if shape.rest is None else Candidates(cluster, shape.least)
        self._together: Candidates | None = None
        """Machines with room for the whole gang, if it asks for one node."""
        if shape.topology is not None and shape.topology.within == NODE:
            alone = Topology(exclusive=shape.topology.exclusive)
            whole = replace(shape, resources=shape.total, tasks=1, topology=alone)
            self._together = Candidates(cluster, whole)
        self._counted: dict[Vertex, tuple[int, Fitting]] = {}
        """How many tasks fit on the machines of a vertex, as of its `changes`."""

    def take(self, place: Place, barred: Collection[int] = ()) -> "list[Part]":
        """Take capacity for every task, but not on barred machines; if they do not all fit, take and return nothing."""
        if not self.cluster.may_hold(self.total):
            return []
        topology = self.shape.topology
        if topology is None:
            return self._fill(place, barred)
        if topology.within:
            parts = self._on_one(place, barred) if topology.within == NODE else self._in_one(place, barred)
            if parts or not topology.preferred:
                return parts
            if topology.within != NODE and self.cluster.levels is not None:
                return self._in_few(place, barred)
        return self._spread_out(place, barred)

    def _fill(self, place: Place, barred: Collection[int]) -> "list[Part]":
        """Fill machines anywhere, best first."""
        cluster = self.cluster
        parts: list[Part] = []
        passed: list[tuple[int, int]] = []
        left = self.shape.tasks - (0 if self._last is None else 1)
        while left and (machine := self._others.best(place, barred, passed)) is not None:
            wants = self._others.wants
            part = Part(machine, wants, min(left, count(wants, machine.free)), machine.before)
            parts.append(part)
            cluster.take(machine, wants, part.tasks)
            left -= part.tasks
        self._others.put_back(passed)
        if not left and self._last is not None:
            last = self._last.best(place, barred)
            if last is None:
                left = 1
            else:
                parts.append(Part(last, self._last.wants, 1, last.before))
                cluster.take(last, self._last.wants)
        if left:
            for part in reversed(parts):
                cluster.set(part.machine, part.before)
            return []
        return parts

    # --- with a topology

    def _on_one(self, place: Place, barred: Collection[int]) -> "list[Part]":
        """Put all tasks on the best machine with room for them."""
        if self._together is None or (machine := self._together.best(place, barred)) is None:
            return []
        return [self._occupy(machine, self.shape.tasks)]

    def _in_one(self, place: Place, barred: Collection[int]) -> "list[Part]":
        """Put all tasks in the best vertex with room for them."""
        shape, levels = self.shape, self.cluster.levels
        wants, topology = self.cluster.layout.wants(shape.resources), shape.topology
        if levels is None or topology is None or not wants:
            return []
        found = [
            (place.score(vertex, shape), vertex.key, vertex)
            for vertex in levels.holding(topology.within, times(wants, shape.tasks))
        ]
        for _, _, vertex in sorted(found, key=_SCORE_AND_KEY):
            fitting = self._fitting(vertex, wants, barred)
            if matching.room(fitting, topology) >= shape.tasks:
                chosen = matching.assign(self._ordered(fitting, place), shape.tasks, topology)
                return [self._occupy(machine, tasks) for machine, tasks in chosen or ()]
        return []

    def _in_few(self, place: Place, barred: Collection[int]) -> "list[Part]":
        """Put the tasks in as few vertices as they need, those with the most room first."""
        shape, levels = self.shape, self.cluster.levels
        wants, topology = self.cluster.layout.wants(shape.resources), shape.topology
        if levels is None or topology is None or not wants:
            return []
        groups = [(vertex.key, self._fitting(vertex, wants, barred)) for vertex in levels.at(topology.within)]
        groups.sort(key=lambda each: (-sum(each[1].values()), each[0]))
        outside = [machine for machine in self.cluster.machines if machine.vertex(topology.within) is None]
        free = matching.count_tasks(outside, shape, wants, lambda machine: machine.free)
        rest = {machine: many for machine, many in free.items() if machine.index not in barred}
        ordered = (
            each for fitting in (*[one for _, one in groups], rest) for each in self._ordered(fitting, place)
        )
        chosen = matching.assign(ordered, shape.tasks, topology)
        return [self._occupy(machine, tasks) for machine, tasks in chosen or ()]

    def _spread_out(self, place: Place, barred: Collection[int]) -> "list[Part]":
        """Fill machines anywhere, best first, with no more tasks in a vertex than `spread` allows."""
        shape, topology, others = self.shape, self.shape.topology or Topology(), self._others
        parts: list[Part] = []
        passed: list[tuple[int, int]] = []
        full: set[int] = set(barred)
        given: dict[Vertex, int] = {}
        left = shape.tasks
        while left and (machine := others.best(place, full, passed)) is not None:
            tasks = min(left, machine.tasks_of(shape, others.wants, machine.free))
            vertex = machine.vertex(topology.spread) if topology.spread else None
            if vertex is not None:
                tasks = min(tasks, topology.most - given.get(vertex, 0))
                given[vertex] = given.get(vertex, 0) + tasks
                if given[vertex] >= topology.most:
                    full.update([each.index for each in vertex.machines])
            full.add(machine.index)
            if tasks:
                parts.append(self._occupy(machine, tasks))
                left -= tasks
        others.put_back(passed)
        if left:
            for part in reversed(parts):
                self.cluster.set(part.machine, part.before)
            return []
        return parts

    def _fitting(self, vertex: Vertex, wants: Wants, barred: Collection[int]) -> Fitting:
        """Return how many tasks fit on the machines of a vertex; count again only after a change."""
        known = self._counted.get(vertex)
        if known is None or known[0] != vertex.changes:
            if len(self._counted) >= MOST_COUNTED:
                self._counted.clear()
            counted = matching.count_tasks(vertex.machines, self.shape, wants, lambda machine: machine.free)
            known = self._counted[vertex] = (vertex.changes, counted)
        if not barred:
            return known[1]
        return {machine: many for machine, many in known[1].items() if machine.index not in barred}

    def _ordered(self, fitting: Fitting, place: Place) -> Iterable[tuple[Machine, int]]:
        """Return machines with the number of tasks that fit there, best first."""
        shape = self.shape
        scored = sorted(
            [(place.score(each, shape), each.index, each, many) for each, many in fitting.items()]
        )
        return [(machine, many) for _, _, machine, many in scored]

    def _occupy(self, machine: Machine, tasks: int) -> "Part":
        """Take the capacity of some tasks on a machine, or all of the machine."""
        topology = self.shape.topology
        whole = topology is not None and topology.exclusive
        part = Part(machine, self.cluster.layout.wants(self.shape.resources), tasks, machine.before, whole)
        if whole:
            self.cluster.take_whole(machine)
        else:
            self.cluster.take(machine, part.wants, tasks)
        return part


class Part(NamedTuple):
    """Some tasks of a gang on one machine."""

    machine: Machine
    wants: Wants
    """The resources of one task."""
    tasks: int
    before: Before
    """What was free there before."""
    whole: bool = False
    """Whether the gang has the machine for itself."""

    def held_on(self, cluster: Capacity) -> HeldCapacity:
        """Return what these tasks hold together."""
        held = self.machine.whole if self.whole else times(self.wants, self.tasks)
        return HeldCapacity(cluster, self.machine, held)
