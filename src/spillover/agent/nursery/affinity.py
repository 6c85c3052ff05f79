"""Keeps tasks on their CPUs: those that they have for themselves, or those that no task has for itself.

A child starts with the CPUs of the thread that creates it. So a thread of the nursery changes its own CPUs before it
starts a task that has others. Where control groups have cpusets, those are used instead, because no process can leave
its cpuset, and a change reaches all of its processes at once.
"""

import contextlib
import os

from spillover.agent.nursery.cgroups import Slot
from spillover.agent.nursery.procfs import descendants
from spillover.agent.nursery.task import NurseryTask


class Affinity:
    """The CPUs of all tasks of a nursery."""

    def __init__(self) -> None:
        self._all = os.sched_getaffinity(0)
        self.shared = ""
        """CPUs of tasks that have none for themselves, as a list such as `0-7,16`; empty is all."""

    def enter(self, cpus: str, before: str, slot: Slot | None, memory_of: str = "") -> str:
        """Let the next child of this thread start on some CPUs, and with memory of some NUMA nodes where cpusets have that.

        Return what to pass as `before` the next time.
        """
        if slot is not None and slot.pin(cpus, memory_of):
            return before
        if cpus != before:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self._usable(cpus))
        return cpus

    def share(self, cpus: str, tasks: list[NurseryTask]) -> None:
        """Move running tasks that have no CPUs for themselves to others."""
        self.shared = cpus
        apart = [task for task in tasks if task.pid and not (task.slot is not None and task.slot.pin(cpus))]
        if not apart:
            return
        usable = self._usable(cpus)
        for members in descendants({task.pid: task.key for task in apart}).values():
            for pid, _ in members:
                self._move(pid, usable)

    def _usable(self, cpus: str) -> set[int]:
        """Return those CPUs of a list that this process may use; all if there is none."""
        return (numbers(cpus) & self._all) or self._all

    @staticmethod
    def _move(pid: int, cpus: set[int]) -> None:
        """Move all threads of a process, if it is still there."""
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread), cpus)


def numbers(cpus: str) -> set[int]:
    """Return the numbers of CPUs in a list such as `0-7,16`."""
    found: set[int] = set()
    for part in cpus.split(",") if cpus else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
