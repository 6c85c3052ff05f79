"""Kills what is left of tasks whose nursery is gone, after a restart of the agent or the death of a nursery."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from spillover.agent.nursery.procfs import all_processes, birth_of, environ_of
from spillover.agent.tasks.isolation import remove_groups

NURSERY_LOCK: Final = "nursery.lock"
PATIENCE: Final = 10.0
"""Seconds that an earlier nursery has to stop its tasks before it is killed, and that killed processes have to
disappear.
"""


def kill_leftovers(folder: Path, started: Iterable[tuple[int, int]]) -> int:
    """Kill what is left of the previous agent in this folder; return how many were killed, or raise OSError."""
    _await_nursery(folder)
    killed = remove_groups(folder) + _kill_groups(started)
    mark = f"SPILL_AGENT={folder}".encode()
    return killed + _kill_all(lambda variables: mark in variables, f"an earlier agent in {folder}")


def end_tasks(folder: Path, leases: Iterable[str], started: Iterable[tuple[int, int]]) -> int:
    """Kill what is left of some tasks of the agent in this folder; return how many were killed, or raise OSError."""
    killed = _kill_groups(started)
    agent, marks = f"SPILL_AGENT={folder}".encode(), {f"SPILL_LEASE={lease}".encode() for lease in leases}

    def theirs(variables: list[bytes]) -> bool:
        return agent in variables and not marks.isdisjoint(variables)

    return killed + _kill_all(theirs, "a nursery that died")


def _kill_groups(leaders: Iterable[tuple[int, int]]) -> int:
    """Kill process groups by their leaders; return how many were killed."""
    killed = 0
    for pid, birth in leaders:
        # A process with another start time only reuses the pid.
        if birth and birth_of(pid) == birth:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    return killed


def _kill_all(theirs: Callable[[list[bytes]], bool], whose: str) -> int:
    """Kill all processes with matching environments until none are left; return how many were killed."""
    killed, until = 0, time.monotonic() + PATIENCE
    while left := [pid for pid in all_processes() if pid != os.getpid() and theirs(environ_of(pid))]:
        if time.monotonic() > until:
            raise OSError(f"processes {left} of {whose} cannot be killed")
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.01)
    return killed


def _await_nursery(folder: Path) -> None:
    """Wait until earlier nurseries are gone. They kill their tasks themselves when their agent dies."""
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
                    if birth_of(pid) == birth:  # still the process that wrote this line
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
    finally:
        os.close(lock)
