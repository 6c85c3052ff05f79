"""Stores the journal in SQLite. A batch of events is one row, and an append is one transaction."""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from functools import partial
from typing import Any, Final

import apsw

from spillover.ports.journal import Batch, Changed, Loaded, Mentions, Record, Stored
from spillover.stores.mentions import BUCKETS, bucket_of, check_indexed, mention_rows, revisions
from spillover.stores.queries import (
    CHECKPOINT,
    COUNT,
    INDEXED,
    LAST,
    LOOSE,
    OLDEST,
    OVERLAID,
    RECORDS,
    STAGED,
)
from spillover.stores.rows import (
    DIGEST_RANGES,
    STEP_EVENTS,
    STEP_ROWS,
    BatchRow,
    check_checkpoint,
    check_epoch,
    check_tip,
    encode_events,
)
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.files import transaction
from spillover.stores.tail import PAGE_BYTES, read_records, read_tail

_PAGE: Final = (
    "SELECT first, last, at, epoch, body FROM batches "
    "WHERE first >= coalesce((SELECT max(first) FROM batches WHERE first <= ?1), 0) AND last >= ?1 AND first <= ?2 "
    "ORDER BY first LIMIT ?3"
)


class SqliteJournal:
    """The journal in the file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._settled = 0
        """The epoch in which the leader knows that nothing is staged; 0 if that must be checked."""

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """See Journal."""
        last = after + len(batch.events)
        row = (after + 1, last, batch.at, epoch, encode_events(batch.events))
        blobs = [(digest, last, body) for digest, body in batch.blobs.items()]
        return await self._database.write(lambda connection: _append(connection, row, blobs))

    async def load(self) -> Loaded:
        """See Journal."""
        return await self._database.read(_load)

    async def records(self, checkpoint: int) -> AsyncIterator[Sequence[Record]]:
        """See Journal."""

        async def page(kind: str, key: str, rows: int) -> tuple[int, Sequence[Record]]:
            return await self._database.read(lambda connection: _records(connection, kind, key, rows))

        async for some in read_records(page, checkpoint):
            yield some

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
        if not changed.staged:
            await self._settle(epoch)
        await self._database.write(lambda connection: _checkpoint(connection, changed, epoch))
        if changed.staged:
            await self._settle(epoch)

    async def stage(self, records: Mapping[tuple[str, str], bytes | None], epoch: int, *, anew: bool) -> None:
        """See Journal."""
        if anew:
            await self._settle(epoch)
        self._settled = 0
        await self._database.write(lambda connection: _stage(connection, records, epoch))

    async def index(self, mentions: Mentions, epoch: int) -> None:
        """See Journal."""
        await self._database.write(lambda connection: _index(connection, mentions, epoch))

    async def indexed(self) -> int:
        """See Journal."""
        return await self._database.read(lambda connection: one(connection, INDEXED))

    async def mentioned(self, mark: int, after: int) -> list[int]:
        """See Journal."""
        return await self._database.read(lambda connection: _mentioned(connection, mark, after))

    async def compact(self, upto: int, epoch: int) -> int:
        """See Journal."""
        gone = 0
        while some := await self._database.write(lambda connection: _compact(connection, upto, epoch)):
            gone += some
        return gone

    async def blobs(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """See Journal."""
        return await self._database.read(lambda connection: _blobs(connection, digests))

    async def forget_blobs(self, keep: Container[bytes], epoch: int) -> int:
        """See Journal."""
        await self._database.write(lambda connection: fence(connection, epoch))
        loose: list[bytes] = []
        for first, end in DIGEST_RANGES:
            loose += await self._database.read(partial(_loose, keep=keep, first=first, end=end))
        gone = 0
        for start in range(0, len(loose), STEP_ROWS):
            some = loose[start : start + STEP_ROWS]
            gone += await self._database.write(partial(_forget_blobs, digests=some, epoch=epoch))
        return gone

    async def _settle(self, epoch: int) -> None:
        """Move records that were staged for the last checkpoint to their place, and drop those of an unfinished one."""
        while self._settled != epoch:
            if not await self._database.write(lambda connection: _settle(connection, epoch)):
                self._settled = epoch

    async def close(self) -> None:
        """Close the file, for all ports that share it."""
        await self._database.close()


def one(connection: apsw.Connection, statement: str) -> int:
    """Return the only value of a statement, a number; raise CorruptError if it is none."""
    value = connection.execute(statement).get
    if not isinstance(value, int):
        raise apsw.CorruptError(f"{statement} is {value!r}")
    return value


def fence(connection: apsw.Connection, epoch: int) -> None:
    """Raise Fenced unless the store has this epoch. Call it within a transaction."""
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
            if there.fetchone() == row:  # a retry of a write whose answer was lost
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
    with connection:  # one consistent view
        checkpoint, count = one(connection, CHECKPOINT), one(connection, COUNT)
        last = one(connection, LAST)
    return Loaded(checkpoint=checkpoint, count=count, last=last)


def _records(connection: apsw.Connection, kind: str, key: str, rows: int) -> tuple[int, list[Record]]:
    """Return some records after a kind and a key, and their checkpoint."""
    found: list[Any] = []
    with connection:  # one consistent view
        checkpoint = one(connection, CHECKPOINT)
        found += connection.execute(OVERLAID if one(connection, STAGED) else RECORDS, (kind, key, rows))
    return checkpoint, found


def _page(connection: apsw.Connection, due: int, end: int, rows: int) -> list[BatchRow]:
    """Return one page of batches, from the one that holds revision `due` on."""
    page: list[BatchRow] = []
    size = 0
    for row in connection.execute(_PAGE, (due, end, rows)):
        page.append(row)
        size += len(row[4])
        if size >= PAGE_BYTES:
            break
    return page


def _checkpoint(connection: apsw.Connection, changed: Changed, epoch: int) -> None:
    with transaction(connection):
        fence(connection, epoch)
        check_checkpoint(changed.revision, one(connection, CHECKPOINT), one(connection, LAST))
        if changed.staged:
            _put_staged(connection, changed.records)
            connection.execute("UPDATE meta SET value = 1 WHERE name = 'staged'")
        else:
            gone = [key for key, body in changed.records.items() if body is None]
            there = [(*key, body) for key, body in changed.records.items() if body is not None]
            connection.executemany("DELETE FROM records WHERE kind = ? AND key = ?", gone)
            connection.executemany(
                "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body", there
            )
        connection.execute("UPDATE meta SET value = ? WHERE name = 'checkpoint'", (changed.revision,))


def _stage(connection: apsw.Connection, records: Mapping[tuple[str, str], bytes | None], epoch: int) -> None:
    with transaction(connection):
        fence(connection, epoch)
        _put_staged(connection, records)


def _put_staged(connection: apsw.Connection, records: Mapping[tuple[str, str], bytes | None]) -> None:
    connection.executemany(
        "INSERT INTO staged VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body",
        [(*key, body) for key, body in records.items()],
    )


def _settle(connection: apsw.Connection, epoch: int) -> bool:
    """Move some staged records to their place, or drop unfinished ones; return whether more are left."""
    with transaction(connection):
        fence(connection, epoch)
        some = list(
            connection.execute("SELECT kind, key FROM staged ORDER BY kind, key LIMIT ?", (STEP_ROWS,))
        )
        counts = one(connection, STAGED)
        if some and counts:
            upto = some[-1]
            connection.execute(
                "DELETE FROM records WHERE (kind, key) IN "
                "(SELECT kind, key FROM staged WHERE body IS NULL AND (kind, key) <= (?, ?))",
                upto,
            )
            connection.execute(
                "INSERT INTO records SELECT kind, key, body FROM staged "
                "WHERE body IS NOT NULL AND (kind, key) <= (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body",
                upto,
            )
        if some:
            connection.execute("DELETE FROM staged WHERE (kind, key) <= (?, ?)", some[-1])
        elif counts:
            connection.execute("UPDATE meta SET value = 0 WHERE name = 'staged'")
    return bool(some)


def _index(connection: apsw.Connection, mentions: Mentions, epoch: int) -> None:
    rows = list(mention_rows(mentions))
    with transaction(connection):
        fence(connection, epoch)
        check_indexed(one(connection, INDEXED), mentions, one(connection, LAST))
        connection.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?)", rows)
        connection.execute("UPDATE meta SET value = ? WHERE name = 'indexed'", (mentions.upto,))


def _mentioned(connection: apsw.Connection, mark: int, after: int) -> list[int]:
    rows: list[Any] = []
    with connection:  # one consistent view
        oldest = one(connection, OLDEST)
        rows += connection.execute(
            "SELECT first, body FROM mentions WHERE bucket = ? AND last > ? ORDER BY first",
            (bucket_of(mark), after),
        )
    return revisions(rows, mark, max(after, oldest - 1))


def _compact(connection: apsw.Connection, upto: int, epoch: int) -> int:
    """Delete some of the old events; return 0 when none are left to delete."""
    with transaction(connection):
        fence(connection, epoch)
        # The archive needs no bound of its own. A job is archived before the event that removes it from the state, so
        # every job that the checkpoint lacks is archived.
        bound = min(upto, one(connection, CHECKPOINT))
        oldest = one(connection, OLDEST)
        end = connection.execute("SELECT last FROM batches WHERE first = ?", (oldest,)).get
        if end is None or end > bound:
            return 0
        bound = min(bound, max(int(end), oldest + STEP_EVENTS))
        # Batches are in order and do not overlap. Of the two newest that begin within the bound, at least one ends
        # within it.
        newest = "SELECT last FROM batches WHERE first <= ?1 ORDER BY first DESC LIMIT 2"
        whole = f"SELECT max(last) FROM ({newest}) WHERE last <= ?1"  # noqa: S608 - a constant
        upto = int(connection.execute(whole, (bound,)).get)
        connection.execute("DELETE FROM batches WHERE first <= ?", (upto,))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (upto,))
        connection.executemany(
            "DELETE FROM mentions WHERE bucket = ?1 AND first <= ?2 AND last <= ?2",
            [(bucket, upto) for bucket in range(BUCKETS)],
        )
        connection.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'indexed'", (upto,))
    return upto - oldest + 1


def _blobs(connection: apsw.Connection, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    found = {}
    for digest in digests:
        body = connection.execute("SELECT body FROM blobs WHERE digest = ?", (digest,)).get
        if body is not None:
            found[digest] = body
    return found


def _loose(connection: apsw.Connection, keep: Container[bytes], first: bytes, end: bytes) -> list[bytes]:
    """Return the blobs in a range of digests that seem unused."""
    found = connection.execute(f"SELECT digest {LOOSE} AND digest >= ? AND digest < ?", (first, end))
    return [digest for (digest,) in found if digest not in keep]


def _forget_blobs(connection: apsw.Connection, digests: Sequence[bytes], epoch: int) -> int:
    """Delete those blobs that are still unused."""
    with transaction(connection):
        fence(connection, epoch)
        before = connection.total_changes()
        connection.executemany(f"DELETE {LOOSE} AND digest = ?", [(digest,) for digest in digests])
        return connection.total_changes() - before
