"""Calls that are handed to a process ahead of their turn: they share one room and begin one after the other.

Waking a process for each of many short calls would cost more than the calls. But a call behind a long one waits while there may be
room elsewhere, so only as many are handed ahead as are over within a moment by what was seen of that function, and they are had back
when they are not.
"""

from typing import Final

from spillover.agent.values import Task
from spillover.core.events import Lease
from spillover.model.job import PythonCall
from spillover.model.resources import Resources
from spillover.model.units import SECOND

MOST: Final = 64
"""Calls of one slot."""
AHEAD: Final = SECOND // 50
"""Nanoseconds that calls of one slot may take together."""
PATIENCE: Final = SECOND // 20
"""Nanoseconds without an end after which calls behind the first are had back."""
NOTHING: Final = Resources()
MOST_KNOWN: Final = 1_000
"""Functions whose pace is remembered."""


class Slot:
    """One room, and the calls that share it."""

    __slots__ = ("leases", "moved", "need", "number", "open")

    def __init__(self, number: int, need: Resources, now: int) -> None:
        self.number = number
        self.need = need
        self.leases: dict[Lease, None] = {}
        """In the order in which they begin."""
        self.moved = now
        """When a call last ended, or the first was handed over."""
        self.open = True
        """Whether more calls may come; not after one took longer than it should."""


class Chains:
    """All slots of an agent."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._by_lease: dict[Lease, Slot] = {}
        self._pace: dict[str, int] = {}
        """Mean nanoseconds that calls of a function take."""
        self._numbers = 0

    def begin(self, lease: Lease, task: Task, now: int) -> int:
        """A task that has room of its own; the number of its slot, -1 if nothing can share its room."""
        if type(task.work) is not PythonCall:
            return -1
        self._numbers += 1
        slot = self._slots[self._numbers] = Slot(self._numbers, task.need, now)
        slot.leases[lease] = None
        self._by_lease[lease] = slot
        return slot.number

    def join(self, lease: Lease, task: Task) -> int | None:
        """Put a task behind others; the number of their slot, None if there is none for it."""
        work = task.work
        if type(work) is not PythonCall:
            return None
        pace = self._pace.get(work.function or work.call)
        if pace is None:
            return None
        best, fewest = None, min(MOST, AHEAD // (pace + 1) + 1)
        for slot in self._slots.values():
            if len(slot.leases) < fewest and slot.open and slot.need == task.need:
                best, fewest = slot, len(slot.leases)
        if best is None:
            return None
        best.leases[lease] = None
        self._by_lease[lease] = best
        return best.number

    def leave(self, lease: Lease, task: Task, now: int) -> Resources:
        """A task is over, or is had back; the room that is free by it."""
        slot = self._by_lease.pop(lease, None)
        if slot is None:
            return task.need
        del slot.leases[lease]
        slot.moved = now
        if slot.leases:
            return NOTHING
        del self._slots[slot.number]
        return slot.need

    def learn(self, task: Task, ran: int) -> None:
        """A call took this long."""
        work = task.work
        if type(work) is PythonCall:
            name = work.function or work.call
            before = self._pace.get(name)
            if before is None and len(self._pace) >= MOST_KNOWN:
                self._pace.clear()
            self._pace[name] = ran if before is None else (7 * before + ran) // 8

    def stuck(self, now: int) -> list[Lease]:
        """Tasks behind one that takes too long: they are better off elsewhere."""
        out: list[Lease] = []
        for slot in self._slots.values():
            if slot.open and len(slot.leases) > 1 and now - slot.moved >= PATIENCE:
                slot.open = False
                out += list(slot.leases)[1:]
        return out

    def wake(self) -> int | None:
        """When to look for stuck ones again; None if there can be none."""
        times = [slot.moved for slot in self._slots.values() if slot.open and len(slot.leases) > 1]
        return min(times) + PATIENCE if times else None
