"""Stores ended jobs in SQLite."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import apsw
import msgspec

from spillover.model.budget import CostBy, UsageBy
from spillover.model.ids import JobId
from spillover.model.units import SECOND
from spillover.ports.archive import Finished, ProjectKey, Query, Spent, UsageQuery, Used
from spillover.stores.filters import conditions, listing, prefix_range
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
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.files import transaction
from spillover.stores.sqlite.journal import fence, one
from spillover.stores.sqlite.schema import PUT_COST, PUT_FINISHED, PUT_USAGE

_KEYS: Final[dict[UsageBy, str]] = {
    **COST_KEYS,
    "queue": "queue",
    "month": f"strftime('%Y-%m', at / {SECOND}, 'unixepoch')",
}
_SELECT: Final = f"SELECT {', '.join(FINISHED_COLUMNS)} FROM archive"  # noqa: S608 - constants


class SqliteArchive:
    """The archive in the file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, jobs: Sequence[Finished], epoch: int) -> None:
        """See Archive."""

        def work(connection: apsw.Connection) -> None:
            rows = [finished_row(job) for job in jobs]
            with transaction(connection):
                fence(connection, epoch)
                connection.executemany(PUT_FINISHED, rows)
                connection.executemany("DELETE FROM costs WHERE job = ?", [(job.job,) for job in jobs])
                connection.executemany(PUT_COST, cost_rows(jobs))
                connection.executemany("DELETE FROM usage WHERE job = ?", [(job.job,) for job in jobs])
                connection.executemany(PUT_USAGE, usage_rows(jobs))

        await self._database.write(work)

    async def get(self, job: JobId) -> Finished | None:
        """See Archive."""
        found = await _select(self._database, f"{_SELECT} WHERE job = ?", [job])
        return found[0] if found else None

    async def some(self, jobs: Sequence[JobId]) -> dict[JobId, Finished]:
        """See Archive."""
        ids = msgspec.json.encode(list(jobs)).decode()
        statement = f"{_SELECT} WHERE job IN (SELECT value FROM json_each(?))"  # noqa: S608 - constants
        return {found.job: found for found in await _select(self._database, statement, [ids])}

    async def find(self, prefix: str, limit: int, project: str | None = None) -> list[JobId]:
        """See Archive."""
        members = "" if "." in prefix else "AND member = 0"
        # The plus keeps SQLite from using an index for the order. Few ids have the prefix, but many are newer.
        statement = (
            f"SELECT job FROM archive WHERE job >= ? AND job < ? {members} AND project = ifnull(?, project) "  # noqa: S608 - constants
            "ORDER BY +number DESC, +job LIMIT ?"
        )
        values = (*prefix_range(prefix), project, limit)
        return await self._database.read(
            lambda connection: [JobId(job) for (job,) in connection.execute(statement, values)]
        )

    async def keyed(self, keys: Sequence[ProjectKey]) -> dict[ProjectKey, Finished]:
        """See Archive."""

        def work(connection: apsw.Connection) -> dict[ProjectKey, Finished]:
            # Uses the index of keys, because few projects share a key.
            statement = f"{_SELECT} WHERE project = ? AND key = ? ORDER BY +number DESC, +job LIMIT 1"
            found = ((key, connection.execute(statement, key).fetchone()) for key in keys)
            return {key: finished_from(row) for key, row in found if row is not None}

        return await self._database.read(work)

    async def list(self, query: Query) -> list[Finished]:
        """See Archive."""
        where, values = conditions(query, lambda index: f"?{index}")
        values.append(query.limit)
        return await _select(
            self._database,
            f"{_SELECT} WHERE {where} ORDER BY {listing(query)} LIMIT ?{len(values)}",
            values,
        )

    async def costs(
        self, by: CostBy, since: int | None, without: Sequence[str], project: str | None = None
    ) -> Sequence[Spent]:
        """See Archive."""
        statement = (
            f"SELECT {_KEYS[by]} AS name, sum(amount), count(DISTINCT job) FROM costs "  # noqa: S608 - constants
            "WHERE at >= ? AND job NOT IN (SELECT value FROM json_each(?)) AND project = ifnull(?, project) "
            "GROUP BY name ORDER BY name"
        )
        values = (since if since is not None else -1, msgspec.json.encode(list(without)).decode(), project)
        return await self._database.read(
            lambda connection: [spent_from(by, *row) for row in connection.execute(statement, values)]
        )

    async def usage(self, query: UsageQuery) -> Sequence[Used]:
        """See Archive."""
        where = "at >= ? AND job NOT IN (SELECT value FROM json_each(?)) AND project = ifnull(?, project)"
        values: list[Any] = [
            query.since if query.since is not None else -1,
            msgspec.json.encode(list(query.without)).decode(),
            query.project,
        ]
        if query.array is not None:
            # The plus keeps SQLite from using the index of times.
            where = f"+{where} AND job >= ? AND job < ?"
            values += prefix_range(f"{query.array}.")
        statement = usage_select(query.by, _KEYS, where)
        return await self._database.read(
            lambda connection: [used_from(query.by, row) for row in connection.execute(statement, values)]
        )

    async def count(self) -> int:
        """See Archive."""
        return await self._database.read(lambda connection: one(connection, "SELECT count(*) FROM archive"))

    async def forget(self, before: int, epoch: int, but: Collection[int] = ()) -> int:
        """See Archive."""
        kept = msgspec.json.encode(list(but)).decode()

        def work(connection: apsw.Connection) -> int:
            with transaction(connection):
                fence(connection, epoch)
                gone = connection.execute(
                    "DELETE FROM archive WHERE rowid IN (SELECT rowid FROM archive WHERE finished < ? "
                    "AND number NOT IN (SELECT value FROM json_each(?)) LIMIT ?) RETURNING job",
                    (before, kept, STEP_ROWS),
                ).fetchall()
                connection.executemany("DELETE FROM costs WHERE job = ?", gone)
                connection.executemany("DELETE FROM usage WHERE job = ?", gone)
                return len(gone)

        gone = 0
        while some := await self._database.write(work):
            gone += some
        return gone


async def _select(database: SqliteDatabase, statement: str, values: Sequence[Any]) -> list[Finished]:
    return await database.read(
        lambda connection: [finished_from(row) for row in connection.execute(statement, values)]
    )
