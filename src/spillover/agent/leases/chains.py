"""Queues short tasks behind others in one slot, where they share capacity and run one after the other.

Waking a runner for each of many short tasks would cost more than the tasks. But a task behind a long one waits even if
another machine is free. So a slot takes only as many tasks as should end within a moment, by the pace of earlier tasks
of the same work, and the agent recalls them when they do not.
"""

from collections.abc import Hashable
from typing import Final

from spillover.agent.leases.values import Task
from spillover.core.events import Lease
from spillover.model.job import Argv, PythonCall, Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND

MOST: Final = 64
"""Most tasks of one slot."""
AHEAD: Final = SECOND // 50
"""Nanoseconds that the tasks of one slot may take together."""
PATIENCE: Final = SECOND // 20
"""Nanoseconds without an end after which the agent recalls the tasks behind the first."""
NOTHING: Final = Resources()
MOST_KNOWN: Final = 1_000
"""Most kinds of work whose pace is remembered."""


class ChainSlot:
    """Capacity for one task, and the tasks that share it."""

    __slots__ = ("leases", "moved", "need", "number", "open")

    def __init__(self, number: int, need: Resources, now: int) -> None:
        self.number = number
        self.need = need
        self.leases: dict[Lease, None] = {}
        """In the order in which they run."""
        self.moved = now
        """When a task last ended, or the first was added."""
        self.open = True
        """Whether more tasks may join; False after one took too long."""


class Chains:
    """All slots of an agent."""

    def __init__(self) -> None:
        self._slots: dict[int, ChainSlot] = {}
        self._by_lease: dict[Lease, ChainSlot] = {}
        self._pace: dict[Hashable, int] = {}
        """Mean nanoseconds that tasks of each kind of work take."""
        self._numbers = 0

    def begin(self, lease: Lease, task: Task, now: int) -> int:
        """Open a slot for a task with capacity of its own; return its number, or -1 if no other task can share it."""
        work = _work_of(task)
        # It starts with its gang, and no other task waits for that; or it has cores or GPUs that no other gets.
        gang = task.tasks > 0 or task.is_granted
        # No task joins a command before its pace is known. A Python call always gets a slot, because its worker is
        # found by the slot.
        if work is None or (
            type(task.work) is not PythonCall and (gang or self._pace.get(work, AHEAD) >= AHEAD)
        ):
            return -1
        self._numbers += 1
        slot = self._slots[self._numbers] = ChainSlot(self._numbers, task.need, now)
        slot.open = not gang
        slot.leases[lease] = None
        self._by_lease[lease] = slot
        return slot.number

    def join(self, lease: Lease, task: Task) -> int | None:
        """Put a task behind others; return the number of their slot, or None if no slot takes it."""
        work = _work_of(task)
        if task.tasks or task.is_granted or work is None or (pace := self._pace.get(work)) is None:
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
        """Remove a task that ended or was recalled; return the capacity that this frees."""
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
        """Update the pace of this kind of work."""
        work = _work_of(task)
        if work is not None:
            before = self._pace.get(work)
            if before is None and len(self._pace) >= MOST_KNOWN:
                self._pace.clear()
            self._pace[work] = ran if before is None else (7 * before + ran) // 8

    def stuck(self, now: int) -> list[Lease]:
        """Close the slots whose first task takes too long, and return the tasks behind it."""
        out: list[Lease] = []
        for slot in self._slots.values():
            if slot.open and len(slot.leases) > 1 and now - slot.moved >= PATIENCE:
                slot.open = False
                out += list(slot.leases)[1:]
        return out

    def wake(self) -> int | None:
        """Return when to look for stuck tasks again; None if there can be none."""
        times = [slot.moved for slot in self._slots.values() if slot.open and len(slot.leases) > 1]
        return min(times) + PATIENCE if times else None


def _work_of(task: Task) -> Hashable | None:
    """Return the key under which the pace of a task is known; None if it cannot share a slot."""
    work = task.work
    kind = type(work)
    if kind is PythonCall:
        return work.function or work.call  # type: ignore[union-attr] # its type was checked
    if (kind is Argv or kind is Shell) and not task.has_files and not task.terminal:
        return hash((work, task.workdir))  # a hash, because a thousand commands may be long
    return None
