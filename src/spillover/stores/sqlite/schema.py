"""Defines the tables of the SQLite store, and upgrades older files.

`meta` has the same form in all versions, so that any version can tell which one the data need.
"""

from pathlib import Path
from typing import Any, Final

import apsw

from spillover.ports.journal import Unreadable
from spillover.stores.queries import LAST
from spillover.stores.rows import (
    AUDIT_COLUMNS,
    COST_COLUMNS,
    FINISHED_COLUMNS,
    SCHEMA_VERSION,
    USAGE_COLUMNS,
    cost_rows,
    finished_from,
    queue_of,
    usage_rows,
)
from spillover.stores.upgrade import batches_from_v0, finished_from_v0, refuse_newer

TABLES: Final = """
CREATE TABLE leader (
    epoch INTEGER NOT NULL,
    holder TEXT,                -- NULL without a leader
    url TEXT NOT NULL,
    renewal INTEGER NOT NULL,   -- the holder increases it at each renewal
    locked INTEGER NOT NULL     -- 1 if the holder locks a file: once that is free, the holder is dead
);
CREATE TABLE batches (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    at INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE blobs (
    digest BLOB PRIMARY KEY,
    revision INTEGER NOT NULL,  -- of the newest event that uses it
    body BLOB NOT NULL
);
CREATE TABLE archive (
    job TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    member INTEGER NOT NULL,
    state TEXT NOT NULL,
    project TEXT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    submitted INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    key TEXT,
    spec BLOB NOT NULL,
    body BLOB NOT NULL,
    queue TEXT NOT NULL
);
-- Listings leave members out, and so do their indexes. `submitted` answers `since` from the index alone.
CREATE INDEX archive_all ON archive (number DESC, length(job), job);
CREATE INDEX archive_jobs ON archive (number DESC, job, submitted) WHERE member = 0;
CREATE INDEX archive_state ON archive (state, number DESC, job, submitted) WHERE member = 0;
CREATE INDEX archive_project ON archive (project, number DESC, job, submitted) WHERE member = 0;
CREATE INDEX archive_owner ON archive (owner, number DESC, job, submitted) WHERE member = 0;
CREATE INDEX archive_name ON archive (name, number DESC, job, submitted) WHERE member = 0;
CREATE INDEX archive_queue ON archive (queue, number DESC, job, submitted) WHERE member = 0;
CREATE INDEX archive_key ON archive (key) WHERE key IS NOT NULL;
CREATE INDEX archive_finished ON archive (finished);
CREATE INDEX archive_spec ON archive (spec);
"""

COSTS: Final = """
CREATE TABLE costs (
    job TEXT NOT NULL,
    at INTEGER NOT NULL,        -- end of the attempt
    project TEXT NOT NULL,
    owner TEXT NOT NULL,
    cluster TEXT NOT NULL,
    amount INTEGER NOT NULL
);
CREATE INDEX costs_job ON costs (job);
CREATE INDEX costs_at ON costs (at);
"""

USAGE: Final = """
CREATE TABLE usage (
    job TEXT NOT NULL,
    at INTEGER NOT NULL,        -- end of the attempt
    project TEXT NOT NULL,
    owner TEXT NOT NULL,
    queue TEXT NOT NULL,
    cluster TEXT NOT NULL,
    last INTEGER NOT NULL,      -- 1 for the last attempt of a job
    cpu INTEGER NOT NULL,
    gpu INTEGER NOT NULL,
    memory INTEGER NOT NULL,
    cpu_measured INTEGER NOT NULL,
    cpu_unused INTEGER NOT NULL,
    memory_measured INTEGER NOT NULL,
    memory_unused INTEGER NOT NULL,
    peak INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    gpu_measured INTEGER NOT NULL,
    gpu_unused INTEGER NOT NULL
);
CREATE INDEX usage_job ON usage (job);
CREATE INDEX usage_at ON usage (at);
"""

USAGE_OF_GPUS: Final = """
ALTER TABLE usage ADD COLUMN gpu_measured INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN gpu_unused INTEGER NOT NULL DEFAULT 0;
"""
"""Upgrades to version 7."""

AUDIT: Final = """
CREATE TABLE audit (
    revision INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    type TEXT NOT NULL,
    job TEXT NOT NULL,
    project TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_who ON audit (who);
CREATE INDEX audit_job ON audit (job) WHERE job <> '';
INSERT INTO meta SELECT 'audited', value FROM meta WHERE name = 'compacted';
"""

SECRETS: Final = """
CREATE TABLE secrets (
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    key TEXT NOT NULL,          -- names the key that it is encrypted with
    body BLOB NOT NULL,         -- encrypted
    PRIMARY KEY (project, name, version)
) WITHOUT ROWID;
"""

OUTBOX: Final = f"""
CREATE TABLE outbox (
    id TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    recipient TEXT NOT NULL,
    project TEXT NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    due INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    failed INTEGER NOT NULL,    -- 1 if it is not sent any more
    error TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX outbox_waiting ON outbox (channel, at, id) WHERE failed = 0;
CREATE INDEX outbox_at ON outbox (at, id);
CREATE INDEX outbox_failed ON outbox (channel) WHERE failed = 1;
-- Nobody is told of what happened before there were messages.
INSERT INTO meta VALUES ('noted', ({LAST}));
"""  # noqa: S608 - a constant

STAGED_AND_MENTIONS: Final = """
CREATE TABLE staged (kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE mentions (
    bucket INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (bucket, first)
) WITHOUT ROWID;
INSERT INTO meta SELECT 'indexed', value FROM meta WHERE name = 'compacted';
INSERT INTO meta VALUES ('staged', 0);
"""

REORDERED: Final = """
DROP INDEX archive_all;
CREATE INDEX archive_all ON archive (number DESC, length(job), job);
"""

REORDERED_OUTBOX: Final = """
DROP INDEX outbox_due;
CREATE INDEX outbox_waiting ON outbox (channel, at, id) WHERE failed = 0;
"""

FIRST_TABLES: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
"""

PUT_FINISHED: Final = (
    f"INSERT OR REPLACE INTO archive ({', '.join(FINISHED_COLUMNS)}) "  # noqa: S608 - constants
    f"VALUES ({', '.join('?' * len(FINISHED_COLUMNS))})"
)
PUT_COST: Final = f"INSERT INTO costs VALUES ({', '.join('?' * len(COST_COLUMNS))})"  # noqa: S608 - constants

PUT_USAGE: Final = (
    f"INSERT INTO usage ({', '.join(USAGE_COLUMNS)}) "  # noqa: S608 - constants
    f"VALUES ({', '.join('?' * len(USAGE_COLUMNS))})"
)


PUT_AUDIT: Final = f"INSERT INTO audit VALUES ({', '.join('?' * len(AUDIT_COLUMNS))})"  # noqa: S608 - constants

PUT_MESSAGE: Final = "INSERT OR IGNORE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class NoData(Unreadable):
    """There is nothing to read, because the tables were never created."""


def version_of(connection: apsw.Connection) -> int | None:
    """Return the version of a file; None for an empty one."""
    # Query the file itself. The cached schema of the connection may be older than a change by another process.
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'").get is None:
        return None
    return int(connection.execute("SELECT value FROM meta WHERE name = 'version'").get)


def require_current(connection: apsw.Connection, folder: Path) -> None:
    """Raise unless the file is readable as it is."""
    version = version_of(connection)
    if version is None:
        raise NoData(f"there is no data in {folder}")
    refuse_newer(version, folder)
    if version < SCHEMA_VERSION:
        raise Unreadable(
            f"the data in {folder} have version {version} and need an upgrade, but cannot be written"
        )


def prepare(connection: apsw.Connection, folder: Path) -> None:
    """Create the tables, or upgrade older ones, in one transaction."""
    if version_of(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = version_of(connection)  # another process may have been faster
        if version is None:
            _create(connection)
        else:
            refuse_newer(version, folder)
            if version == 0:
                _upgrade_from_0(connection)
            elif version < 4:
                _add_queues(connection)
            if version < 2:
                _add_costs(connection)
            if version < 3:
                connection.execute(STAGED_AND_MENTIONS)
            if version < 5:
                _add_usage(connection)
            elif version < 7:
                connection.execute(USAGE_OF_GPUS)
            if version < 6:
                _add_tables_of_people(connection)
            connection.execute("UPDATE meta SET value = ? WHERE name = 'version'", (SCHEMA_VERSION,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create(connection: apsw.Connection) -> None:
    connection.execute(FIRST_TABLES + TABLES + COSTS + USAGE)
    connection.execute("INSERT INTO leader VALUES (0, NULL, '', 0, 0)")
    connection.execute(
        "INSERT INTO meta VALUES ('version', ?), ('checkpoint', 0), ('compacted', 0)", (SCHEMA_VERSION,)
    )
    connection.execute(STAGED_AND_MENTIONS + AUDIT + SECRETS + OUTBOX)


def _upgrade_from_0(connection: apsw.Connection) -> None:
    """Upgrade from version 0, which the upgrade module describes."""
    for table in ("meta", "blobs", "archive"):
        connection.execute(f"ALTER TABLE {table} RENAME TO {table}_v0")
    connection.execute(FIRST_TABLES.splitlines()[1] + TABLES)
    connection.execute(
        "INSERT INTO leader SELECT CAST(value AS INTEGER), NULL, '', 0, 0 FROM meta_v0 WHERE name = 'epoch'"
    )
    connection.execute(
        "INSERT INTO meta SELECT name, CAST(value AS INTEGER) FROM meta_v0 WHERE name = 'checkpoint'"
    )
    connection.execute(
        "INSERT INTO meta SELECT 'compacted', coalesce(min(revision) - 1, (SELECT value FROM meta WHERE name = 'checkpoint')) "
        "FROM events"
    )
    connection.execute("INSERT INTO meta VALUES ('version', ?)", (SCHEMA_VERSION,))
    events = connection.execute("SELECT revision, at, epoch, event FROM events ORDER BY revision")
    connection.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", batches_from_v0(events))
    connection.execute(
        "INSERT INTO blobs SELECT digest, (SELECT coalesce(max(revision), 0) FROM events), body FROM blobs_v0"
    )
    bodies = connection.execute("SELECT body FROM archive_v0")
    connection.executemany(PUT_FINISHED, (finished_from_v0(body) for (body,) in bodies))
    for table in ("meta_v0", "blobs_v0", "archive_v0", "events"):
        connection.execute(f"DROP TABLE {table}")


def _add_tables_of_people(connection: apsw.Connection) -> None:
    """Upgrade to version 6: add those of these tables that are not there, as not all data of version 5 have them."""
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table, statements in (("audit", AUDIT), ("secrets", SECRETS), ("outbox", OUTBOX)):
        if table not in known:
            connection.execute(statements)
        elif table == "outbox":
            connection.execute(REORDERED_OUTBOX)


def _add_queues(connection: apsw.Connection) -> None:
    """Upgrade to version 4: add the queue of each ended job."""
    connection.execute("ALTER TABLE archive ADD COLUMN queue TEXT NOT NULL DEFAULT 'default'")
    rows: list[Any] = connection.execute("SELECT job, body FROM archive").fetchall()
    named = ((queue, job) for job, body in rows if (queue := queue_of(body)) != "default")
    connection.executemany("UPDATE archive SET queue = ? WHERE job = ?", named)
    connection.execute(
        "CREATE INDEX archive_queue ON archive (queue, number DESC, job, submitted) WHERE member = 0"
    )


def _add_usage(connection: apsw.Connection) -> None:
    """Upgrade to version 5: add what each attempt asked for and used."""
    connection.execute(USAGE)
    rows = connection.execute(f"SELECT {', '.join(FINISHED_COLUMNS)} FROM archive")  # noqa: S608 - constants
    connection.executemany(PUT_USAGE, (used for row in rows for used in usage_rows([finished_from(row)])))


def _add_costs(connection: apsw.Connection) -> None:
    """Upgrade to version 2: add the cost of each attempt, and sort members by their index."""
    connection.execute(COSTS + REORDERED)
    rows = connection.execute(f"SELECT {', '.join(FINISHED_COLUMNS)} FROM archive")  # noqa: S608 - constants
    connection.executemany(PUT_COST, (cost for row in rows for cost in cost_rows([finished_from(row)])))
