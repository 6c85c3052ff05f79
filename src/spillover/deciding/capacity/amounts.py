"""Amounts as vectors, with a position for each resource: CPUs, memory, GPUs, tasks and named resources are counted alike.

A machine that takes so many tasks at a time has that many of the resource "tasks", and every task asks for one of it.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from spillover.model.resources import Resources
from spillover.model.units import FOREVER

CPU: Final = 0
"""Thousandths. Below 0 nothing may start on a machine, not even a task that asks for no CPU."""
MEMORY: Final = 1
"""Bytes."""
GPU: Final = 2
TASKS: Final = 3
NAMED: Final = 4
"""The first position of resources that have names."""
CLOSED: Final = -1
"""CPU of a machine on which nothing may start now: it is not ready, others use more than it has, or leases ahead of room come first."""
ANY: Final = FOREVER
"""How many tasks a machine takes that takes any number."""

Vector: TypeAlias = list[int]
Wants: TypeAlias = tuple[tuple[int, int], ...]
"""Positions and amounts of what is asked for, CPU always among them: it tells whether anything may start."""
NOWHERE: Final[Wants] = ()
"""Of what asks for a resource that no machine has."""
MOST_KNOWN: Final = 10_000
"""Resources of which a layout remembers what they want."""


class Layout:
    """Which position each named resource has in the vectors of one cluster. It only grows."""

    __slots__ = ("_counts_tasks", "_known", "_positions")

    def __init__(self, *, counts_tasks: bool) -> None:
        self._counts_tasks = counts_tasks
        """Whether machines of the cluster may take only so many tasks; if not, nobody need count them."""
        self._positions: dict[str, int] = {}
        self._known: dict[Resources, Wants] = {}

    def copy(self) -> "Layout":
        """The same, of its own."""
        own = Layout(counts_tasks=self._counts_tasks)
        own._positions = self._positions.copy()
        return own

    def __len__(self) -> int:
        return NAMED + len(self._positions)

    def add(self, resources: Resources) -> bool:
        """Know the named resources of a machine; True if there are new ones."""
        before = len(self._positions)
        for name, _ in resources.other:
            self._positions.setdefault(name, NAMED + len(self._positions))
        grew = len(self._positions) > before
        if grew:
            self._known.clear()
        return grew

    def position(self, name: str) -> int | None:
        """Of a named resource; None if no machine has it."""
        return self._positions.get(name)

    def wants(self, asked: Resources) -> Wants:
        """What one task asks for; NOWHERE if no machine has a resource that it names."""
        wants = self._known.get(asked)
        if wants is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            unknown = any(name not in self._positions for name, _ in asked.other)
            wants = self._known[asked] = NOWHERE if unknown else self.held(asked, 1)
        return wants

    def held(self, resources: Resources, tasks: int) -> Wants:
        """What so many tasks hold together, as far as machines have it."""
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
        """The amounts of named resources, by their positions."""
        amounts = [0] * len(self._positions)
        for name, amount in resources.other:
            if (position := self._positions.get(name)) is not None:
                amounts[position - NAMED] = amount
        return amounts


def fits(wants: Wants, free: Sequence[int]) -> bool:
    """Whether this much is free."""
    for position, amount in wants:
        if free[position] < amount:
            return False
    return bool(wants)


def count(wants: Wants, free: Sequence[int]) -> int:
    """How many times this much is free."""
    least = ANY if wants else 0
    for position, amount in wants:
        have = free[position]
        if have < amount:
            return 0
        if amount and have < least * amount:
            least = have // amount
    return least


def change(free: Vector, wants: Wants, times: int) -> None:
    """Let this much more be free, or less if `times` is below 0."""
    for position, amount in wants:
        free[position] += amount * times


def times(wants: Wants, tasks: int) -> Wants:
    """What so many tasks ask for together."""
    return wants if tasks == 1 else tuple([(position, amount * tasks) for position, amount in wants])
