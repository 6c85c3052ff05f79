"""Opens the database file for writing, or for reading even where writing is impossible.

Uses write-ahead logging with synchronous FULL: a commit returns when it is on the disk, and readers see it only then.
Reading a write-ahead log needs its index (`-shm`), a file that SQLite wants to create or write. Where it cannot, these
ways are tried in turn:

1. read-only, with the index of a writer that is alive or was killed;
2. the same, but with the index rebuilt in memory and the file left alone (for a full disk);
3. as an immutable file, if there is no log: then no process has it open for writing, and it is complete.

Programs that only look, such as `spill doctor`, try them in reverse order, so that they leave no log or index behind.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from spillover.ports.journal import Unreadable
from spillover.stores.sqlite.schema import NoData, prepare, require_current

BUSY_MS: Final = 5_000
"""Milliseconds to wait for another writer. Commits take milliseconds, an upgrade of old data a few seconds."""
LOG_BYTES: Final = 64 << 20
"""Bytes to which a log is truncated after a huge batch."""


def open_writer(path: Path, vfs: str | None) -> apsw.Connection:
    """Open for writing; create the file, or upgrade an older one."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _sync_folder(path.parent.parent)
    connection = apsw.Connection(str(path), vfs=vfs)
    try:
        _require_writable(connection)
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("PRAGMA synchronous = FULL")
        _keep_a_log(connection)
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}").fetchall()
        prepare(connection, path.parent)
    except BaseException:
        connection.close(force=True)
        raise
    return connection


def _require_writable(connection: apsw.Connection) -> None:
    """Refuse a connection that SQLite opened as read-only. It would stay so when the file is writable again."""
    if connection.readonly("main"):
        raise apsw.ReadOnlyError("the file is read-only")


class Reading:
    """Opens the file for reading, in any way that works. `untouched` leaves the folder as it is, if possible.

    `require` raises for data that must not be read.
    """

    def __init__(
        self,
        path: Path,
        vfs: str | None = None,
        *,
        untouched: bool = False,
        require: Callable[[apsw.Connection, Path], None] = require_current,
    ) -> None:
        self._path = path
        self._log = Path(f"{path}-wal")
        self._vfs = vfs
        self._untouched = untouched
        self._require = require
        self._immutable = False

    def open(self) -> apsw.Connection:
        """Open the file in the first way that works."""
        failed: Exception | None = None
        for options in self._ways():
            try:
                connection = self._try(options)
            except (apsw.CantOpenError, apsw.IOError, apsw.FullError, apsw.ReadOnlyError) as error:
                failed = failed or error
            else:
                self._immutable = "immutable" in options
                return connection
        if not self._path.exists():
            raise NoData(f"there is no data in {self._path.parent}")
        raise Unreadable(f"cannot read {self._path}: {failed}") from failed

    def stale(self) -> bool:
        """Return whether the file was opened as immutable, but now has a writer."""
        return self._immutable and not self._nobody_writes()

    def _ways(self) -> list[str]:
        ways = ["mode=ro", "mode=ro&readonly_shm=1"]
        ways = [*ways, "mode=ro&immutable=1"] if self._nobody_writes() else ways
        return ways[::-1] if self._untouched else ways

    def _try(self, options: str) -> apsw.Connection:
        uri = f"file:{quote(str(self._path.absolute()))}?{options}"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(uri, flags=flags, vfs=self._vfs)
        try:
            connection.set_busy_timeout(BUSY_MS)
            self._require(connection, self._path.parent)
        except BaseException:
            connection.close(force=True)
            raise
        return connection

    def _nobody_writes(self) -> bool:
        """Return whether there is no writer: no log, or an empty one that a failed write left on a read-only disk."""
        try:
            left = self._log.stat().st_size
        except OSError:
            return True
        return left == 0 and bool(os.statvfs(self._log).f_flag & os.ST_RDONLY)


def _keep_a_log(connection: apsw.Connection) -> None:
    """Turn on write-ahead logging. SQLite does not wait here while others do the same on a new file, so retry."""
    give_up = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except apsw.BusyError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.01)
        else:
            return


def _sync_folder(folder: Path) -> None:
    """Make a new entry of a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run a transaction that excludes other writers from its start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
