"""Stores what people did in PostgreSQL."""

from collections.abc import Sequence

from msgspec.structs import astuple

from spillover.ports.audit import AuditEntry, AuditQuery
from spillover.stores.filters import audit_select
from spillover.stores.postgresql.connection import PostgresDatabase, may_be_stored
from spillover.stores.postgresql.journal import fence
from spillover.stores.postgresql.schema import PUT_AUDIT
from spillover.stores.queries import AUDITED, LAST
from spillover.stores.rows import STEP_ROWS, check_audited


class PostgresqlAudit:
    """The audit in the database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def audited(self) -> int:
        """See Audit."""
        async with self._database.read() as connection:
            return int(await connection.fetchval(AUDITED))

    async def put(self, after: int, upto: int, entries: Sequence[AuditEntry], epoch: int) -> None:
        """See Audit."""
        rows = [tuple(_storable(value) for value in astuple(entry)) for entry in entries]
        async with self._database.write() as connection:
            await fence(connection, epoch)
            check_audited(await connection.fetchval(AUDITED), after, upto, await connection.fetchval(LAST))
            await connection.executemany(PUT_AUDIT, rows)
            await connection.execute("UPDATE meta SET value = $1 WHERE name = 'audited'", upto)

    async def list(self, query: AuditQuery) -> list[AuditEntry]:
        """See Audit."""
        statement, values = audit_select(query, lambda index: f"${index}")
        if not may_be_stored(values):
            return []
        async with self._database.read() as connection:
            rows = await connection.fetch(statement, *values)
        return [AuditEntry(*row) for row in rows]

    async def forget(self, before: int, epoch: int) -> int:
        """See Audit."""
        gone = 0
        while some := await self._forget_some(before, epoch):
            gone += some
        return gone

    async def _forget_some(self, before: int, epoch: int) -> int:
        old = "SELECT revision FROM audit WHERE at < $1 LIMIT $2"
        async with self._database.write() as connection:
            await fence(connection, epoch)
            done = await connection.execute(
                f"DELETE FROM audit WHERE revision IN ({old})",  # noqa: S608 - a constant
                before,
                STEP_ROWS,
            )
        return int(done.rpartition(" ")[2])


def _storable(value: str | int) -> str | int:
    """Return a value without NUL, which texts of PostgreSQL cannot hold; a wrong one must not stop the audit."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value
