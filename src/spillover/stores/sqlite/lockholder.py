"""Identifies the process that holds the lock of the lead, and kills one that stopped with the database locked.

A process that is stopped in the middle of a commit keeps the lock of the database, which no other process can release.
After its term it no longer leads, and its end loses nothing that it acknowledged. So a successor may kill it, if it is
certainly that process, and certainly stopped.
"""

import logging
import os
import select
import signal
from pathlib import Path
from typing import Final

from msgspec import Struct

from spillover.ports.clock import boot_id

log = logging.getLogger(__name__)

STOPPED: Final = b"T"
"""State of a process that a signal stopped. A process stopped by a debugger has another, and is left alone."""
PATIENCE_MS: Final = 5_000
"""Milliseconds to wait for a killed process to disappear."""
MOST: Final = 200
"""Most bytes to read of a lock file."""


class LockHolder(Struct, frozen=True):
    """A process, distinguished from all others with the same pid."""

    pid: int
    birth: int
    """When it started, in clock ticks since its machine started."""
    boot: str
    """Boot id of the machine."""


def sign(handle: int) -> None:
    """Write into a lock file that this process holds the lock."""
    _, birth = _state_of(os.getpid()) or (b"", 0)
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()} {birth} {boot_id()}\n".encode(), 0)


def holder_of(path: Path) -> LockHolder | None:
    """Return the process that last signed a lock file; None if there is none, as in older releases."""
    try:
        with path.open("rb") as file:
            pid, birth, boot = file.read(MOST).decode("ascii").split()
        return LockHolder(int(pid), int(birth), boot)
    except (OSError, ValueError):
        return None


def end_if_stopped(path: Path) -> bool:
    """Kill the holder of a lock if it is certainly stopped; return whether it is gone. Its term must be over."""
    holder = holder_of(path)
    if holder is None or holder.boot != boot_id():
        return False
    try:
        process = os.pidfd_open(holder.pid)  # from here on its pid cannot be reused
    except OSError:
        return False
    try:
        if _state_of(holder.pid) != (STOPPED, holder.birth) or not _has_open(holder.pid, path):
            return False
        log.warning(
            "killing process %d, a server that stopped while writing; its term is over, and it blocks other writers",
            holder.pid,
        )
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return bool(select.select([process], [], [], PATIENCE_MS / 1000)[0])
    except OSError as error:
        log.warning("cannot kill process %d: %s", holder.pid, error.strerror)
        return False
    finally:
        os.close(process)


def _state_of(pid: int) -> tuple[bytes, int] | None:
    """Return the state and the start time of a process; None if there is none."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return words[0], int(words[19])
    except (OSError, IndexError):
        return None


def _has_open(pid: int, path: Path) -> bool:
    """Return whether a process has a file open."""
    try:
        wanted = path.stat()
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - only names are needed
            try:
                found = os.stat(f"/proc/{pid}/fd/{number}")  # noqa: PTH116 - likewise
            except OSError:
                continue
            if os.path.samestat(found, wanted):
                return True
    except OSError:
        return False
    return False
