"""The data folder as the system sees it: who may read it, what room there is, and what a server left behind."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spillover.model.units import format_memory
from spillover.server.doctor.findings import Finding, ok, problem, some, warning
from spillover.server.doctor.inspection import Inspection
from spillover.stores.blobs import MOST_RESERVE, RESERVE
from spillover.stores.sqlite.database import FILE
from spillover.stores.sqlite.election import LOCK_FILE
from spillover.stores.sqlite.files import LOG_BYTES

LEAST: Final = 2 * LOG_BYTES
"""Bytes without which the journal soon cannot be written."""
LARGE_LOG: Final = 4 * LOG_BYTES
"""Bytes of a write-ahead log that is not put back into its file for long."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def permissions(inspection: Inspection) -> Iterator[Finding]:
    """Nobody else may read the data, nor the token, which is good for everything."""
    data = inspection.data
    if data is None:
        return
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & _OTHERS:
        yield warning(
            "data folder", f"others on this machine can look into it (mode {mode:o})", f"chmod 700 {data}"
        )
    else:
        yield ok("data folder", "for its owner only")
    yield _token(data / "token")


def _token(path: Path) -> Finding:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return warning("token", f"there is no {path}", "the next start of the server makes a new one")
    except UnicodeDecodeError:
        text = ""
    if not (text and text.isprintable()):
        return problem(
            "token", f"{path} does not hold a token", "stop the server, delete the file, start again"
        )
    if mode & _OTHERS:
        return problem(
            "token", f"others on this machine can read {path} (mode {mode:o})", f"chmod 600 {path}"
        )
    return ok("token", "for its owner only")


def disk(inspection: Inspection) -> Iterator[Finding]:
    """There is room for what is to come, on each disk that the data are on."""
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
            "end whoever reads the database for long; with no reader the server cuts it back, and at its next start",
        )


def _room(folder: Path) -> Finding:
    system, usage = os.statvfs(folder), shutil.disk_usage(folder)
    told = f"{format_memory(usage.free)} of {format_memory(usage.total)} are free for {folder}"
    if system.f_flag & os.ST_RDONLY:
        return warning(
            "disk",
            f"{folder} is on a read-only disk",
            "mount it for writing; a server only shows it meanwhile",
        )
    if usage.free < LEAST or (system.f_files and not system.f_favail):
        files = "" if usage.free < LEAST else ", but no more files can be made there"
        return problem("disk", told + files, "make room, or no more changes are accepted")
    if usage.free < min(MOST_RESERVE, usage.total // RESERVE):
        return warning("disk", told, "make room: files of jobs are refused already")
    return ok("disk", told)


def leftovers(inspection: Inspection) -> Iterator[Finding]:
    """What says where a server is belongs to one that runs."""
    data = inspection.data
    if data is None:
        return
    found = [*_of_writing(data)]
    where = inspection.whereabouts
    path = data / "server.json"
    holder = lock_holder(data / LOCK_FILE)
    if where is None and path.exists():
        found.append(
            problem("leftovers", f"{path} is damaged", "restart the server, or else delete the file")
        )
    elif where is not None and inspection.server is None and not lives(where.pid):
        found.append(
            warning(
                "leftovers",
                f"{path} is of process {where.pid}, which ended without a word (killed, or out of memory?)",
                "read its log and start it again with `spill up`; nothing that was acknowledged is lost",
            )
        )
    elif where is not None and holder not in {None, where.pid} and inspection.server is None:
        found.append(
            warning(
                "leftovers",
                f"process {holder} holds {LOCK_FILE}, but server.json names process {where.pid}",
                "see whether that process is a server that hangs, and end it",
            )
        )
    yield from found or [ok("leftovers", "none")]


def _of_writing(data: Path) -> Iterator[Finding]:
    """Files that were to replace others, of processes that are gone."""
    names = [*data.glob(".server.json.*"), *data.glob(".token.*")]
    dead = sorted(path.name for path in names if not lives(_number(path.suffix)))
    if dead:
        yield warning("leftovers", f"{some(dead)}: of a process that is gone", f"delete them from {data}")


def _number(suffix: str) -> int:
    """The process that a name ends with; -1 if it is none."""
    text = suffix[1:]
    return int(text) if text.isascii() and text.isdecimal() else -1


def lives(pid: int) -> bool:
    """Whether there is such a process."""
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
    """The process that holds a lock on a file; None if nobody does, or the system does not say.

    Trying to lock it would tell as well, but whoever starts a server at that moment would be refused.
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
