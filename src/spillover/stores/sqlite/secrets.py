"""Stores encrypted secrets in SQLite."""

from collections.abc import Sequence
from typing import Any

import apsw

from spillover.ports.secrets import SealedSecret, StoredSecret
from spillover.stores.queries import SECRET, SECRETS
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.files import transaction
from spillover.stores.sqlite.journal import fence


class SqliteSecrets:
    """The encrypted values in the file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, sealed: SealedSecret, epoch: int) -> None:
        """See Secrets."""
        one = sealed.stored
        row = (one.project, one.name, one.version, one.key, sealed.body)

        def work(connection: apsw.Connection) -> None:
            with transaction(connection):
                fence(connection, epoch)
                connection.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?, ?, ?, ?)", row)

        await self._database.write(work)

    async def get(self, project: str, name: str, version: int) -> SealedSecret | None:
        """See Secrets."""
        rows: list[Any] = await self._database.read(
            lambda connection: connection.execute(SECRET, (project, name, version)).fetchall()
        )
        for key, body in rows:
            return SealedSecret(StoredSecret(project, name, version, key), body)
        return None

    async def list(self) -> list[StoredSecret]:
        """See Secrets."""
        return await self._database.read(
            lambda connection: [StoredSecret(*row) for row in connection.execute(SECRETS)]
        )

    async def forget(self, versions: Sequence[StoredSecret], epoch: int) -> None:
        """See Secrets."""
        rows = [(each.project, each.name, each.version) for each in versions]

        def work(connection: apsw.Connection) -> None:
            with transaction(connection):
                fence(connection, epoch)
                connection.executemany(
                    "DELETE FROM secrets WHERE project = ? AND name = ? AND version = ?", rows
                )

        await self._database.write(work)
