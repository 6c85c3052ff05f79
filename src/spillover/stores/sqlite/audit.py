"""Stores what people did in SQLite."""

from collections.abc import Sequence

import apsw
from msgspec.structs import astuple

from spillover.ports.audit import AuditEntry, AuditQuery
from spillover.stores.filters import audit_select
from spillover.stores.queries import AUDITED, LAST
from spillover.stores.rows import STEP_ROWS, check_audited
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.files import transaction
from spillover.stores.sqlite.journal import fence, one
from spillover.stores.sqlite.schema import PUT_AUDIT


class SqliteAudit:
    """The audit in the file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def audited(self) -> int:
        """See Audit."""
        return await self._database.read(lambda connection: one(connection, AUDITED))

    async def put(self, after: int, upto: int, entries: Sequence[AuditEntry], epoch: int) -> None:
        """See Audit."""
        rows = [astuple(entry) for entry in entries]

        def work(connection: apsw.Connection) -> None:
            with transaction(connection):
                fence(connection, epoch)
                check_audited(one(connection, AUDITED), after, upto, one(connection, LAST))
                connection.executemany(PUT_AUDIT, rows)
                connection.execute("UPDATE meta SET value = ? WHERE name = 'audited'", (upto,))

        await self._database.write(work)

    async def list(self, query: AuditQuery) -> list[AuditEntry]:
        """See Audit."""
        statement, values = audit_select(query, lambda index: f"?{index}")
        return await self._database.read(
            lambda connection: [AuditEntry(*row) for row in connection.execute(statement, values)]
        )

    async def forget(self, before: int, epoch: int) -> int:
        """See Audit."""
        old = "SELECT revision FROM audit WHERE at < ? LIMIT ?"

        def work(connection: apsw.Connection) -> int:
            with transaction(connection):
                fence(connection, epoch)
                connection.execute(f"DELETE FROM audit WHERE revision IN ({old})", (before, STEP_ROWS))  # noqa: S608 - a constant
                return connection.changes()

        gone = 0
        while some := await self._database.write(work):
            gone += some
        return gone
