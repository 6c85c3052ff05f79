"""Kills processes that tasks leave behind. The nursery becomes the parent of orphans, and ends them with their task."""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Final

from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.procfs import TICK, birth_of, environ_of
from spillover.agent.nursery.task import NurseryTask

LAST_WAIT: Final = 5.0
"""Seconds that a task may take to die after KILL before the nursery gives up on it."""
_PR_SET_CHILD_SUBREAPER: Final = 36


class Orphans:
    """Processes of tasks whose own parent is gone."""

    def __init__(self, libc: ctypes.CDLL, tasks: Mapping[int, NurseryTask]) -> None:
        self._tasks = tasks
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Orphans become children of the first thread, which creates none of its own. Reading this list costs a
        # microsecond.
        self._list = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        self._sweeping = threading.Lock()

    def any(self) -> bool:
        """Return whether there are orphans of any task."""
        return bool(os.pread(self._list, 64, 0))

    def end(self, task: NurseryTask, leader: int) -> bool:
        """Kill what a task left behind, in any group or session; return False if a process does not die."""
        mark = f"SPILL_LEASE={task.lease}".encode()
        until = time.monotonic() + LAST_WAIT
        # A dying process has no environment any more, so remember it until it is reaped. Its children become ours
        # before that.
        mine: set[int] = set()
        with self._sweeping:
            while True:
                fenced = self._fenced(task)
                adopted = self._adopted()
                mine.intersection_update(adopted)
                for pid in adopted:
                    if pid not in mine and (
                        pid in fenced
                        or _group_of(pid) == leader
                        or mark in environ_of(pid)
                        or (task.slot is None and self._belongs_to_none(pid, task))
                    ):
                        mine.add(pid)
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.kill(pid, signal.SIGKILL)
                if not mine and not fenced:
                    return True
                if time.monotonic() > until:
                    return False
                time.sleep(0.001)

    def _fenced(self, task: NurseryTask) -> set[int]:
        """Kill the processes in the task's control group, and return them."""
        slot = task.slot
        if slot is None or not (members := slot.members()):
            return set()
        with contextlib.suppress(OSError):
            slot.kill()
        return set(members)

    def _belongs_to_none(self, pid: int, task: NurseryTask) -> bool:
        """Return whether an orphan is older than every other running task, and so belongs to none of them."""
        birth = birth_of(pid)
        # The clock of process starts may stop during suspend and have another origin, so compare ages.
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - birth * TICK
        now = boottime()
        return bool(birth) and all(
            now - other.begun < age - TICK
            for other in list(self._tasks.values())
            if other is not task and other.begun
        )

    def _adopted(self) -> list[int]:
        """Return the live orphans of all tasks, and reap the dead ones."""
        listed = b""
        while part := os.pread(self._list, 1 << 16, len(listed)):
            listed += part
        alive = []
        for pid in map(int, listed.split()):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    alive.append(pid)
        return alive


def _group_of(pid: int) -> int:
    """Return the process group of a process; 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
