"""Opens the SQLite store of a data folder."""

import time
from collections.abc import Callable
from pathlib import Path

from spillover.stores.sqlite.archive import SqliteArchive
from spillover.stores.sqlite.audit import SqliteAudit
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.election import SqliteElection
from spillover.stores.sqlite.journal import SqliteJournal
from spillover.stores.sqlite.outbox import SqliteOutbox
from spillover.stores.sqlite.secrets import SqliteSecrets
from spillover.stores.store import TERM, Store


async def open_sqlite(
    folder: Path,
    term: float = TERM,
    monotonic: Callable[[], float] = time.monotonic,
    vfs: str | None = None,
) -> Store:
    """Create, upgrade or open the data. `vfs` names another SQLite file layer, for tests of disk faults."""
    database = SqliteDatabase(folder, vfs)
    await database.open()
    election = SqliteElection(database, term, monotonic)
    database.on_close(election.release)
    return Store(
        journal=SqliteJournal(database),
        election=election,
        archive=SqliteArchive(database),
        audit=SqliteAudit(database),
        secrets=SqliteSecrets(database),
        outbox=SqliteOutbox(database),
    )


def sqlite_journal(folder: Path) -> SqliteJournal:
    """Open the journal of a data folder for reading, without creating, upgrading or locking anything."""
    return SqliteJournal(SqliteDatabase(folder, untouched=True))
