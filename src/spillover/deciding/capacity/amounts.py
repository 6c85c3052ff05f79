"""Amounts as vectors with one position for each resource, so that all resources are counted alike.

CPUs, memory, GPUs, tasks and named resources have positions. A machine with a limit on tasks has that many of the
resource "tasks", and every task asks for one.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from spillover.model.resources import Resources
from spillover.model.units import FOREVER

CPU: Final = 0
"""Thousandths. Below 0, nothing may start on the machine, not even a task that asks for no CPU."""
MEMORY: Final = 1
"""Bytes."""
GPU: Final = 2
TASKS: Final = 3
NAMED: Final = 4
"""The first position of named resources."""
CLOSED: Final = -1
"""CPU of a machine on which nothing may start: not ready, overcommitted, or with prefetched leases that come first."""
ANY: Final = FOREVER
"""Tasks of a machine without a limit on tasks."""

Vector: TypeAlias = list[int]
Wants: TypeAlias = tuple[tuple[int, int], ...]
"""Positions and amounts of a request. CPU is always among them, because it also tells whether anything may start."""
NOWHERE: Final[Wants] = ()
"""The request for a resource that no machine has."""
MOST_KNOWN: Final = 10_000
"""Requests that a layout caches."""


class Layout:
    """The position of each named resource in the vectors of one cluster. It only grows."""

    __slots__ = ("_counts_tasks", "_known", "_positions", "localities", "size")

    def __init__(self, *, counts_tasks: bool) -> None:
        self._counts_tasks = counts_tasks
        """Whether machines of the cluster can have a limit on tasks; if not, tasks are not counted."""
        self._positions: dict[str, int] = {}
        self._known: dict[Resources, Wants] = {}
        self.localities: tuple[int, ...] = ()
        """Positions of the localities inside of machines, see `inside`. Each machine says what its localities are."""
        self.size = NAMED
        """The number of positions."""

    def copy(self) -> "Layout":
        """Return an independent copy."""
        own = Layout(counts_tasks=self._counts_tasks)
        own._positions, own.size = self._positions.copy(), self.size
        own.localities = self.localities
        return own

    def add(self, resources: Resources) -> bool:
        """Add the named resources of a machine; return whether any are new."""
        before = self.size
        for name, _ in resources.other:
            if name not in self._positions:
                self._positions[name] = self.size
                self.size += 1
        if self.size == before:
            return False
        self._known.clear()
        return True

    def add_localities(self, count: int) -> bool:
        """Add positions until there are so many localities; return whether any are new."""
        new = range(self.size, self.size + max(0, count - len(self.localities)))
        self.localities += tuple(new)
        self.size += len(new)
        return bool(new)

    def position(self, name: str) -> int | None:
        """Return the position of a named resource; None if no machine has it."""
        return self._positions.get(name)

    def wants(self, asked: Resources) -> Wants:
        """Return the request of one task; NOWHERE if it names a resource that no machine has."""
        wants = self._known.get(asked)
        if wants is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            unknown = any(name not in self._positions for name, _ in asked.other)
            wants = self._known[asked] = NOWHERE if unknown else self.held(asked, 1)
        return wants

    def held(self, resources: Resources, tasks: int) -> Wants:
        """Return what a number of tasks hold together; unknown named resources are left out."""
        wants = [(CPU, resources.cpu)]
        if resources.gpu:
            wants.append((GPU, resources.gpu))
        if resources.memory:
            wants.append((MEMORY, resources.memory))
        if self._counts_tasks:
            wants.append((TASKS, tasks))
        for name, amount in resources.other:
            if (position := self._positions.get(name)) is not None:
                wants.append((position, amount))
        return tuple(wants)

    def named(self, resources: Resources) -> Vector:
        """Return the amounts of named resources by position."""
        amounts = [0] * (self.size - NAMED)
        for name, amount in resources.other:
            if (position := self._positions.get(name)) is not None:
                amounts[position - NAMED] = amount
        return amounts


def fits(wants: Wants, free: Sequence[int]) -> bool:
    """Return whether a request fits."""
    for position, amount in wants:
        if free[position] < amount:
            return False
    return bool(wants)


def count(wants: Wants, free: Sequence[int]) -> int:
    """Return how many times a request fits."""
    least = ANY if wants else 0
    for position, amount in wants:
        have = free[position]
        if have < amount:
            return 0
        if amount and have < least * amount:
            least = have // amount
    return least


def change(free: Vector, wants: Wants, times: int) -> None:
    """Add a request `times` times to what is free; a negative number takes it."""
    for position, amount in wants:
        free[position] += amount * times


def times(wants: Wants, tasks: int) -> Wants:
    """Return the request of several tasks together."""
    return wants if tasks == 1 else tuple([(position, amount * tasks) for position, amount in wants])
