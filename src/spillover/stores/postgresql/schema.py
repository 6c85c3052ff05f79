"""Defines the tables of the PostgreSQL store, and upgrades older databases.

The tables mean the same as those of SQLite. `meta` has the same form in all versions, so that any version can tell
which one the data need.
"""

from typing import Any, Final

import asyncpg

from spillover.ports.journal import Unreadable
from spillover.stores.postgresql.connection import SCHEMA, PostgresDatabase
from spillover.stores.queries import LAST
from spillover.stores.rows import (
    AUDIT_COLUMNS,
    FINISHED_COLUMNS,
    SCHEMA_VERSION,
    STEP_ROWS,
    USAGE_COLUMNS,
    cost_rows,
    finished_from,
    queue_of,
    usage_rows,
)
from spillover.stores.upgrade import batches_from_v0, finished_from_v0, refuse_newer

# Lock for creating the tables, because two servers may do so at once. The number only has to be unused.
_CREATING: Final = 0x5B111
_META: Final = "CREATE TABLE meta (name text PRIMARY KEY, value bigint NOT NULL);"
_RECORDS: Final = """
CREATE TABLE records (
    kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, body bytea NOT NULL, PRIMARY KEY (kind, key)
);
"""
_TABLES: Final = """
CREATE TABLE leader (
    epoch bigint NOT NULL,
    holder text,
    url text NOT NULL,
    renewal bigint NOT NULL
);
CREATE TABLE batches (
    first bigint PRIMARY KEY,
    last bigint NOT NULL,
    at bigint NOT NULL,
    epoch bigint NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE blobs (
    digest bytea PRIMARY KEY,
    revision bigint NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE archive (
    job text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    member smallint NOT NULL,
    state text NOT NULL,
    project text NOT NULL,
    owner text NOT NULL,
    name text NOT NULL,
    submitted bigint NOT NULL,
    finished bigint NOT NULL,
    key text,
    spec bytea NOT NULL,
    body bytea NOT NULL,
    queue text NOT NULL
);
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
_COSTS: Final = """
CREATE TABLE costs (
    job text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    project text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    cluster text COLLATE "C" NOT NULL,
    amount bigint NOT NULL
);
CREATE INDEX costs_job ON costs (job);
CREATE INDEX costs_at ON costs (at);
"""
_USAGE: Final = """
CREATE TABLE usage (
    job text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    project text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    cluster text COLLATE "C" NOT NULL,
    last bigint NOT NULL,
    cpu bigint NOT NULL,
    gpu bigint NOT NULL,
    memory bigint NOT NULL,
    cpu_measured bigint NOT NULL,
    cpu_unused bigint NOT NULL,
    memory_measured bigint NOT NULL,
    memory_unused bigint NOT NULL,
    peak bigint NOT NULL,
    cost bigint NOT NULL,
    gpu_measured bigint NOT NULL,
    gpu_unused bigint NOT NULL
);
CREATE INDEX usage_job ON usage (job);
CREATE INDEX usage_at ON usage (at);
"""
_USAGE_OF_GPUS: Final = """
ALTER TABLE usage ADD COLUMN gpu_measured bigint NOT NULL DEFAULT 0, ADD COLUMN gpu_unused bigint NOT NULL DEFAULT 0;
"""
"""Upgrades to version 7."""
_AUDIT: Final = """
CREATE TABLE audit (
    revision bigint PRIMARY KEY,
    at bigint NOT NULL,
    who text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    job text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    text text NOT NULL
);
CREATE INDEX audit_at ON audit (at, revision);
CREATE INDEX audit_who ON audit (who, revision);
CREATE INDEX audit_job ON audit (job, revision) WHERE job <> '';
INSERT INTO meta SELECT 'audited', value FROM meta WHERE name = 'compacted';
"""
_SECRETS: Final = """
CREATE TABLE secrets (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (project, name, version)
);
"""
_OUTBOX: Final = f"""
CREATE TABLE outbox (
    id text COLLATE "C" PRIMARY KEY,
    channel text COLLATE "C" NOT NULL,
    recipient text NOT NULL,
    project text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    due bigint NOT NULL,
    tries bigint NOT NULL,
    failed bigint NOT NULL,
    error text NOT NULL
);
CREATE INDEX outbox_waiting ON outbox (channel, at, id) WHERE failed = 0;
CREATE INDEX outbox_at ON outbox (at, id);
CREATE INDEX outbox_failed ON outbox (channel) WHERE failed = 1;
INSERT INTO meta VALUES ('noted', ({LAST}));
"""  # noqa: S608 - a constant
_STAGED_AND_MENTIONS: Final = """
CREATE TABLE staged (
    kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, body bytea, PRIMARY KEY (kind, key)
);
CREATE TABLE mentions (
    bucket smallint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (bucket, first)
);
INSERT INTO meta SELECT 'indexed', value FROM meta WHERE name = 'compacted';
INSERT INTO meta VALUES ('staged', 0);
"""
_REORDERED: Final = """
DROP INDEX archive_all;
CREATE INDEX archive_all ON archive (number DESC, length(job), job);
"""
_REORDERED_OUTBOX: Final = """
DROP INDEX outbox_due;
CREATE INDEX outbox_waiting ON outbox (channel, at, id) WHERE failed = 0;
"""
PUT_COST: Final = "INSERT INTO costs VALUES ($1, $2, $3, $4, $5, $6)"
PUT_USAGE: Final = (
    f"INSERT INTO usage ({', '.join(USAGE_COLUMNS)}) "  # noqa: S608 - constants
    f"VALUES ({', '.join(f'${index}' for index in range(1, len(USAGE_COLUMNS) + 1))})"
)
PUT_AUDIT: Final = (
    f"INSERT INTO audit VALUES ({', '.join(f'${index}' for index in range(1, len(AUDIT_COLUMNS) + 1))})"  # noqa: S608 - constants
)
PUT_MESSAGE: Final = (
    "INSERT INTO outbox VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING"
)
_UPDATES: Final = ", ".join(f"{column} = excluded.{column}" for column in FINISHED_COLUMNS[1:])
PUT_FINISHED: Final = (
    f"INSERT INTO archive ({', '.join(FINISHED_COLUMNS)}) "  # noqa: S608 - constants
    f"VALUES ({', '.join(f'${index}' for index in range(1, len(FINISHED_COLUMNS) + 1))}) "
    f"ON CONFLICT (job) DO UPDATE SET {_UPDATES}"
)


async def prepare(database: PostgresDatabase) -> None:
    """Create the tables, or upgrade older ones, in one transaction."""
    async with database.write() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _CREATING)
        version = await _version(connection)
        if version is None:
            await _create(connection)
        else:
            refuse_newer(version, database.name)
            if version == 0:
                await _upgrade_from_0(connection)
            elif version < 4:
                await _add_queues(connection)
            if version < 2:
                await _add_costs(connection)
            if version < 3:
                await connection.execute(_STAGED_AND_MENTIONS)
            if version < SCHEMA_VERSION:
                if version < 5:
                    await _add_usage(connection)
                else:
                    await connection.execute(_USAGE_OF_GPUS)
                if version < 6:
                    await _add_tables_of_people(connection)
                await connection.execute("UPDATE meta SET value = $1 WHERE name = 'version'", SCHEMA_VERSION)


async def require_current(database: PostgresDatabase) -> None:
    """Raise unless the data are readable as they are."""
    version = await stored_version(database)
    refuse_newer(version, database.name)
    if version < SCHEMA_VERSION:
        raise Unreadable(
            f"the data in {database.name} have version {version} and need an upgrade, but cannot be written"
        )


async def stored_version(database: PostgresDatabase) -> int:
    """Return the version of the data; raise Unreadable if there are none."""
    async with database.read() as connection:
        version = await _version(connection)
    if version is None:
        raise Unreadable(f"there is no data in {database.name}")
    return version


async def _version(connection: Any) -> int | None:
    """Return the version of a database; None for an empty one."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.meta") is None:
        return None
    return int(await connection.fetchval("SELECT value FROM meta WHERE name = 'version'"))


async def _create(connection: asyncpg.Connection) -> None:
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    await connection.execute(_META + _RECORDS + _TABLES + _COSTS + _USAGE)
    await connection.execute("INSERT INTO leader VALUES (0, NULL, '', 0)")
    await connection.execute(
        "INSERT INTO meta VALUES ('version', $1), ('checkpoint', 0), ('compacted', 0)", SCHEMA_VERSION
    )
    await connection.execute(_STAGED_AND_MENTIONS + _AUDIT + _SECRETS + _OUTBOX)


async def _upgrade_from_0(connection: asyncpg.Connection) -> None:
    """Upgrade from version 0, which the upgrade module describes."""
    for table in ("meta", "blobs", "archive"):
        await connection.execute(
            f"ALTER TABLE {table} RENAME TO {table}_v0; ALTER INDEX {table}_pkey RENAME TO {table}_v0_pkey"
        )
    await connection.execute(_META + _TABLES)
    await connection.execute(
        "INSERT INTO leader SELECT value::bigint, NULL, '', 0 FROM meta_v0 WHERE name = 'epoch'"
    )
    await connection.execute(
        "INSERT INTO meta SELECT name, value::bigint FROM meta_v0 WHERE name = 'checkpoint'"
    )
    await connection.execute(
        "INSERT INTO meta SELECT 'compacted', coalesce(min(revision) - 1, (SELECT value FROM meta WHERE name = 'checkpoint')) "
        "FROM events"
    )
    await connection.execute("INSERT INTO meta VALUES ('version', $1)", SCHEMA_VERSION)
    events = await connection.fetch("SELECT revision, at, epoch, event FROM events ORDER BY revision")
    await connection.executemany(
        "INSERT INTO batches VALUES ($1, $2, $3, $4, $5)", batches_from_v0(tuple(row) for row in events)
    )
    await connection.execute(
        "INSERT INTO blobs SELECT digest, (SELECT coalesce(max(revision), 0) FROM events), body FROM blobs_v0"
    )
    bodies = await connection.fetch("SELECT body FROM archive_v0")
    await connection.executemany(PUT_FINISHED, (finished_from_v0(body) for (body,) in bodies))
    await connection.execute("DROP TABLE meta_v0, blobs_v0, archive_v0, events")


async def _add_tables_of_people(connection: asyncpg.Connection) -> None:
    """Upgrade to version 6: add those of these tables that are not there, as not all data of version 5 have them."""
    for table, statements in (("audit", _AUDIT), ("secrets", _SECRETS), ("outbox", _OUTBOX)):
        if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.{table}") is None:
            await connection.execute(statements)
        elif table == "outbox":
            await connection.execute(_REORDERED_OUTBOX)


async def _add_queues(connection: asyncpg.Connection) -> None:
    """Upgrade to version 4: add the queue of each ended job."""
    await connection.execute("ALTER TABLE archive ADD COLUMN queue text NOT NULL DEFAULT 'default'")
    last = ""
    while rows := await connection.fetch(
        "SELECT job, body FROM archive WHERE job > $1 ORDER BY job LIMIT $2", last, STEP_ROWS
    ):
        named = [(queue, job) for job, body in rows if (queue := queue_of(body)) != "default"]
        await connection.executemany("UPDATE archive SET queue = $1 WHERE job = $2", named)
        last = rows[-1][0]
    await connection.execute(
        "CREATE INDEX archive_queue ON archive (queue, number DESC, job, submitted) WHERE member = 0"
    )


async def _add_usage(connection: asyncpg.Connection) -> None:
    """Upgrade to version 5: add what each attempt asked for and used."""
    await connection.execute(_USAGE)
    last = ""
    statement = f"SELECT {', '.join(FINISHED_COLUMNS)} FROM archive WHERE job > $1 ORDER BY job LIMIT $2"  # noqa: S608 - constants
    while rows := await connection.fetch(statement, last, STEP_ROWS):
        jobs = [finished_from(tuple(row)) for row in rows]
        await connection.executemany(PUT_USAGE, usage_rows(jobs))
        last = jobs[-1].job


async def _add_costs(connection: asyncpg.Connection) -> None:
    """Upgrade to version 2: add the cost of each attempt, and sort members by their index."""
    await connection.execute(_COSTS + _REORDERED)
    last = ""
    statement = f"SELECT {', '.join(FINISHED_COLUMNS)} FROM archive WHERE job > $1 ORDER BY job LIMIT $2"  # noqa: S608 - constants
    while rows := await connection.fetch(statement, last, STEP_ROWS):
        jobs = [finished_from(tuple(row)) for row in rows]
        await connection.executemany(PUT_COST, cost_rows(jobs))
        last = jobs[-1].job
