"""Runs SQLite in a thread with its own connection, because SQLite waits for the disk and the event loop must not.

Work runs in order. After an error the connection is closed, and the next call opens it again. So a disk that has space
again, or a folder that became writable, needs no restart.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from spillover.ports.journal import StoreError

T = TypeVar("T")


class SqliteThread:
    """One thread with one connection."""

    def __init__(
        self,
        name: str,
        opening: Callable[[], apsw.Connection],
        failing: Callable[[Exception], StoreError],
        stale: Callable[[], bool] = lambda: False,
        damaged: tuple[type[Exception], ...] = (),
    ) -> None:
        self._opening = opening
        self._failing = failing
        self._stale = stale
        self._fatal: tuple[type[Exception], ...] = (apsw.Error, OSError, *damaged)
        """Errors after which the connection is not reused: of SQLite, of the system, and of work that reads impossible
        data.
        """
        self._connection: apsw.Connection | None = None
        """None before the first call and after an error."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = False

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work with the connection, off the event loop."""
        if self._closed:
            raise self._failing(apsw.ConnectionClosedError("the store is closed"))
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    @property
    def connected(self) -> bool:
        """Return whether the last call left a usable connection."""
        return self._connection is not None

    async def disconnect(self) -> None:
        """Close the connection. The next call opens it again."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)

    async def close(self) -> None:
        """Finish all queued work and end the thread."""
        if not self._closed:
            self._closed = True
            await self.disconnect()
            self._thread.shutdown()

    def _do(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            if self._connection is not None and self._stale():
                self._drop()
            if self._connection is None:
                self._connection = self._opening()
            return work(self._connection)
        except apsw.BusyError as error:  # the connection itself is fine
            raise self._failing(error) from error
        except self._fatal as error:
            self._drop()
            raise self._failing(error) from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(force=True)


def cause(error: Exception, folder: Path) -> str:
    """Return why SQLite or the system refused, in words that show what to do."""
    match error:
        case apsw.BusyError():
            return "another process holds its lock"
        case apsw.FullError():
            return "the disk is full"
        case apsw.ReadOnlyError():
            return "it is read-only"
        case apsw.NotADBError() | apsw.CorruptError():
            return "it is damaged or not a Spillover database"
        case OSError():
            return error.strerror or str(error)
        case apsw.Error():
            return _guess(folder) or str(error)
        case _:
            return f"it is damaged: it holds impossible data ({error})"


def _guess(folder: Path) -> str | None:
    """Return what is wrong with the folder, where SQLite reports only an I/O error; None if nothing is visible."""
    try:
        system = os.statvfs(folder)
    except OSError as error:
        return error.strerror
    if system.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    if system.f_bavail == 0:
        return os.strerror(errno.ENOSPC)
    if not os.access(folder, os.W_OK):
        return os.strerror(errno.EACCES)
    return None
