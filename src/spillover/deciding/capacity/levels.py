"""The levels of a cluster above its machines: a forest of vertices, each with what is free below it.

A search goes down from the highest level. Where a vertex has less free than a job asks for, nothing below it can hold
the job, so the search skips that part. A flat cluster has no vertices and pays nothing.
"""

from collections.abc import Iterator, Mapping, Sequence

from spillover.deciding.capacity.amounts import Layout, Vector, Wants, fits
from spillover.deciding.capacity.machine import FreeAmounts, Machine
from spillover.model.resources import Resources
from spillover.model.topology import Level


class Vertex(FreeAmounts):
    """One zone, rack or the like. Place policies see it as a machine that has all that is below it."""

    __slots__ = ("below", "changes", "depth", "free", "key", "labels", "layout", "machines", "name", "total")

    def __init__(self, key: tuple[str, ...], layout: Layout) -> None:
        self.key = key
        """The values of its labels from the top down; empty where a label is missing."""
        self.name = "/".join(value for value in key if value)
        self.depth = len(key) - 1
        """The position of its level; 0 is the highest."""
        self.layout = layout
        self.free: Vector = [0] * layout.size
        """What is free on all of its machines together. Closed and overcommitted machines count as 0."""
        self.total = Resources()
        """The whole capacity of its machines."""
        self.labels: Mapping[str, str] = {}
        self.machines: dict[Machine, None] = {}
        """All machines below it."""
        self.below: dict[Vertex, None] = {}
        """The vertices right below it."""
        self.changes = 0
        """Rises whenever something below it changes, so that others can keep what they counted."""


class Levels:
    """All vertices of one cluster."""

    def __init__(self, levels: Sequence[Level], layout: Layout) -> None:
        self._labels = tuple(level.label for level in levels)
        self._layout = layout
        self.depths: dict[str, int] = {level.name: depth for depth, level in enumerate(levels)}
        self._roots: dict[Vertex, None] = {}
        self._known: dict[tuple[str, ...], Vertex] = {}
        """All vertices, by key."""

    def put(self, machine: Machine) -> None:
        """Add a machine where its labels say that it is."""
        vertices: list[Vertex | None] = []
        values = [machine.labels.get(label, "") for label in self._labels]
        above: Vertex | None = None
        for depth, value in enumerate(values):
            if not value:
                vertices.append(None)
                continue
            key = tuple(values[: depth + 1])
            vertex = self._known.get(key)
            if vertex is None:
                vertex = self._known[key] = Vertex(key, self._layout)
                (self._roots if above is None else above.below)[vertex] = None
            vertices.append(vertex)
            above = vertex
            vertex.machines[machine] = None
            vertex.total = vertex.total + machine.total
            shift(vertex.free, machine.free, 1)
            vertex.changes += 1
        machine.vertices = tuple(vertices)

    def drop(self, machine: Machine) -> None:
        """Remove a machine, and the vertices that it leaves empty. Its capacity must be what it was when it was put."""
        above: Vertex | None = None
        for vertex in machine.vertices:
            if vertex is None:
                continue
            del vertex.machines[machine]
            vertex.total = vertex.total - machine.total
            shift(vertex.free, machine.free, -1)
            vertex.changes += 1
            if not vertex.machines:
                del self._known[vertex.key]
                del (self._roots if above is None else above.below)[vertex]
            above = vertex
        machine.vertices = ()

    def count_again(self) -> None:
        """Let others forget what they counted, because machines admit other jobs now."""
        for vertex in self._known.values():
            vertex.changes += 1

    def widen(self) -> None:
        """Add positions for new named resources."""
        for vertex in self._known.values():
            vertex.free += [0] * (self._layout.size - len(vertex.free))
            vertex.changes += 1

    def at(self, level: str) -> list[Vertex]:
        """Return all vertices of a level, by name."""
        depth = self.depths.get(level)
        return sorted([each for each in self._known.values() if each.depth == depth], key=lambda one: one.key)

    def holding(self, level: str, asked: Wants) -> Iterator[Vertex]:
        """Yield the vertices of a level that may hold so much, from the top down."""
        depth, todo = self.depths.get(level, -1), list(self._roots)
        while todo:
            vertex = todo.pop()
            if vertex.depth > depth or not fits(asked, vertex.free):
                continue
            if vertex.depth == depth:
                yield vertex
            else:
                todo += vertex.below


def shift(together: Vector, free: Sequence[int], sign: int) -> None:
    """Add what is free on a machine to a sum, or take it away. Negative amounts count as 0."""
    for position, amount in enumerate(free):
        if amount > 0:
            together[position] += sign * amount
