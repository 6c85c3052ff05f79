"""Ends what is left of tasks whose nursery is gone: of an earlier run of the agent, or of one nursery that died."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from spillover.agent.isolation import remove_groups
from spillover.agent.nursery.procfs import all_processes, birth_of, environ_of

NURSERY_LOCK: Final = "nursery.lock"
PATIENCE: Final = 10.0
"""Seconds that the nursery of an earlier run has to stop its tasks before it is killed, and that killed processes have to be gone."""


def end_earlier_life(folder: Path, started: Iterable[tuple[int, int]]) -> int:
    """Kill what is left of the agent that used this folder before; the number of processes that were. Raises OSError."""
    _await_nursery(folder)
    killed = remove_groups(folder) + _kill_groups(started)
    mark = f"SPILL_AGENT={folder}".encode()
    return killed + _kill_all(lambda variables: mark in variables, f"an earlier agent in {folder}")


def end_tasks(folder: Path, leases: Iterable[str], started: Iterable[tuple[int, int]]) -> int:
    """Kill what is left of some tasks of the agent in this folder, and see it gone; the number of processes that were. Raises OSError."""
    killed = _kill_groups(started)
    agent, marks = f"SPILL_AGENT={folder}".encode(), {f"SPILL_LEASE={lease}".encode() for lease in leases}

    def theirs(variables: list[bytes]) -> bool:
        return agent in variables and not marks.isdisjoint(variables)

    return killed + _kill_all(theirs, "a nursery that died")


def _kill_groups(leaders: Iterable[tuple[int, int]]) -> int:
    """Kill the groups of processes by their leaders; the number of groups that were."""
    killed = 0
    for pid, birth in leaders:
        # A process of another birth has only inherited the number.
        if birth and birth_of(pid) == birth:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    return killed


def _kill_all(theirs: Callable[[list[bytes]], bool], whose: str) -> int:
    """Kill all processes with such variables until there are none; the number of those that were."""
    killed, until = 0, time.monotonic() + PATIENCE
    while left := [pid for pid in all_processes() if pid != os.getpid() and theirs(environ_of(pid))]:
        if time.monotonic() > until:
            raise OSError(f"processes {left} of {whose} will not die")
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.01)
    return killed


def _await_nursery(folder: Path) -> None:
    """Wait until earlier nurseries are gone; they kill their tasks by themselves when their agent dies."""
    lock = os.open(folder / NURSERY_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                return
            if time.monotonic() > until:
                for line in os.pread(lock, 4096, 0).splitlines():
                    pid, birth = map(int, line.split())
                    if birth_of(pid) == birth:  # the very process that wrote this
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
    finally:
        os.close(lock)
