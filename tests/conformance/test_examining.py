"""Whoever only looks at a store finds what is there, and leaves it as it was."""

import asyncio
import os
from pathlib import Path

import asyncpg
import pytest

from spillover.client import Client, Unreachable
from spillover.config.config import Config
from spillover.ports.journal import StoreError, TooNew
from spillover.server.doctor.checks import examine
from spillover.server.doctor.findings import Level
from spillover.server.doctor.inspection import Inspection
from spillover.stores.open import open_journal, open_store, version_of
from spillover.stores.rows import SCHEMA_VERSION
from spillover.stores.sqlite.examining import integrity
from spillover.testing.stores import a_batch, events_of, lead
from tests.support.postgresql import PostgresqlServer


def _nobody() -> Client:
    raise Unreachable("no server runs here")


async def test_an_empty_database_of_postgresql_stays_empty(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    url = await postgresql.fresh()
    for look in (open_journal, version_of):
        with pytest.raises(StoreError, match="there is no data in"):
            await look(url, tmp_path)
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT to_regclass('spillover.meta')") is None
    finally:
        await connection.close()


async def test_the_version_of_data_is_told_whether_it_is_known_or_not(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    url = await postgresql.fresh()
    for where in ("sqlite", url):
        store = await open_store(where, tmp_path)
        await store.close()
        assert await version_of(where, tmp_path) == SCHEMA_VERSION
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE spillover.meta SET value = 99 WHERE name = 'version'")
    await connection.close()
    assert await version_of(url, tmp_path) == 99
    with pytest.raises(TooNew):
        await open_journal(url, tmp_path)


async def test_a_journal_is_read_beside_the_one_who_writes_it(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    for where in ("sqlite", await postgresql.fresh()):
        store = await open_store(where, tmp_path)
        epoch = await lead(store)
        await store.journal.append(0, a_batch(b"one"), epoch)
        reading = await open_journal(where, tmp_path)
        assert await events_of(reading) == [(1, b"one")]
        await store.journal.append(1, a_batch(b"two"), epoch)
        assert [event for _, event in await events_of(reading)] == [b"one", b"two"]
        await reading.close()
        await store.close()


async def test_a_file_that_was_read_as_one_that_nobody_writes_is_opened_anew_when_somebody_does(
    tmp_path: Path,
) -> None:
    await (await open_store("sqlite", tmp_path)).close()
    reading = await open_journal("sqlite", tmp_path)
    assert await events_of(reading) == []
    assert os.listdir(tmp_path) == ["spill.db"]  # noqa: PTH208 - a name is enough
    store = await open_store("sqlite", tmp_path)
    await store.journal.append(0, a_batch(b"one"), await lead(store))
    assert await events_of(reading) == [(1, b"one")]
    await reading.close()
    await store.close()


async def test_whether_a_file_is_whole_is_told_while_a_server_writes(tmp_path: Path) -> None:
    store = await open_store("sqlite", tmp_path)
    await store.journal.append(0, a_batch(b"one"), await lead(store))
    assert integrity(tmp_path, lambda: None) == []
    await store.close()


def test_a_store_in_postgresql_is_examined(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    async def made() -> str:
        url = await postgresql.fresh()
        await (await open_store(url, tmp_path)).close()
        return url

    url = asyncio.run(made())
    tmp_path.chmod(0o700)
    (tmp_path / "token").write_text("token")
    (tmp_path / "token").chmod(0o600)
    for where, well in ((url, True), (f"{url}x", False)):
        config = Config(clusters=(), store=where)
        report = examine(Inspection(data=tmp_path, config=config, connect=_nobody))
        found = {each.check: each for each in report.findings}
        assert (found["store"].level is Level.OK) is well, found
        assert report.healthy is well
