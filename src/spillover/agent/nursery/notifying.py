"""Sends a signal to the processes of a task that handle it.

The signal before a walltime tells a program to save its work. A shell that waits for such a program, or a program that
knows nothing of the signal, would die of it, so they do not get it.
"""

import contextlib
import os

from spillover.agent.nursery.procfs import descendants


def notify(leader: int, number: int) -> None:
    """Send a signal to the processes below a leader, and to itself, as far as they handle it."""
    if leader:
        for pid, _ in descendants({leader: leader}).get(leader, ()):
            if handles(pid, number):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)


def handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            caught = next(line for line in status if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
