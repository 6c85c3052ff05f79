"""Machines of one cluster that are in the same state, so that one answer counts for all of them.

A large cluster has thousands of machines in few states: those that are empty, those with one free slot, and so on. A
shape that is new to the cluster reads each state once, and not each machine.

Free memory is no part of a state, because hardly two machines in use have the same. Who reads states checks it on each
machine that it looks at.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from spillover.deciding.capacity.amounts import CPU, GPU, Vector
from spillover.deciding.protocols import Place
from spillover.model.units import FOREVER

if TYPE_CHECKING:
    from spillover.deciding.capacity.cluster import Capacity
    from spillover.deciding.capacity.machine import Machine

FEW: Final = 128
"""Up to this many machines of a cluster, a new shape reads each of them."""
State: TypeAlias = tuple[int, ...]
"""The kind of a machine, whether only tasks of others may run there, and what is free by position, without memory."""


class States:
    """The machines of one cluster by state. It reads changes only when somebody asks, and each of them once."""

    __slots__ = ("_cluster", "_of", "_read", "indexes")

    def __init__(self, cluster: "Capacity") -> None:
        self._cluster = cluster
        self._of: list[State] = []
        """The state of each machine, by index, as of the last look."""
        self._read = -1
        """How many changes of the cluster were read; -1 before the first look."""
        self.indexes: dict[State, list[int]] = {}
        """The indexes of the machines in each state, in order; as of the last look, and changed in place by the next."""

    def now(self) -> Mapping[State, list[int]]:
        """Return the indexes of the machines in each state, in order."""
        cluster = self._cluster
        end = cluster.forgotten + len(cluster.changes)
        if self._read < cluster.forgotten or end - self._read > len(cluster.slots):
            self._build()
        elif self._read < end:
            self._follow(dict.fromkeys(cluster.changes[self._read - cluster.forgotten :]))
        self._read = end
        return self.indexes

    def _build(self) -> None:
        """Read all machines."""
        self._of = list(map(_state_of, self._cluster.slots))
        indexes: dict[State, list[int]] = {}
        for index, state in enumerate(self._of):
            indexes.setdefault(state, []).append(index)
        self.indexes = indexes

    def _follow(self, changed: Iterable[int]) -> None:
        """Read machines that changed."""
        slots, indexes, known = self._cluster.slots, self.indexes, self._of
        for index in changed:
            state = _state_of(slots[index])
            if index == len(known):  # it joined
                known.append(())
            before = known[index]
            if state == before:
                continue
            if before:
                left = indexes[before]
                del left[bisect_left(left, index)]
                if not left:
                    del indexes[before]
            known[index] = state
            insort(indexes.setdefault(state, []), index)

    def copy(self, cluster: "Capacity") -> "States":
        """Return an independent copy for a copy of the cluster, which has no changes yet."""
        own = States(cluster)
        if self._read >= 0:
            own.indexes = {state: indexes.copy() for state, indexes in self.now().items()}
            own._of, own._read = self._of.copy(), 0
        return own


def _state_of(machine: "Machine") -> State:
    """Return the state of a machine. With tasks of others, what is free does not tell whether it has tasks of ours."""
    free = machine.free
    without_ours = machine.foreign is not None and machine.is_empty(free)
    if machine.memories:
        free = with_any_memory(machine, free)
    return (machine.kind, without_ours, free[CPU], *free[GPU:])


def with_any_memory(machine: "Machine", free: Sequence[int]) -> Vector:
    """Return what would be free with any amount of memory: what does not fit there fits on no machine of that state."""
    found = [free[CPU], FOREVER, *free[GPU:]]
    for position in machine.memories:
        found[position] = FOREVER
    return found


def scores_states(place: Place) -> bool:
    """Return whether a place policy gives machines in the same state the same score."""
    return getattr(place, "by_state", False)
