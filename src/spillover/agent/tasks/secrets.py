"""Gives tasks their secrets: fetches the values when a task is about to start, as variables or files.

Values are kept in memory and, as files, in a folder of the memory file system that only the user of the agent can enter.
It is deleted when the task ends, or by the next run of the agent. Each start of a task fetches them again, so that it gets
what is current, if it still may.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from spillover.agent.connection.transfers import ServerAway, TransferRefused
from spillover.agent.files.task_folders import remove_folder
from spillover.agent.leases.values import Task
from spillover.agent.tasks.outlasting import outlast
from spillover.core.events import Lease
from spillover.model.secrets import SECRETS_FOLDER

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, which nobody else can enter
"""The memory file system of Linux."""
PAUSE: Final = 1.0
"""Seconds between two tries while the server does not answer."""
_OURS: Final = 0o700

log = logging.getLogger("spillover.agent")


class NoSecrets(Exception):
    """A task cannot have its secrets; the message says why."""


class SecretSource(Protocol):
    """Fetches secrets from the server."""

    async def ready(self) -> None:
        """Wait until there is a connection."""
        ...

    async def secrets(self, lease: Lease) -> dict[str, bytes]:
        """Return the values for a lease; raise ServerAway or TransferRefused."""
        ...


class TaskSecrets:
    """The secrets of the tasks of one agent."""

    def __init__(self, folder: Path, source: SecretSource, memory: Path = MEMORY) -> None:
        name = f"spillover-{os.getuid()}-{hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]}"
        self._places = (memory / name, folder / "secrets")
        """Where the folders of tasks may be: in memory, or else on the disk of the agent."""
        self._source = source
        self._root: Path | None = None
        """That of these in use; None until the first task with secrets."""
        self._folders: dict[Lease, Path] = {}

    def open(self) -> None:
        """Delete what an earlier run left."""
        for place in self._places:
            if _is_ours(place):
                remove_folder(place)

    def close(self) -> None:
        """Delete all folders."""
        self._root = None
        self.open()

    async def bring(self, lease: Lease, task: Task) -> dict[str, str]:
        """Fetch the secrets of a task; return its variables for them. Raises NoSecrets."""
        if not task.secrets:
            return {}
        values = await self._fetch(lease)
        variables: dict[str, str] = {}
        files: dict[str, bytes] = {}
        for use in task.secrets:
            value = values.get(use.name)
            if value is None:
                raise NoSecrets(f"the server did not send secret {use.name}")
            if use.file:
                files[use.name] = value
            elif b"\0" in value:
                raise NoSecrets(
                    f"secret {use.name} has a NUL byte, so it can only be a file; use `file: true`"
                )
            else:
                variables[use.variable] = os.fsdecode(value)
        if not files:
            return variables
        folder = await self._write(lease, files)
        paths = {use.variable: str(folder / use.name) for use in task.secrets if use.file}
        return variables | paths | {SECRETS_FOLDER: str(folder)}

    def leave(self, lease: Lease) -> None:
        """Delete the files of a task that ended, or that does not start."""
        if (folder := self._folders.pop(lease, None)) is not None:
            remove_folder(folder)

    def folder(self) -> Path:
        """Return the folder for all that has values. Raises OSError."""
        if self._root is None:
            self._root = self._make_root()
        return self._root

    async def _fetch(self, lease: Lease) -> Mapping[str, bytes]:
        """Ask the server for the values until it answers."""
        while True:
            try:
                return await self._source.secrets(lease)
            except ServerAway:
                await asyncio.sleep(PAUSE)
                await self._source.ready()
            except TransferRefused as error:
                raise NoSecrets(f"cannot get its secrets: {error}") from None

    async def _write(self, lease: Lease, files: Mapping[str, bytes]) -> Path:
        """Write files for a task into a folder of its own."""
        try:
            folder = self.folder() / f"{lease.job}.{lease.attempt}.{lease.task}.{lease.seq}"
            self._folders[lease] = folder
            # A thread cannot be cancelled. Left alone, it would write files after the folder was deleted.
            working = asyncio.create_task(asyncio.to_thread(_put, folder, files))
            try:
                await asyncio.shield(working)
            except asyncio.CancelledError:
                await outlast(working)
                self._folders.pop(lease, None)
                remove_folder(folder)
                raise
        except OSError as error:
            self.leave(lease)
            raise NoSecrets(f"cannot write its secret files: {error.strerror or error}") from None
        return folder

    def _make_root(self) -> Path:
        """Create the folder for all tasks, in memory if that is possible. Raises OSError."""
        for place in self._places:
            with contextlib.suppress(OSError):
                place.mkdir(mode=_OURS, parents=place == self._places[-1], exist_ok=True)
                if _is_ours(place):
                    if place == self._places[-1]:
                        log.warning("%s cannot be used: secret files are on disk, in %s", MEMORY, place)
                    return place
        raise OSError(f"cannot create {self._places[-1]}")


def _is_ours(place: Path) -> bool:
    """Return whether a folder is there, and neither a link nor open to anybody else: another user may have put it there."""
    try:
        found = place.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == _OURS
    )


def _put(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files that only their owner can read. What an earlier start of the task left is replaced."""
    if folder.exists():
        remove_folder(folder)
    folder.mkdir(mode=_OURS)
    for name, value in files.items():
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(value)
