"""Finds machines of one cluster for all tasks of a gang, or for none.

It fills machines one after the other, best first. The parts of a gang with unlike tasks follow each other, the largest
first. A gang that must be in one rack, or in another level of the cluster, goes to the best vertex that has room for
all of it.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from spillover.deciding.capacity import matching
from spillover.deciding.capacity.amounts import MEMORY, Wants, count, times
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import HeldCapacity
from spillover.deciding.capacity.levels import Vertex
from spillover.deciding.capacity.machine import Before, Machine
from spillover.deciding.capacity.matching import Fitting, Given
from spillover.deciding.capacity.spans import Share
from spillover.deciding.protocols import Place
from spillover.model.ids import NodeName
from spillover.model.inside import Granted
from spillover.model.job import Shape
from spillover.model.topology import NODE, Topology

MOST_COUNTED = 4096
"""Vertices for which a gang keeps what it counted."""
_SCORE_AND_KEY = itemgetter(0, 1)


class GangCandidates:
    """Finds places for gangs of one shape in one cluster."""

    __slots__ = ("_counted", "_parts", "_together", "cluster", "named", "shape", "total")

    def __init__(self, cluster: Capacity, shape: Shape) -> None:
        self.cluster = cluster
        self.shape = shape
        self.total = shape.total
        self._parts = tuple([Candidates(cluster, part) for _, part in shape.parts])
        """Where tasks of each part fit."""
        self.named = len(self._parts) > 1 and shape.asks_inside
        """Whether tasks get their cores and GPUs as soon as they are placed, because other parts get what is left."""
        self._together: Candidates | None = None
        """Machines with room for the whole gang, if it asks for one node."""
        if shape.topology is not None and shape.topology.within == NODE and not shape.asks_inside:
            self._together = Candidates(cluster, _as_one(shape), shape.tasks)
        self._counted: dict[Vertex, tuple[int, Fitting]] = {}
        """How many tasks of the first part fit on the machines of a vertex, as of its `changes`."""

    def take(self, place: Place, barred: Collection[int] = (), tasks: int = 0) -> "list[Part]":
        """Take capacity for every task, but not on barred machines; if they do not all fit, take and return nothing.

        `tasks` is the size of a gang of elastic size; 0 is its least.
        """
        if not self.cluster.may_hold(self.shape.sized(tasks).total if tasks else self.total):
            return []
        topology = self.shape.topology
        if topology is None:
            fill = self._spread_out if self.named else self._fill
            return fill(place, barred, tasks)
        if topology.within:
            inside = self._on_one if topology.within == NODE else self._in_one
            parts = inside(place, barred, tasks)
            if parts or not topology.preferred:
                return parts
            if topology.within != NODE and self.cluster.levels is not None:
                return self._in_few(place, barred, tasks)
        return self._spread_out(place, barred, tasks)

    def _fill(self, place: Place, barred: Collection[int], tasks: int) -> "list[Part]":
        """Fill machines anywhere, best first."""
        cluster = self.cluster
        parts: list[Part] = []
        for number, candidates in enumerate(self._parts):
            passed: list[tuple[int, int]] = []
            left = tasks or candidates.shape.tasks
            while left and (machine := candidates.best(place, barred, passed)) is not None:
                wants = candidates.wants
                part = Part(machine, wants, min(left, count(wants, machine.free)), machine.before, number)
                parts.append(part)
                cluster.take(machine, wants, part.tasks)
                left -= part.tasks
            candidates.put_back(passed)
            if left:
                return self.undo(parts)
        return parts

    def undo(self, parts: "list[Part]") -> "list[Part]":
        """Give back what was taken, and return nothing."""
        for part in reversed(parts):
            self.cluster.set(part.machine, part.before)
        return []

    # --- with a topology

    def _on_one(self, place: Place, barred: Collection[int], tasks: int) -> "list[Part]":
        """Put all tasks on the best machine with room for them."""
        if self.shape.asks_inside:
            first, passed, done = self._parts[0], list[tuple[int, int]](), set(barred)
            parts: list[Part] = []
            while not parts and (machine := first.best(place, done, passed)) is not None:
                parts = self._all_on(machine, tasks)
                done.add(machine.index)
            first.put_back(passed)
            return parts
        together = self._together
        if tasks:
            together = Candidates(self.cluster, _as_one(self.shape.sized(tasks)), tasks)
        if together is None or (machine := together.best(place, barred)) is None:
            return []
        if tasks:
            return [self._occupy(machine, 0, tasks)]
        return [
            self._occupy(machine, number, part.tasks) for number, (_, part) in enumerate(self.shape.parts)
        ]

    def _all_on(self, machine: Machine, tasks: int) -> "list[Part]":
        """Put all tasks on a machine; take nothing if they do not all fit there."""
        parts: list[Part] = []
        for number, each in enumerate(self._parts):
            shape, needed = each.shape, tasks or each.shape.tasks
            wants = self.cluster.layout.wants(shape.resources)
            if not machine.admits(shape) or machine.tasks_of(shape, wants, machine.free) < needed:
                return self.undo(parts)
            parts.append(self._occupy(machine, number, needed))
        return parts

    def _in_one(self, place: Place, barred: Collection[int], tasks: int) -> "list[Part]":
        """Put all tasks in the best vertex with room for them."""
        shape, levels, topology = self.shape, self.cluster.levels, self.shape.topology
        if levels is None or topology is None:
            return []
        found = [
            (place.score(vertex, shape), vertex.key, vertex)
            for vertex in levels.holding(topology.within, self._all_together(tasks))
        ]
        for _, _, vertex in sorted(found, key=_SCORE_AND_KEY):
            room = matching.room(self._fitting(vertex, barred), topology)
            needed = tasks or self._parts[0].shape.tasks
            if room >= needed and (parts := self._assign((vertex,), (), place, barred, tasks)):
                return parts
        return []

    def _all_together(self, tasks: int) -> Wants:
        """Return the request of all tasks together."""
        layout = self.cluster.layout
        if len(self._parts) == 1:
            return times(layout.wants(self.shape.resources), tasks or self.shape.tasks)
        return layout.held(self.total, self.shape.tasks)

    def _in_few(self, place: Place, barred: Collection[int], tasks: int) -> "list[Part]":
        """Put the tasks in as few vertices as they need, those with the most room first."""
        levels, topology = self.cluster.levels, self.shape.topology
        if levels is None or topology is None:
            return []
        within = topology.within
        vertices = levels.at(within)
        room = {vertex: sum(self._fitting(vertex, barred).values()) for vertex in vertices}
        vertices.sort(key=lambda vertex: (-room[vertex], vertex.key))
        outside = [machine for machine in self.cluster.machines if machine.vertex(within) is None]
        return self._assign(vertices, outside, place, barred, tasks)

    def _assign(
        self,
        vertices: Iterable[Vertex],
        outside: Iterable[Machine],
        place: Place,
        barred: Collection[int],
        tasks: int,
    ) -> "list[Part]":
        """Give the tasks to machines of vertices in their order, then to others; take nothing if they do not all fit."""
        topology, parts = self.shape.topology or Topology(), list[Part]()
        given: Given = {}
        for number, (_, part) in enumerate(self.shape.parts):
            fitting = chain(
                (self._left(vertex, part, barred) for vertex in vertices),
                (self._count(each, part, barred) for each in (outside,)),
            )
            ordered = chain.from_iterable(self._ordered(each, place, part) for each in fitting)
            chosen = matching.assign(ordered, tasks or part.tasks, topology, given)
            if chosen is None:
                return self.undo(parts)
            parts += [self._occupy(machine, number, many) for machine, many in chosen]
        return parts

    def _spread_out(self, place: Place, barred: Collection[int], tasks: int) -> "list[Part]":
        """Fill machines anywhere, best first, with no more tasks in a vertex than `spread` allows."""
        topology, level = self.shape.topology or Topology(), (self.shape.topology or Topology()).spread
        parts: list[Part] = []
        full: set[int] = set(barred)
        given: Given = {}
        for number, candidates in enumerate(self._parts):
            shape, done = candidates.shape, set(full)
            passed: list[tuple[int, int]] = []
            left = tasks or shape.tasks
            while left and (machine := candidates.best(place, done, passed)) is not None:
                many = min(left, machine.tasks_of(shape, candidates.wants, machine.free))
                vertex = (machine if level == NODE else machine.vertex(level)) if level else None
                if vertex is not None:
                    many = min(many, topology.most - given.get(vertex, 0))
                    given[vertex] = given.get(vertex, 0) + many
                    if given[vertex] >= topology.most:
                        below = (machine,) if isinstance(vertex, Machine) else vertex.machines
                        full.update([each.index for each in below])
                        done |= full
                done.add(machine.index)
                if many:
                    parts.append(self._occupy(machine, number, many))
                    left -= many
            candidates.put_back(passed)
            if left:
                return self.undo(parts)
        return parts

    def _fitting(self, vertex: Vertex, barred: Collection[int]) -> Fitting:
        """Return how many tasks of the first part fit on the machines of a vertex; count again only after a change."""
        known = self._counted.get(vertex)
        if known is None or known[0] != vertex.changes:
            if len(self._counted) >= MOST_COUNTED:
                self._counted.clear()
            counted = self._count(vertex.machines, self._parts[0].shape)
            known = self._counted[vertex] = (vertex.changes, counted)
        return _without(known[1], barred)

    def _left(self, vertex: Vertex, part: Shape, barred: Collection[int]) -> Fitting:
        """Return how many tasks of a part fit on the machines of a vertex, on what the parts before it left."""
        if part is self._parts[0].shape:
            return self._fitting(vertex, barred)
        return self._count(vertex.machines, part, barred)

    def _count(self, machines: Iterable[Machine], part: Shape, barred: Collection[int] = ()) -> Fitting:
        """Return how many tasks of a part fit on each of these machines."""
        wants = self.cluster.layout.wants(part.resources)
        if not wants:
            return {}
        return _without(matching.count_tasks(machines, part, wants, lambda machine: machine.free), barred)

    @staticmethod
    def _ordered(fitting: Fitting, place: Place, part: Shape) -> Iterable[tuple[Machine, int]]:
        """Return machines with the number of tasks that fit there, best first."""
        scored = sorted([(place.score(each, part), each.index, each, many) for each, many in fitting.items()])
        return [(machine, many) for _, _, machine, many in scored]

    def _occupy(self, machine: Machine, number: int, tasks: int) -> "Part":
        """Take the capacity of some tasks of a part on a machine, or all of the machine."""
        topology = self.shape.topology
        whole = topology is not None and topology.exclusive
        shape = self._parts[number].shape
        wants = machine.asks(shape, self.cluster.layout.wants(shape.resources))
        before = machine.before
        if whole:
            self.cluster.take_whole(machine)
        else:
            self.cluster.take(machine, wants, tasks)
        granted = self._grant(machine, shape, tasks) if self.named else None
        return Part(machine, wants, tasks, before, number, whole, granted)

    def occupy(self, shares: Iterable[Share]) -> "list[Part]":
        """Take capacity where a booking says; take nothing if the cores and GPUs that tasks would get do not fit."""
        parts: list[Part] = []
        for share in shares:
            part = self._occupy(share.machine, share.number, share.tasks)
            parts.append(part)
            lacks = part.granted is not None and None in part.granted
            if lacks and part.machine.grants(self._parts[part.number].shape):
                return self.undo(parts)
        return parts

    def grant(self, parts: "Iterable[Part]") -> "list[Part]":
        """Choose the cores and GPUs of each task that was placed."""
        return [
            part
            if part.granted is not None
            else part._replace(granted=self._grant(part.machine, self._parts[part.number].shape, part.tasks))
            for part in parts
        ]

    def _grant(self, machine: Machine, shape: Shape, tasks: int) -> tuple[Granted | None, ...]:
        """Choose the cores and GPUs of some tasks on a machine, and take them."""
        if machine.inside is None:
            return (None,) * tasks
        return tuple([self.cluster.grant(machine, shape, shape.resources) for _ in range(tasks)])


class Part(NamedTuple):
    """Some tasks of a gang on one machine."""

    machine: Machine
    wants: Wants
    """The resources of one task."""
    tasks: int
    before: Before
    """What was free there before."""
    number: int = 0
    """Which part of the gang they are of, as a position in `Shape.parts`."""
    whole: bool = False
    """Whether the gang has the machine for itself."""
    granted: tuple[Granted | None, ...] | None = None
    """What each task was granted; None if that was not chosen yet."""

    def held_on(self, cluster: Capacity) -> HeldCapacity:
        """Return what these tasks hold together, with what each of them was granted."""
        if self.whole:
            return HeldCapacity(cluster, self.machine, self.machine.whole)
        held, memory = times(self.wants, self.tasks), dict(self.wants).get(MEMORY, 0)
        granted = [(each, memory) for each in self.granted or ()]
        return HeldCapacity(cluster, self.machine, self.machine.with_granted(held, granted))


def nodes_by_rank(shape: Shape, parts: Sequence[Part]) -> tuple[NodeName, ...]:
    """Return the node of each task of a gang that was placed."""
    return tuple([part.machine.name for part in by_rank(shape, parts) for _ in range(part.tasks)])


def by_rank(shape: Shape, parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts of a gang that was placed in the order of their ranks."""
    if len(shape.parts) == 1:
        return parts
    return sorted(parts, key=lambda part: shape.parts[part.number].first)


def _as_one(shape: Shape) -> Shape:
    """Return the shape of one task that asks for as much as a whole gang."""
    exclusive = shape.topology is not None and shape.topology.exclusive
    one = Topology(exclusive=exclusive)
    return replace(shape, resources=shape.total, tasks=1, rest=None, topology=one, groups=(), most=1)


def _without(fitting: Fitting, barred: Collection[int]) -> Fitting:
    """Return machines without those that are barred."""
    if not barred:
        return fitting
    return {machine: many for machine, many in fitting.items() if machine.index not in barred}
