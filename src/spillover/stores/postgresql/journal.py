"""Stores the journal in PostgreSQL.

Every write locks the row of the epoch first, so that it either precedes a takeover or is fenced by it.
"""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import Any, Final

import asyncpg

from spillover.ports.journal import Batch, Changed, Loaded, Mentions, Record, Stored
from spillover.stores.mentions import BUCKETS, bucket_of, check_indexed, mention_rows, revisions
from spillover.stores.postgresql.connection import PostgresDatabase
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
from spillover.stores.tail import PAGE_BYTES, read_records, read_tail

# The inner query limits the rows, and the outer one the bytes, but returns at least one row.
_PAGE: Final = """
SELECT first, last, at, epoch, body FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY first) - octet_length(body) AS ahead FROM (
        SELECT first, last, at, epoch, body FROM batches
        WHERE first >= coalesce((SELECT max(first) FROM batches WHERE first <= $1), 0) AND last >= $1 AND first <= $2
        ORDER BY first LIMIT $3
    ) AS found
) AS sized WHERE ahead < $4 ORDER BY first
"""
_REPLACE: Final = "ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body"
_PUT: Final = f"INSERT INTO records VALUES ($1, $2, $3) {_REPLACE}"  # noqa: S608 - a constant
_STAGE: Final = f"INSERT INTO staged VALUES ($1, $2, $3) {_REPLACE}"  # noqa: S608 - a constant
_SETTLE: Final = (
    "INSERT INTO records SELECT kind, key, body FROM staged "  # noqa: S608 - a constant
    f"WHERE body IS NOT NULL AND (kind, key) <= ($1, $2) {_REPLACE}"
)


class PostgresqlJournal:
    """The journal in the database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._settled = 0
        """The epoch in which the leader knows that nothing is staged; 0 if that must be checked."""

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """See Journal."""
        last = after + len(batch.events)
        row = (after + 1, last, batch.at, epoch, encode_events(batch.events))
        async with self._database.write() as connection:
            await fence(connection, epoch)
            tip = await connection.fetchval(LAST)
            if tip > after:
                # A retry of a write whose answer was lost finds its own batch.
                there = await connection.fetchrow(
                    "SELECT first, last, at, epoch, body FROM batches WHERE first = $1", after + 1
                )
                if there is not None and tuple(there) == row:
                    return last
            check_tip(tip, after)
            if batch.events:
                await connection.execute("INSERT INTO batches VALUES ($1, $2, $3, $4, $5)", *row)
            if batch.blobs:
                await connection.executemany(
                    "INSERT INTO blobs VALUES ($1, $2, $3) ON CONFLICT (digest) DO UPDATE SET revision = excluded.revision",
                    [(digest, last, body) for digest, body in batch.blobs.items()],
                )
        return last

    async def load(self) -> Loaded:
        """See Journal."""
        async with self._database.read() as connection:
            checkpoint = await connection.fetchval(CHECKPOINT)
            count = await connection.fetchval(COUNT)
            last = await connection.fetchval(LAST)
        return Loaded(checkpoint=checkpoint, count=count, last=last)

    async def records(self, checkpoint: int) -> AsyncIterator[Sequence[Record]]:
        """See Journal."""

        async def page(kind: str, key: str, rows: int) -> tuple[int, list[Record]]:
            async with self._database.read() as connection:
                query = OVERLAID if await connection.fetchval(STAGED) else RECORDS
                found = await connection.fetch(query, kind, key, rows)
                return await connection.fetchval(CHECKPOINT), [tuple(row) for row in found]

        async for some in read_records(page, checkpoint):
            yield some

    async def tail(self, after: int, limit: int | None = None) -> AsyncIterator[Stored]:
        """See Journal."""

        async def page(due: int, end: int, rows: int) -> list[BatchRow]:
            async with self._database.read() as connection:
                found: list[Any] = await connection.fetch(_PAGE, due, end, rows, PAGE_BYTES)
            return found

        async for stored in read_tail(page, after, await self._number(LAST), limit):
            yield stored

    async def oldest(self) -> int:
        """See Journal."""
        return await self._number(OLDEST)

    async def checkpoint(self, changed: Changed, epoch: int) -> None:
        """See Journal."""
        if not changed.staged:
            await self._settle(epoch)
        gone = [key for key, body in changed.records.items() if body is None]
        there = [(*key, body) for key, body in changed.records.items() if body is not None]
        async with self._database.write() as connection:
            await fence(connection, epoch)
            check_checkpoint(
                changed.revision, await connection.fetchval(CHECKPOINT), await connection.fetchval(LAST)
            )
            if changed.staged:
                await _put_staged(connection, changed.records)
                await connection.execute("UPDATE meta SET value = 1 WHERE name = 'staged'")
            else:
                await connection.executemany("DELETE FROM records WHERE kind = $1 AND key = $2", gone)
                await connection.executemany(_PUT, there)
            await connection.execute("UPDATE meta SET value = $1 WHERE name = 'checkpoint'", changed.revision)
        if changed.staged:
            await self._settle(epoch)

    async def stage(self, records: Mapping[tuple[str, str], bytes | None], epoch: int, *, anew: bool) -> None:
        """See Journal."""
        if anew:
            await self._settle(epoch)
        self._settled = 0
        async with self._database.write() as connection:
            await fence(connection, epoch)
            await _put_staged(connection, records)

    async def index(self, mentions: Mentions, epoch: int) -> None:
        """See Journal."""
        rows = list(mention_rows(mentions))
        async with self._database.write() as connection:
            await fence(connection, epoch)
            check_indexed(await connection.fetchval(INDEXED), mentions, await connection.fetchval(LAST))
            await connection.executemany("INSERT INTO mentions VALUES ($1, $2, $3, $4)", rows)
            await connection.execute("UPDATE meta SET value = $1 WHERE name = 'indexed'", mentions.upto)

    async def indexed(self) -> int:
        """See Journal."""
        return await self._number(INDEXED)

    async def mentioned(self, mark: int, after: int) -> list[int]:
        """See Journal."""
        async with self._database.read() as connection:
            oldest = await connection.fetchval(OLDEST)
            rows = await connection.fetch(
                "SELECT first, body FROM mentions WHERE bucket = $1 AND last > $2 ORDER BY first",
                bucket_of(mark),
                after,
            )
        return revisions(((first, body) for first, body in rows), mark, max(after, oldest - 1))

    async def compact(self, upto: int, epoch: int) -> int:
        """See Journal."""
        gone = 0
        while some := await self._compact_some(upto, epoch):
            gone += some
        return gone

    async def blobs(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """See Journal."""
        async with self._database.read() as connection:
            found = await connection.fetch(
                "SELECT digest, body FROM blobs WHERE digest = ANY($1::bytea[])", digests
            )
        return {digest: body for digest, body in found}  # noqa: C416 - rows are records, not pairs

    async def forget_blobs(self, keep: Container[bytes], epoch: int) -> int:
        """See Journal."""
        async with self._database.write() as connection:
            await fence(connection, epoch)
        loose: list[bytes] = []
        for first, end in DIGEST_RANGES:
            async with self._database.read() as connection:
                found = await connection.fetch(
                    f"SELECT digest {LOOSE} AND digest >= $1 AND digest < $2", first, end
                )
            loose += [digest for (digest,) in found if digest not in keep]
        gone = 0
        for start in range(0, len(loose), STEP_ROWS):
            async with self._database.write() as connection:
                await fence(connection, epoch)
                status = await connection.execute(
                    f"DELETE {LOOSE} AND digest = ANY($1::bytea[])", loose[start : start + STEP_ROWS]
                )
            gone += count_of(status)
        return gone

    async def close(self) -> None:
        """Close the connections, for all ports that share them."""
        await self._database.close()

    async def _compact_some(self, upto: int, epoch: int) -> int:
        """Delete some of the old events; return 0 when none are left to delete."""
        async with self._database.write() as connection:
            await fence(connection, epoch)
            # The archive needs no bound of its own. A job is archived before the event that removes it from the state,
            # so every job that the checkpoint lacks is archived.
            bound = min(upto, await connection.fetchval(CHECKPOINT))
            oldest = await connection.fetchval(OLDEST)
            end = await connection.fetchval("SELECT last FROM batches WHERE first = $1", oldest)
            if end is None or end > bound:
                return 0
            # Batches are in order and do not overlap. Of the two newest that begin within the bound, at least one ends
            # within it.
            whole = await connection.fetchval(
                "SELECT max(last) FROM "
                "(SELECT last FROM batches WHERE first <= $1 ORDER BY first DESC LIMIT 2) AS newest WHERE last <= $1",
                min(bound, max(end, oldest + STEP_EVENTS)),
            )
            await connection.execute("DELETE FROM batches WHERE first <= $1", whole)
            await connection.execute("UPDATE meta SET value = $1 WHERE name = 'compacted'", whole)
            await connection.execute(
                "DELETE FROM mentions WHERE bucket = ANY($1::smallint[]) AND first <= $2 AND last <= $2",
                list(range(BUCKETS)),
                whole,
            )
            await connection.execute(
                "UPDATE meta SET value = greatest(value, $1) WHERE name = 'indexed'", whole
            )
        return int(whole - oldest + 1)

    async def _settle(self, epoch: int) -> None:
        """Move records that were staged for the last checkpoint to their place, and drop those of an unfinished one."""
        while self._settled != epoch:
            if not await self._settle_some(epoch):
                self._settled = epoch

    async def _settle_some(self, epoch: int) -> bool:
        """Do this for some of them; return whether more are left."""
        async with self._database.write() as connection:
            await fence(connection, epoch)
            some = await connection.fetch(
                "SELECT kind, key FROM staged ORDER BY kind, key LIMIT $1", STEP_ROWS
            )
            counts = await connection.fetchval(STAGED)
            upto = tuple(some[-1]) if some else ()
            if some and counts:
                await connection.execute(
                    "DELETE FROM records USING staged WHERE staged.kind = records.kind AND staged.key = records.key "
                    "AND staged.body IS NULL AND (staged.kind, staged.key) <= ($1, $2)",
                    *upto,
                )
                await connection.execute(_SETTLE, *upto)
            if some:
                await connection.execute("DELETE FROM staged WHERE (kind, key) <= ($1, $2)", *upto)
            elif counts:
                await connection.execute("UPDATE meta SET value = 0 WHERE name = 'staged'")
        return bool(some)

    async def _number(self, statement: str) -> int:
        async with self._database.read() as connection:
            return int(await connection.fetchval(statement))


async def _put_staged(
    connection: asyncpg.Connection, records: Mapping[tuple[str, str], bytes | None]
) -> None:
    await connection.executemany(_STAGE, [(*key, body) for key, body in records.items()])


async def fence(connection: asyncpg.Connection, epoch: int) -> None:
    """Raise Fenced unless the store has this epoch, and lock it until the transaction ends."""
    check_epoch(await connection.fetchval("SELECT epoch FROM leader FOR UPDATE"), epoch)


def count_of(status: str) -> int:
    """Return how many rows a statement changed, from its status."""
    return int(status.rpartition(" ")[2])
