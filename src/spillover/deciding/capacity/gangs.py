"""Finds machines of one cluster for all tasks of a gang, or for none.

It fills machines one after the other, best first. The smaller last task comes last.
"""

from collections.abc import Collection
from typing import NamedTuple

from spillover.deciding.capacity.amounts import Wants, count, times
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import HeldCapacity
from spillover.deciding.capacity.machine import Before, Machine
from spillover.deciding.protocols import Place
from spillover.model.job import Shape


class GangCandidates:
    """Finds places for gangs of one shape in one cluster."""

    __slots__ = ("_last", "_others", "cluster", "shape", "total")

    def __init__(self, cluster: Capacity, shape: Shape) -> None:
        self.cluster = cluster
        self.shape = shape
        self.total = shape.total
        self._others = Candidates(cluster, shape)
        self._last = None if shape.rest is None else Candidates(cluster, shape.least)

    def take(self, place: Place, barred: Collection[int] = ()) -> "list[Part]":
        """Take capacity for every task, but not on barred machines; if they do not all fit, take and return nothing."""
        cluster = self.cluster
        if not cluster.may_hold(self.total):
            return []
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


class Part(NamedTuple):
    """Some tasks of a gang on one machine."""

    machine: Machine
    wants: Wants
    """The resources of one task."""
    tasks: int
    before: Before
    """What was free there before."""

    def held_on(self, cluster: Capacity) -> HeldCapacity:
        """Return what these tasks hold together."""
        return HeldCapacity(cluster, self.machine, times(self.wants, self.tasks))
