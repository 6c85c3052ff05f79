"""Checks permissions, free space and leftover files of the data folder."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spillover.model.units import format_memory
from spillover.server.doctor.findings import Finding, ok, problem, some, warning
from spillover.server.doctor.inspection import Inspection
from spillover.server.secret_keys import KEY_FILE
from spillover.stores.blobs import MOST_RESERVE, RESERVE
from spillover.stores.sqlite.database import FILE
from spillover.stores.sqlite.election import LOCK_FILE
from spillover.stores.sqlite.files import LOG_BYTES

LEAST: Final = 2 * LOG_BYTES
"""Free bytes below which the journal soon cannot be written."""
LARGE_LOG: Final = 4 * LOG_BYTES
"""Bytes of a write-ahead log that was not merged for long."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def permissions(inspection: Inspection) -> Iterator[Finding]:
    """Check that only the owner can read the data and the token, which grants all rights."""
    data = inspection.data
    if data is None:
        return
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & _OTHERS:
        yield warning(
            "data folder", f"other users of this machine can read it (mode {mode:o})", f"chmod 700 {data}"
        )
    else:
        yield ok("data folder", "readable by its owner only")
    yield _token(data / "token")
    key = data / KEY_FILE
    if key.exists() and stat.S_IMODE(key.stat().st_mode) & _OTHERS:
        yield problem("key of secrets", f"other users of this machine can read {key}", f"chmod 600 {key}")


def _token(path: Path) -> Finding:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return warning("token", f"there is no {path}", "the server makes a new one when it starts")
    except UnicodeDecodeError:
        text = ""
    if not (text and text.isprintable()):
        return problem(
            "token",
            f"{path} does not hold a token",
            "stop the server, delete the file, and start the server again",
        )
    if mode & _OTHERS:
        return problem(
            "token", f"other users of this machine can read {path} (mode {mode:o})", f"chmod 600 {path}"
        )
    return ok("token", "readable by its owner only")


def disk(inspection: Inspection) -> Iterator[Finding]:
    """Check the free space on each disk that holds data."""
    data = inspection.data
    if data is None:
        return
    folders = {folder.stat().st_dev: folder for folder in (data / "blobs", data) if folder.is_dir()}
    for folder in folders.values():
        yield _room(folder)
    log = data / f"{FILE}-wal"
    if log.exists() and (size := log.stat().st_size) > LARGE_LOG:
        yield warning(
            "disk",
            f"{log.name} has grown to {format_memory(size)}",
            "end processes that keep reading the database; the server then truncates the file, or does so at its next start",
        )


def _room(folder: Path) -> Finding:
    system, usage = os.statvfs(folder), shutil.disk_usage(folder)
    told = f"{format_memory(usage.free)} of {format_memory(usage.total)} are free for {folder}"
    if system.f_flag & os.ST_RDONLY:
        return warning(
            "disk",
            f"{folder} is on a read-only disk",
            "mount it for writing; until then the server is read-only",
        )
    if usage.free < LEAST or (system.f_files and not system.f_favail):
        files = "" if usage.free < LEAST else ", but no inodes"
        return problem("disk", told + files, "free some space; without it the server accepts no changes")
    if usage.free < min(MOST_RESERVE, usage.total // RESERVE):
        return warning("disk", told, "free some space; the server already refuses files of jobs")
    return ok("disk", told)


def leftovers(inspection: Inspection) -> Iterator[Finding]:
    """Check that files that name a server belong to one that runs."""
    data = inspection.data
    if data is None:
        return
    found = [*_of_writing(data)]
    where = inspection.whereabouts
    path = data / "server.json"
    holder = lock_holder(data / LOCK_FILE)
    if where is None and path.exists():
        found.append(problem("leftovers", f"{path} is damaged", "restart the server, or delete the file"))
    elif where is not None and inspection.server is None and not lives(where.pid):
        found.append(
            warning(
                "leftovers",
                f"{path} names process {where.pid}, which ended unexpectedly (killed, or out of memory?)",
                "read its log and start it again with `spill up`; no acknowledged change is lost",
            )
        )
    elif where is not None and holder not in {None, where.pid} and inspection.server is None:
        found.append(
            warning(
                "leftovers",
                f"process {holder} holds {LOCK_FILE}, but server.json names process {where.pid}",
                "check whether that process is a server that hangs, and kill it",
            )
        )
    yield from found or [ok("leftovers", "none")]


def _of_writing(data: Path) -> Iterator[Finding]:
    """Find temporary files of processes that ended."""
    names = [*data.glob(".server.json.*"), *data.glob(".token.*"), *data.glob(f".{KEY_FILE}.*")]
    dead = sorted(path.name for path in names if not lives(_number(path.suffix)))
    if dead:
        yield warning("leftovers", f"{some(dead)}: left by a process that ended", f"delete them from {data}")


def _number(suffix: str) -> int:
    """Return the process id at the end of a file name; -1 if there is none."""
    text = suffix[1:]
    return int(text) if text.isascii() and text.isdecimal() else -1


def lives(pid: int) -> bool:
    """Return whether a process exists."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def lock_holder(path: Path, locks: Path = Path("/proc/locks")) -> int | None:
    """Return the process that holds a lock on a file; None if none does or it is unknown.

    This does not try to take the lock, as a server that starts at that moment would fail.
    """
    try:
        inode = path.stat().st_ino
        lines = locks.read_text().splitlines()
    except OSError:
        return None
    for line in lines:  # such as `1: FLOCK  ADVISORY  WRITE 25694 fe:00:9977982 0 EOF`
        match line.split():
            case [_, "FLOCK", _, _, pid, file, *_] if file.endswith(f":{inode}"):
                return int(pid)
    return None
