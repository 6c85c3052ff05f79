"""Manages one database file, with a thread that writes and a thread that reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import apsw

from spillover.ports.journal import StoreError, Unreadable, Unwritable
from spillover.stores.sqlite.files import Reading, open_writer
from spillover.stores.sqlite.schema import NoData
from spillover.stores.sqlite.worker import SqliteThread, cause

T = TypeVar("T")

FILE: Final = "spill.db"


class SqliteDatabase:
    """One database file. Readers and the writer never wait for each other."""

    def __init__(self, folder: Path, vfs: str | None = None, *, untouched: bool = False) -> None:
        """`untouched` is for programs that only read, and must leave nothing behind."""
        self.folder = folder
        self._path = folder / FILE
        self._on_close: Callable[[], None] = lambda: None
        self._reading = Reading(self._path, vfs, untouched=untouched)
        self._writer = SqliteThread("sqlite-writer", lambda: open_writer(self._path, vfs), self._unwritable)
        # We wrote what we read. A value of the wrong type, or invalid text, is damage that SQLite does not detect.
        self._reader = SqliteThread(
            "sqlite-reader",
            self._reading.open,
            self._unreadable,
            self._reading.stale,
            (TypeError, ValueError),
        )

    async def open(self) -> None:
        """Create or upgrade the data; open data that cannot be written for reading only."""
        try:
            await self._try_open()
        except BaseException:
            await self.close()
            raise

    async def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work on the writing thread; raise Unwritable if the file cannot be written."""
        if self._reader.connected and not self._writer.connected:
            # Connections of one process share the index of the log. One that was opened as read-only stays so while it
            # is in use.
            await self._reader.disconnect()
        return await self._writer.run(work)

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work on the reading thread; raise Unreadable if the file cannot be read."""
        return await self._reader.run(work)

    async def close(self) -> None:
        """End both threads, the writer last, because it moves the log into the file and removes it."""
        await self._reader.close()
        await self._writer.close()
        self._on_close()

    def on_close(self, call: Callable[[], None]) -> None:
        """Call a function after the file is closed."""
        self._on_close = call

    async def _try_open(self) -> None:
        try:
            await self._writer.run(lambda _: None)
        except Unwritable as error:
            try:
                await self._reader.run(lambda _: None)
            except NoData as nothing:
                raise error from nothing
        else:
            await self._reader.run(lambda _: None)

    def _unwritable(self, error: Exception) -> StoreError:
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            return self._unreadable(error)
        return Unwritable(f"cannot write {self._path}: {cause(error, self.folder)}")

    def _unreadable(self, error: Exception) -> StoreError:
        return Unreadable(f"cannot read {self._path}: {cause(error, self.folder)}")
