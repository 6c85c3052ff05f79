"""Stores ended jobs in PostgreSQL."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from spillover.model.budget import CostBy, UsageBy
from spillover.model.ids import JobId
from spillover.model.units import SECOND
from spillover.ports.archive import Finished, ProjectKey, Query, Spent, UsageQuery, Used
from spillover.stores.filters import conditions, listing, prefix_range
from spillover.stores.postgresql.connection import PostgresDatabase, may_be_stored
from spillover.stores.postgresql.journal import fence
from spillover.stores.postgresql.schema import PUT_COST, PUT_FINISHED, PUT_USAGE
from spillover.stores.rows import (
    COST_KEYS,
    FINISHED_COLUMNS,
    STEP_ROWS,
    cost_rows,
    finished_from,
    finished_row,
    spent_from,
    usage_rows,
    usage_select,
    used_from,
)

_KEYS: Final[dict[UsageBy, str]] = {
    **COST_KEYS,
    "queue": "queue",
    "month": f"to_char(to_timestamp(at / {SECOND}) AT TIME ZONE 'UTC', 'YYYY-MM') COLLATE \"C\"",
}
_SELECT: Final = f"SELECT {', '.join(FINISHED_COLUMNS)} FROM archive"  # noqa: S608 - constants
_FORGET_USAGE: Final = "DELETE FROM usage WHERE job = ANY($1::text[])"
_FORGET_COSTS: Final = "DELETE FROM costs WHERE job = ANY($1::text[])"


class PostgresqlArchive:
    """The archive in the database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, jobs: Sequence[Finished], epoch: int) -> None:
        """See Archive."""
        rows = [finished_row(job) for job in jobs]
        async with self._database.write() as connection:
            await fence(connection, epoch)
            await connection.executemany(PUT_FINISHED, rows)
            await connection.execute(_FORGET_COSTS, [job.job for job in jobs])
            await connection.executemany(PUT_COST, cost_rows(jobs))
            await connection.execute(_FORGET_USAGE, [job.job for job in jobs])
            await connection.executemany(PUT_USAGE, usage_rows(jobs))

    async def get(self, job: JobId) -> Finished | None:
        """See Archive."""
        if not may_be_stored([job]):
            return None
        async with self._database.read() as connection:
            row = await connection.fetchrow(f"{_SELECT} WHERE job = $1", job)
        return None if row is None else finished_from(tuple(row))

    async def some(self, jobs: Sequence[JobId]) -> dict[JobId, Finished]:
        """See Archive."""
        async with self._database.read() as connection:
            wanted = [job for job in jobs if may_be_stored([job])]
            rows = await connection.fetch(f"{_SELECT} WHERE job = ANY($1::text[])", wanted)
        found = [finished_from(tuple(row)) for row in rows]
        return {row.job: row for row in found}

    async def find(self, prefix: str, limit: int, project: str | None = None) -> list[JobId]:
        """See Archive."""
        if not may_be_stored([prefix]):
            return []
        members = "" if "." in prefix else "AND member = 0"
        async with self._database.read() as connection:
            rows = await connection.fetch(
                f"SELECT job FROM archive WHERE job >= $1 AND job < $2 AND project = coalesce($4, project) {members} "  # noqa: S608 - constants
                "ORDER BY number DESC, job LIMIT $3",
                *prefix_range(prefix),
                limit,
                project,
            )
        return [JobId(job) for (job,) in rows]

    async def keyed(self, keys: Sequence[ProjectKey]) -> dict[ProjectKey, Finished]:
        """See Archive."""
        wanted = {each for each in keys if may_be_stored(each)}
        async with self._database.read() as connection:
            rows = await connection.fetch(
                f"{_SELECT} WHERE key = ANY($1::text[]) AND project = ANY($2::text[]) ORDER BY number, job DESC",
                list({key for _, key in wanted}),
                list({project for project, _ in wanted}),
            )
        found = ((job.project, job.key, job) for job in map(finished_from, map(tuple, rows)))
        # The newest job comes last and wins.
        return {
            (project, key): job for project, key, job in found if key is not None and (project, key) in wanted
        }

    async def list(self, query: Query) -> list[Finished]:
        """See Archive."""
        where, values = conditions(query, lambda index: f"${index}")
        if not may_be_stored(values):
            return []
        async with self._database.read() as connection:
            rows = await connection.fetch(
                f"{_SELECT} WHERE {where} ORDER BY {listing(query)} LIMIT ${len(values) + 1}",
                *values,
                query.limit,
            )
        return [finished_from(tuple(row)) for row in rows]

    async def costs(
        self, by: CostBy, since: int | None, without: Sequence[str], project: str | None = None
    ) -> Sequence[Spent]:
        """See Archive."""
        async with self._database.read() as connection:
            rows = await connection.fetch(
                f"SELECT {_KEYS[by]} AS name, sum(amount), count(DISTINCT job) FROM costs "  # noqa: S608 - constants
                "WHERE at >= $1 AND NOT (job = ANY($2::text[])) AND project = coalesce($3, project) GROUP BY name ORDER BY name",
                since if since is not None else -1,
                list(without),
                project,
            )
        return [spent_from(by, *row) for row in rows]

    async def usage(self, query: UsageQuery) -> Sequence[Used]:
        """See Archive."""
        where = "at >= $1 AND NOT (job = ANY($2::text[])) AND project = coalesce($3, project)"
        values: list[Any] = [
            query.since if query.since is not None else -1,
            list(query.without),
            query.project,
        ]
        if query.array is not None:
            where += " AND job >= $4 AND job < $5"
            values += prefix_range(f"{query.array}.")
        async with self._database.read() as connection:
            rows = await connection.fetch(usage_select(query.by, _KEYS, where), *values)
        return [used_from(query.by, tuple(row)) for row in rows]

    async def count(self) -> int:
        """See Archive."""
        async with self._database.read() as connection:
            return int(await connection.fetchval("SELECT count(*) FROM archive"))

    async def forget(self, before: int, epoch: int, but: Collection[int] = ()) -> int:
        """See Archive."""
        gone = 0
        while some := await self._forget_some(before, epoch, list(but)):
            gone += some
        return gone

    async def _forget_some(self, before: int, epoch: int, but: Sequence[int]) -> int:
        async with self._database.write() as connection:
            await fence(connection, epoch)
            gone = await connection.fetch(
                "DELETE FROM archive WHERE job IN (SELECT job FROM archive WHERE finished < $1 "
                "AND number != ALL($3::bigint[]) LIMIT $2) RETURNING job",
                before,
                STEP_ROWS,
                but,
            )
            await connection.execute(_FORGET_COSTS, [job for (job,) in gone])
            await connection.execute(_FORGET_USAGE, [job for (job,) in gone])
        return len(gone)
