"""Tasks that are handed on ahead of their turn: they share one room and begin one after the other.

Waking those who run tasks for each of many short ones would cost more than the tasks. But one behind a long one waits while there may
be room elsewhere, so only as many are handed ahead as are over within a moment by what was seen of the same work, and they are had
back when they are not.
"""

from collections.abc import Hashable
from typing import Final

from spillover.agent.values import Task
from spillover.core.events import Lease
from spillover.model.job import Argv, PythonCall, Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND

MOST: Final = 64
"""Tasks of one slot."""
AHEAD: Final = SECOND // 50
"""Nanoseconds that tasks of one slot may take together."""
PATIENCE: Final = SECOND // 20
"""Nanoseconds without an end after which those behind the first are had back."""
NOTHING: Final = Resources()
MOST_KNOWN: Final = 1_000
"""Kinds of work whose pace is remembered."""


class ChainSlot:
    """One room, and the tasks that share it."""

    __slots__ = ("leases", "moved", "need", "number", "open")

    def __init__(self, number: int, need: Resources, now: int) -> None:
        self.number = number
        self.need = need
        self.leases: dict[Lease, None] = {}
        """In the order in which they begin."""
        self.moved = now
        """When a task last ended, or the first was handed over."""
        self.open = True
        """Whether more may come; not after one took longer than it should."""


class Chains:
    """All slots of an agent."""

    def __init__(self) -> None:
        self._slots: dict[int, ChainSlot] = {}
        self._by_lease: dict[Lease, ChainSlot] = {}
        self._pace: dict[Hashable, int] = {}
        """Mean nanoseconds that tasks of the same work take."""
        self._numbers = 0

    def begin(self, lease: Lease, task: Task, now: int) -> int:
        """A task that has room of its own; the number of its slot, -1 if nothing can share its room."""
        work = _work_of(task)
        # Nothing is put behind a command before its pace is known; a call has a slot all the same, by which its worker is found.
        if work is None or (type(task.work) is not PythonCall and self._pace.get(work, AHEAD) >= AHEAD):
            return -1
        self._numbers += 1
        slot = self._slots[self._numbers] = ChainSlot(self._numbers, task.need, now)
        slot.leases[lease] = None
        self._by_lease[lease] = slot
        return slot.number

    def join(self, lease: Lease, task: Task) -> int | None:
        """Put a task behind others; the number of their slot, None if there is none for it."""
        work = _work_of(task)
        if work is None or (pace := self._pace.get(work)) is None:
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
        """A task took this long."""
        work = _work_of(task)
        if work is not None:
            before = self._pace.get(work)
            if before is None and len(self._pace) >= MOST_KNOWN:
                self._pace.clear()
            self._pace[work] = ran if before is None else (7 * before + ran) // 8

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


def _work_of(task: Task) -> Hashable | None:
    """What tells the pace of a task; None if it cannot share its room."""
    work = task.work
    kind = type(work)
    if kind is PythonCall:
        return work.function or work.call  # type: ignore[union-attr] # by its type
    if (kind is Argv or kind is Shell) and not task.inputs and not task.outputs:
        return hash((work, task.workdir))  # a number, as a thousand commands may be long
    return None
