"""Ended jobs in PostgreSQL."""

from collections.abc import Sequence
from typing import Final

from spillover.model.ids import JobId
from spillover.ports.archive import Finished, Query
from spillover.stores.filters import conditions, prefix_range
from spillover.stores.postgresql.connection import Database
from spillover.stores.postgresql.journal import count_of, fence
from spillover.stores.postgresql.schema import PUT_FINISHED
from spillover.stores.rows import FINISHED_COLUMNS, STEP_ROWS, finished_from, finished_row

_SELECT: Final = f"SELECT {', '.join(FINISHED_COLUMNS)} FROM archive"  # noqa: S608 - constants


class PostgresqlArchive:
    """Ended jobs in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, jobs: Sequence[Finished], epoch: int) -> None:
        """See Archive."""
        rows = [finished_row(job) for job in jobs]
        async with self._database.write() as connection:
            await fence(connection, epoch)
            await connection.executemany(PUT_FINISHED, rows)

    async def get(self, job: JobId) -> Finished | None:
        """See Archive."""
        async with self._database.read() as connection:
            row = await connection.fetchrow(f"{_SELECT} WHERE job = $1", job)
        return None if row is None else finished_from(tuple(row))

    async def find(self, prefix: str, limit: int) -> list[JobId]:
        """See Archive."""
        members = "" if "." in prefix else "AND member = 0"
        async with self._database.read() as connection:
            rows = await connection.fetch(
                f"SELECT job FROM archive WHERE job >= $1 AND job < $2 {members} "  # noqa: S608 - constants
                "ORDER BY number DESC, job LIMIT $3",
                *prefix_range(prefix),
                limit,
            )
        return [JobId(job) for (job,) in rows]

    async def keyed(self, keys: Sequence[str]) -> dict[str, Finished]:
        """See Archive."""
        async with self._database.read() as connection:
            rows = await connection.fetch(
                f"{_SELECT} WHERE key = ANY($1::text[]) ORDER BY number, job DESC",  # the newest comes last and stays
                keys,
            )
        return {job.key: job for job in map(finished_from, map(tuple, rows)) if job.key is not None}

    async def list(self, query: Query) -> list[Finished]:
        """See Archive."""
        where, values = conditions(query, lambda index: f"${index}")
        async with self._database.read() as connection:
            rows = await connection.fetch(
                f"{_SELECT} WHERE {where} ORDER BY number DESC, job LIMIT ${len(values) + 1}",
                *values,
                query.limit,
            )
        return [finished_from(tuple(row)) for row in rows]

    async def count(self) -> int:
        """See Archive."""
        async with self._database.read() as connection:
            return int(await connection.fetchval("SELECT count(*) FROM archive"))

    async def forget(self, before: int, epoch: int) -> int:
        """See Archive."""
        gone = 0
        while some := await self._forget_some(before, epoch):
            gone += some
        return gone

    async def _forget_some(self, before: int, epoch: int) -> int:
        async with self._database.write() as connection:
            await fence(connection, epoch)
            status = await connection.execute(
                "DELETE FROM archive WHERE job IN (SELECT job FROM archive WHERE finished < $1 LIMIT $2)",
                before,
                STEP_ROWS,
            )
        return count_of(status)
