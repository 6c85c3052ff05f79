"""The journal in SQLite: a batch of events is one row, and an append is one transaction."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

import apsw

from spillover.ports.journal import Batch, Changed, Loaded, Stored
from spillover.stores.queries import CHECKPOINT, LAST, LOOSE, OLDEST
from spillover.stores.rows import (
    STEP_EVENTS,
    STEP_ROWS,
    BatchRow,
    check_checkpoint,
    check_epoch,
    check_tip,
    encode_events,
)
from spillover.stores.sqlite.database import Database
from spillover.stores.sqlite.files import transaction
from spillover.stores.tail import PAGE_BYTES, read_tail

_PAGE: Final = (
    "SELECT first, last, at, epoch, body FROM batches "
    "WHERE first >= coalesce((SELECT max(first) FROM batches WHERE first <= ?1), 0) AND last >= ?1 AND first <= ?2 "
    "ORDER BY first LIMIT ?3"
)


class SqliteJournal:
    """History in the file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """See Journal."""
        last = after + len(batch.events)
        row = (after + 1, last, batch.at, epoch, encode_events(batch.events))
        blobs = [(digest, last, body) for digest, body in batch.blobs.items()]
        return await self._database.write(lambda connection: _append(connection, row, blobs))

    async def load(self) -> Loaded:
        """See Journal."""
        return await self._database.read(_load)

    async def tail(self, after: int, limit: int | None = None) -> AsyncIterator[Stored]:
        """See Journal."""

        async def page(due: int, end: int, rows: int) -> list[BatchRow]:
            return await self._database.read(lambda connection: _page(connection, due, end, rows))

        end = await self._database.read(lambda connection: one(connection, LAST))
        async for stored in read_tail(page, after, end, limit):
            yield stored

    async def oldest(self) -> int:
        """See Journal."""
        return await self._database.read(lambda connection: one(connection, OLDEST))

    async def checkpoint(self, changed: Changed, epoch: int) -> None:
        """See Journal."""
        await self._database.write(lambda connection: _checkpoint(connection, changed, epoch))

    async def compact(self, upto: int, epoch: int) -> int:
        """See Journal."""
        gone = 0
        while some := await self._database.write(lambda connection: _compact(connection, upto, epoch)):
            gone += some
        return gone

    async def blobs(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """See Journal."""
        return await self._database.read(lambda connection: _blobs(connection, digests))

    async def forget_blobs(self, keep: frozenset[bytes], epoch: int) -> int:
        """See Journal."""
        await self._database.write(lambda connection: fence(connection, epoch))
        loose = await self._database.read(lambda connection: _loose(connection, keep))
        gone = 0
        for start in range(0, len(loose), STEP_ROWS):
            some = loose[start : start + STEP_ROWS]
            gone += await self._database.write(partial(_forget_blobs, digests=some, epoch=epoch))
        return gone

    async def close(self) -> None:
        """Close the file, for all ports on it."""
        await self._database.close()


def one(connection: apsw.Connection, statement: str) -> int:
    """The only value of a statement, a number; raises as SQLite does for a damaged file if it is none."""
    value = connection.execute(statement).get
    if not isinstance(value, int):
        raise apsw.CorruptError(f"{statement} is {value!r}")
    return value


def fence(connection: apsw.Connection, epoch: int) -> None:
    """Raise Fenced unless the epoch is the store's; within a transaction."""
    check_epoch(one(connection, "SELECT epoch FROM leader"), epoch)


def _append(connection: apsw.Connection, row: BatchRow, blobs: Sequence[tuple[bytes, int, bytes]]) -> int:
    first, last, *_ = row
    with transaction(connection):
        fence(connection, row[3])
        tip = one(connection, LAST)
        if tip >= first:
            there = connection.execute(
                "SELECT first, last, at, epoch, body FROM batches WHERE first = ?", (first,)
            )
            if there.fetchone() == row:  # a retry of what was written, though the answer was lost
                return last
        check_tip(tip, first - 1)
        if last >= first:
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", row)
        if blobs:
            connection.executemany(
                "INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET revision = excluded.revision",
                blobs,
            )
    return last


def _load(connection: apsw.Connection) -> Loaded:
    records: list[Any] = []
    with connection:  # one view of the data
        checkpoint = one(connection, CHECKPOINT)
        last = one(connection, LAST)
        records += connection.execute("SELECT kind, key, body FROM records")
    return Loaded(checkpoint=checkpoint, records=records, last=last)


def _page(connection: apsw.Connection, due: int, end: int, rows: int) -> list[BatchRow]:
    """Batches from the one that holds revision `due` on, as many as make a page."""
    page: list[BatchRow] = []
    size = 0
    for row in connection.execute(_PAGE, (due, end, rows)):
        page.append(row)
        size += len(row[4])
        if size >= PAGE_BYTES:
            break
    return page


def _checkpoint(connection: apsw.Connection, changed: Changed, epoch: int) -> None:
    gone = [key for key, body in changed.records.items() if body is None]
    there = [(*key, body) for key, body in changed.records.items() if body is not None]
    with transaction(connection):
        fence(connection, epoch)
        check_checkpoint(changed.revision, one(connection, CHECKPOINT), one(connection, LAST))
        connection.executemany("DELETE FROM records WHERE kind = ? AND key = ?", gone)
        connection.executemany(
            "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body", there
        )
        connection.execute("UPDATE meta SET value = ? WHERE name = 'checkpoint'", (changed.revision,))


def _compact(connection: apsw.Connection, upto: int, epoch: int) -> int:
    """Forget some of what may be forgotten; 0 when nothing is left to forget."""
    with transaction(connection):
        fence(connection, epoch)
        # The archive needs no bound of its own: a job is in it before the event that drops the job from the state, so what
        # the checkpoint no longer holds is archived.
        bound = min(upto, one(connection, CHECKPOINT))
        oldest = one(connection, OLDEST)
        end = connection.execute("SELECT last FROM batches WHERE first = ?", (oldest,)).get
        if end is None or end > bound:
            return 0
        bound = min(bound, max(int(end), oldest + STEP_EVENTS))
        # Batches are in order and apart: of the two newest that begin within the bound, at least one ends within it.
        newest = "SELECT last FROM batches WHERE first <= ?1 ORDER BY first DESC LIMIT 2"
        whole = f"SELECT max(last) FROM ({newest}) WHERE last <= ?1"  # noqa: S608 - a constant
        upto = int(connection.execute(whole, (bound,)).get)
        connection.execute("DELETE FROM batches WHERE first <= ?", (upto,))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (upto,))
    return upto - oldest + 1


def _blobs(connection: apsw.Connection, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    found = {}
    for digest in digests:
        body = connection.execute("SELECT body FROM blobs WHERE digest = ?", (digest,)).get
        if body is not None:
            found[digest] = body
    return found


def _loose(connection: apsw.Connection, keep: frozenset[bytes]) -> list[bytes]:
    """Blobs that nothing seems to need."""
    return [digest for (digest,) in connection.execute(f"SELECT digest {LOOSE}") if digest not in keep]


def _forget_blobs(connection: apsw.Connection, digests: Sequence[bytes], epoch: int) -> int:
    """Drop those that are still not needed."""
    with transaction(connection):
        fence(connection, epoch)
        before = connection.total_changes()
        connection.executemany(f"DELETE {LOOSE} AND digest = ?", [(digest,) for digest in digests])
        return connection.total_changes() - before
