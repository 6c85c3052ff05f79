"""Which process has the lock of the lead, and the end of one that was stopped with the database locked.

A process that is stopped in the very middle of a commit keeps the database's own lock, which nobody can take from it. Once its
term is over it does not lead any more, and nothing of what it acknowledged is lost if it ends: so a successor may end it, if it is
surely that process, and surely stopped.
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
"""The state of a process that a signal stopped; one that a debugger stopped is somebody's who looks at it."""
PATIENCE_MS: Final = 5_000
"""How long to wait for a process that was killed to be gone."""
MOST: Final = 200
"""Bytes of what the file of a lock says."""


class LockHolder(Struct, frozen=True):
    """A process, told from all others of its number."""

    pid: int
    birth: int
    """When it was made, in clock ticks since its machine started."""
    boot: str
    """What that start of the machine is known by."""


def sign(handle: int) -> None:
    """Write into the file of a lock that this process has it."""
    _, birth = _state_of(os.getpid()) or (b"", 0)
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()} {birth} {boot_id()}\n".encode(), 0)


def holder_of(path: Path) -> LockHolder | None:
    """Who signed the file of a lock last; None if nobody did, as before there were signatures."""
    try:
        with path.open("rb") as file:
            pid, birth, boot = file.read(MOST).decode("ascii").split()
        return LockHolder(int(pid), int(birth), boot)
    except (OSError, ValueError):
        return None


def end_if_stopped(path: Path) -> bool:
    """Kill the process that has a lock, if it surely is stopped; whether it is gone. Its term must be over."""
    holder = holder_of(path)
    if holder is None or holder.boot != boot_id():
        return False
    try:
        process = os.pidfd_open(holder.pid)  # from here on its number is nobody else's
    except OSError:
        return False
    try:
        if _state_of(holder.pid) != (STOPPED, holder.birth) or not _has_open(holder.pid, path):
            return False
        log.warning(
            "killing process %d, a server that was stopped while it wrote: its term is over, and it keeps others from writing",
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
    """The state of a process, and when it was made; None if there is none."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return words[0], int(words[19])
    except (OSError, IndexError):
        return None


def _has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    try:
        wanted = path.stat()
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names are all that is wanted
            try:
                found = os.stat(f"/proc/{pid}/fd/{number}")  # noqa: PTH116 - likewise
            except OSError:
                continue
            if os.path.samestat(found, wanted):
                return True
    except OSError:
        return False
    return False
