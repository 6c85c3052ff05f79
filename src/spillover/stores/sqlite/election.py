"""Elects the leader on SQLite, with a row and a file lock that ends with its process.

A contender that gets the file lock of a holder knows that the holder is gone, and takes over at once. So a killed
server restarts without waiting. A holder that is only stopped keeps the lock. When its row has not changed for a term,
another server takes a new epoch without the lock, and gets the lock when it can. Meanwhile `locked` is 0. Otherwise the
lock that it lacks would look like its death.

A holder that is stopped in the middle of a commit also keeps the lock of the database, which no other process can
release. After its term, a contender kills it, if the lock file identifies the process beyond doubt. If not, other
servers get Unwritable until a person continues or kills it. PostgreSQL ends such a transaction by itself.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw
from msgspec import Struct

from spillover.ports.clock import boot_id
from spillover.ports.election import Holder
from spillover.ports.journal import Unwritable
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.files import transaction
from spillover.stores.sqlite.lockholder import end_if_stopped, holder_of, sign
from spillover.stores.watch import Watch

LOCK_FILE: Final = "leader.lock"


class Row(Struct, frozen=True):
    """The row about the lead."""

    epoch: int
    holder: str | None
    """None when nobody leads."""
    url: str
    renewal: int
    locked: int
    """1 if the holder has the lock file, else 0."""


class Lock:
    """A lock on a file. The system releases it when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        """None while we do not have the lock. Children do not inherit it."""

    @property
    def held(self) -> bool:
        """Return whether we have the lock."""
        return self._handle is not None

    def take(self) -> bool:
        """Take the lock if it is free; return whether we have it."""
        if self._handle is not None:
            return True
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):  # a full disk must not prevent the lock
                sign(handle)
        except BlockingIOError:
            os.close(handle)
            return False
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return True

    def release(self) -> None:
        """Release the lock, if we have it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


class SqliteElection:
    """One contender for the lead. Its work runs on the writing thread, so nothing here runs concurrently."""

    def __init__(self, database: SqliteDatabase, term: float, monotonic: Callable[[], float]) -> None:
        self.term = term
        self._database = database
        self._watch = Watch(term, monotonic)
        self._lock = Lock(database.folder / LOCK_FILE)
        self._epoch = 0
        """The last epoch that this contender took; 0 if none."""

    async def campaign(self, name: str, url: str, least: int = 0) -> int | Holder:
        """See Election."""
        return await self._database.write(lambda connection: self._campaign(connection, name, url, least))

    async def renew(self, epoch: int) -> bool:
        """See Election."""
        return await self._database.write(lambda connection: self._renew(connection, epoch))

    async def resign(self, epoch: int) -> None:
        """See Election."""
        await self._database.write(lambda connection: self._resign(connection, epoch))

    async def holder(self) -> Holder | None:
        """See Election."""
        row = await self._database.read(_row)
        return None if row.holder is None else _holder(row)

    def release(self) -> None:
        """Release the lock without resigning, as the end of the process would."""
        self._lock.release()

    def _campaign(self, connection: apsw.Connection, name: str, url: str, least: int) -> int | Holder:
        row = _row(connection)  # reading needs no database lock, so waiting contenders disturb nobody
        if self._lock.held and row.epoch != self._epoch:
            self._lock.release()  # another server took over while we were stopped
        if not self._may_lead(row):
            return _holder(row)
        try:
            return self._take_over(connection, row, name, url, least)
        except apsw.BusyError:
            # Without its lock, we know only that the holder's term is over.
            if self._lock.held or not row.locked or row.epoch == self._epoch:
                raise
            if not end_if_stopped(self._lock.path):
                raise self._kept_by_holder(row) from None
        return self._take_over(connection, row, name, url, least)

    def _kept_by_holder(self, row: Row) -> Unwritable:
        """Return why the database cannot be written although nobody leads."""
        holder = holder_of(self._lock.path)
        here = holder is not None and holder.boot == boot_id()
        who = f"process {holder.pid}" if holder is not None and here else row.holder
        return Unwritable(
            f"cannot write {self._database.folder}: {who}, the leader until its term ended, may hold the "
            "database lock; if it hangs, continue it (kill -CONT) or kill it (kill -KILL)"
        )

    def _take_over(
        self, connection: apsw.Connection, row: Row, name: str, url: str, least: int
    ) -> int | Holder:
        """Take a new epoch, unless another server was faster."""
        try:
            with transaction(connection):
                now = _row(connection)
                if now != row:  # another server was faster
                    self._lock.release()
                    return _holder(now)
                epoch = max(row.epoch + 1, least)
                connection.execute(
                    "UPDATE leader SET epoch = ?, holder = ?, url = ?, renewal = 0, locked = ?",
                    (epoch, name, url, self._lock.held),
                )
        except BaseException:
            self._lock.release()
            raise
        self._epoch = epoch
        return epoch

    def _may_lead(self, row: Row) -> bool:
        """Return whether the holder is gone or silent for a term; if it is gone, we now have its lock."""
        if self._lock.take():
            if row.holder is None or row.locked or row.epoch == self._epoch:
                return True
            # The holder never had it; it may be alive, and takes the lock when it renews.
            self._lock.release()
        return row.epoch == self._epoch or self._watch.expired(row.epoch, row.renewal)

    def _renew(self, connection: apsw.Connection, epoch: int) -> bool:
        if epoch == self._epoch:
            self._lock.take()
        with transaction(connection):
            connection.execute(
                "UPDATE leader SET renewal = renewal + 1, locked = ? WHERE epoch = ? AND holder IS NOT NULL",
                (self._lock.held, epoch),
            )
            ours = connection.changes() == 1
        if not ours and epoch == self._epoch:
            self._lock.release()
        return ours

    def _resign(self, connection: apsw.Connection, epoch: int) -> None:
        try:
            with transaction(connection):
                connection.execute("UPDATE leader SET holder = NULL, locked = 0 WHERE epoch = ?", (epoch,))
        finally:
            if epoch == self._epoch:
                self._lock.release()


def _row(connection: apsw.Connection) -> Row:
    columns = ", ".join(Row.__struct_fields__)
    found: Any = connection.execute(f"SELECT {columns} FROM leader").get  # noqa: S608 - constants
    return Row(*found)


def _holder(row: Row) -> Holder:
    """Return the leader. A lock without a name belongs to a server that is about to lead."""
    return Holder(name=row.holder or "a server that is starting", url=row.url, epoch=row.epoch)
