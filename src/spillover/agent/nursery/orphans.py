"""What tasks leave behind: processes whose parent is gone become ours, and are ended with the task that they belong to."""

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
"""Seconds that a task may take to die after KILL before we go without it."""
_PR_SET_CHILD_SUBREAPER: Final = 36


class Orphans:
    """Processes of tasks whose parent is this process since their own is gone."""

    def __init__(self, libc: ctypes.CDLL, tasks: Mapping[int, NurseryTask]) -> None:
        self._tasks = tasks
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Orphans become children of the first thread, which makes none of its own. Reading this list costs a microsecond.
        self._list = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        self._sweeping = threading.Lock()

    def any(self) -> bool:
        """Whether there are some, of any task."""
        return bool(os.pread(self._list, 64, 0))

    def end(self, task: NurseryTask, leader: int) -> bool:
        """Kill what a task left behind, wherever it fled, and see it gone; False if something will not die."""
        mark = f"SPILL_LEASE={task.lease}".encode()
        until = time.monotonic() + LAST_WAIT
        # What dies has no environment any more, so it is remembered until it is reaped. Its children come to us before that.
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
                        or (task.slot is None and self._forlorn(pid, task))
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
        """Processes in the task's group, each of which is told to die."""
        slot = task.slot
        if slot is None or not (members := slot.members()):
            return set()
        with contextlib.suppress(OSError):
            slot.kill()
        return set(members)

    def _forlorn(self, pid: int, task: NurseryTask) -> bool:
        """Whether an orphan that hides where it is from can be of no task that still runs: it is older than all of them."""
        birth = birth_of(pid)
        # The clock of births stops while the machine sleeps and may begin elsewhere, so the two are compared by age.
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - birth * TICK
        now = boottime()
        return bool(birth) and all(
            now - other.begun < age - TICK
            for other in list(self._tasks.values())
            if other is not task and other.begun
        )

    def _adopted(self) -> list[int]:
        """Orphans of all tasks that are still alive; the dead ones are reaped on the way."""
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
    """The process group of a process; 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
