"""Opens the store in a PostgreSQL database."""

import time
from collections.abc import Callable

from spillover.ports.journal import Unwritable
from spillover.stores.postgresql.archive import PostgresqlArchive
from spillover.stores.postgresql.audit import PostgresqlAudit
from spillover.stores.postgresql.connection import PostgresDatabase
from spillover.stores.postgresql.election import PostgresqlElection
from spillover.stores.postgresql.journal import PostgresqlJournal
from spillover.stores.postgresql.outbox import PostgresqlOutbox
from spillover.stores.postgresql.schema import prepare, require_current, stored_version
from spillover.stores.postgresql.secrets import PostgresqlSecrets
from spillover.stores.store import TERM, Store


async def open_postgresql(
    url: str, term: float = TERM, monotonic: Callable[[], float] = time.monotonic
) -> Store:
    """Create, upgrade or open the data; open a database that cannot be written for reading only."""
    database = PostgresDatabase(url)
    try:
        try:
            await prepare(database)
        except Unwritable as error:
            try:
                await require_current(database)
            except Exception as worse:
                raise error from worse
    except BaseException:
        await database.close()
        raise
    return Store(
        journal=PostgresqlJournal(database),
        election=PostgresqlElection(database, term, monotonic),
        archive=PostgresqlArchive(database),
        audit=PostgresqlAudit(database),
        secrets=PostgresqlSecrets(database),
        outbox=PostgresqlOutbox(database),
    )


async def postgresql_journal(url: str) -> PostgresqlJournal:
    """Open the journal of a database for reading, without creating or upgrading anything."""
    database = PostgresDatabase(url)
    try:
        await require_current(database)
    except BaseException:
        await database.close()
        raise
    return PostgresqlJournal(database)


async def postgresql_version(url: str) -> int:
    """Return the version of the data in a database; raise Unreadable if there is none."""
    database = PostgresDatabase(url)
    try:
        return await stored_version(database)
    finally:
        await database.close()
