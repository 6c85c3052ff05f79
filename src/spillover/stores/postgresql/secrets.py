"""Stores encrypted secrets in PostgreSQL."""

from collections.abc import Sequence

from spillover.ports.secrets import SealedSecret, StoredSecret
from spillover.stores.postgresql.connection import PostgresDatabase
from spillover.stores.postgresql.journal import fence
from spillover.stores.queries import SECRET, SECRETS


class PostgresqlSecrets:
    """The encrypted values in the database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, sealed: SealedSecret, epoch: int) -> None:
        """See Secrets."""
        one = sealed.stored
        async with self._database.write() as connection:
            await fence(connection, epoch)
            await connection.execute(
                "INSERT INTO secrets VALUES ($1, $2, $3, $4, $5) "
                "ON CONFLICT (project, name, version) DO UPDATE SET key = excluded.key, body = excluded.body",
                one.project,
                one.name,
                one.version,
                one.key,
                sealed.body,
            )

    async def get(self, project: str, name: str, version: int) -> SealedSecret | None:
        """See Secrets."""
        async with self._database.read() as connection:
            row = await connection.fetchrow(SECRET, project, name, version)
        if row is None:
            return None
        return SealedSecret(StoredSecret(project, name, version, row["key"]), row["body"])

    async def list(self) -> list[StoredSecret]:
        """See Secrets."""
        async with self._database.read() as connection:
            rows = await connection.fetch(SECRETS)
        return [StoredSecret(*row) for row in rows]

    async def forget(self, versions: Sequence[StoredSecret], epoch: int) -> None:
        """See Secrets."""
        async with self._database.write() as connection:
            await fence(connection, epoch)
            await connection.executemany(
                "DELETE FROM secrets WHERE project = $1 AND name = $2 AND version = $3",
                [(each.project, each.name, each.version) for each in versions],
            )
