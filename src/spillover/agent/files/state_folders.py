"""Keeps the folders of tasks that outlive attempts, and brings them to the server for the next attempt.

A folder goes to the server, packed, when an attempt ends without success, and stays here only if that failed: because
the agent or its machine died, or because there was no time. What is left here is newer than what the server has only if
nobody else got the task since. So a file beside each folder says under which lease it was used last.
"""

import asyncio
import contextlib
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spillover.agent.files.cache import Files, Unfetched
from spillover.agent.files.task_folders import remove_folder
from spillover.agent.leases.values import Task
from spillover.core.events import Lease
from spillover.model.units import SECOND, format_duration, format_memory
from spillover.ports.blobs import digest_of

STATE: Final = "SPILL_STATE"
"""The variable with the path of the folder."""
KEPT: Final = 86400.0
"""Seconds for which a folder that was not brought to the server stays."""
LIMIT: Final = 1 << 30
"""Most bytes of a folder if the server sets no limit."""
NEXT: Final = 2
"""How much `seq` rises from one lease of a task to the next, if it was lost and then placed again."""
_LEASE: Final = "lease"
_DATA: Final = "data"


class StateFolders:
    """The folders of all tasks of an agent."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files
        self._used: dict[Lease, int | None] = {}
        """The folders in use, with the lease (its `seq`) under which each was used before; None if it is new."""

    def sweep(self) -> None:
        """Delete folders that nobody has used or changed for long."""
        oldest = time.time() - KEPT
        used = {self._place(lease).name for lease in tuple(self._used)}
        for left in self._folder.glob("*"):
            if left.name not in used and _changed(left) < oldest:
                remove_folder(left)

    async def bring(self, lease: Lease, task: Task) -> str:
        """Get the folder of a task ready; return the problem, or an empty string."""
        if not task.keep_state:
            return ""
        place = self._place(lease)
        self._used[lease] = before = _last(place)
        await asyncio.to_thread(self.sweep)
        if before is not None and lease.seq - before in {0, NEXT}:
            return ""  # nobody else got the task since
        try:
            await asyncio.to_thread(_make_empty, place)
            if task.saved:
                async with self._files.held(task.saved) as packed:
                    await asyncio.to_thread(unpack, packed, place / _DATA)
        except (OSError, Unfetched, tarfile.TarError) as error:
            return f"cannot bring its state: {error}"
        return ""

    def begin(self, lease: Lease) -> Path:
        """Return the folder of a task that is about to begin."""
        place = self._place(lease)
        with contextlib.suppress(OSError):  # then the next attempt gets what the server has
            (place / _LEASE).write_text(f"{lease.seq}\n", encoding="ascii")
        return place / _DATA

    def not_begun(self, lease: Lease) -> None:
        """Record that a task did not begin after all."""
        if lease not in self._used:
            return
        before, path = self._used.pop(lease), self._place(lease) / _LEASE
        with contextlib.suppress(OSError):
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(f"{before}\n", encoding="ascii")

    async def save(self, lease: Lease, task: Task, patience: Callable[[int], int]) -> str:
        """Bring the folder of an ended task to the server; return its digest. Raises Unfetched.

        `patience` returns how many nanoseconds the upload of so many bytes may take.
        """
        place, limit = self._place(lease), task.state_limit or LIMIT
        packed = self._files.scratch()
        try:
            await asyncio.to_thread(pack, place / _DATA, packed, limit)
            digest = await asyncio.to_thread(digest_of, packed)
            most = patience(packed.stat().st_size)
            try:
                async with asyncio.timeout(most / SECOND):
                    await self._files.upload(packed, digest)
            except TimeoutError:
                raise Unfetched(f"the upload took longer than {format_duration(most)}") from None
            await self._files.adopt(digest, packed)
        except OSError as error:
            raise Unfetched(error.strerror or str(error)) from None
        finally:
            packed.unlink(missing_ok=True)
        if not task.restarts:  # else the task may start again in its place
            await asyncio.to_thread(remove_folder, place)
        return digest

    async def drop(self, lease: Lease) -> None:
        """Delete the folder of a task that succeeded."""
        await asyncio.to_thread(remove_folder, self._place(lease))

    def leave(self, lease: Lease) -> None:
        """Record that a task no longer uses its folder."""
        self._used.pop(lease, None)

    def _place(self, lease: Lease) -> Path:
        return self._folder / f"{lease.job}.{lease.task}"


def _last(place: Path) -> int | None:
    """Return the lease under which a folder was used last; None if it is not known."""
    try:
        return int((place / _LEASE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _changed(place: Path) -> float:
    """Return when something in a folder was last changed."""
    last = 0.0
    for path in (place, *place.rglob("*")):
        with contextlib.suppress(OSError):
            last = max(last, path.lstat().st_mtime)
    return last


def _make_empty(place: Path) -> None:
    """Create an empty folder in place of what is there."""
    if place.exists():
        remove_folder(place)
    (place / _DATA).mkdir(mode=0o700, parents=True)


def pack(folder: Path, packed: Path, limit: int) -> None:
    """Write the files, folders and links below a folder into one file; raise Unfetched if they are too large."""
    total = 0

    def taken(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal total
        total += entry.size
        if total > limit:
            raise Unfetched(
                f"it has more than {format_memory(limit)}, the most that files.max_state of the server allows"
            )
        return entry if entry.isreg() or entry.isdir() or entry.issym() or entry.islnk() else None

    with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names, which become those in the archive
            archive.add(folder / name, name, filter=taken)


def unpack(packed: Path, folder: Path) -> None:
    """Write what was packed into a folder, without links that lead out of it."""
    with tarfile.open(packed, "r:") as archive:
        for entry in archive:
            with contextlib.suppress(tarfile.FilterError):
                archive.extract(entry, folder, filter="data")
