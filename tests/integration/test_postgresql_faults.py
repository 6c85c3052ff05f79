"""PostgreSQL that goes away, refuses to write, or has a client that fell silent."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from spillover.ports.election import Holder
from spillover.ports.journal import Fenced, Unreadable, Unwritable
from spillover.stores.open import open_store
from spillover.stores.postgresql import connection as connections
from spillover.stores.store import Store
from spillover.testing.postgresql import PostgresqlServer
from spillover.testing.stores import Watchface, a_batch, a_finished, events_of, lead
from spillover.testing.waiting import turn


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    server = PostgresqlServer()
    yield server
    server.stop()


@pytest.fixture
async def url(server: PostgresqlServer) -> str:
    return await server.fresh()


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(url, tmp_path)
    yield store
    await store.close()


async def end_connections(url: str) -> None:
    """What a restart of the server does to its clients."""
    admin = await asyncpg.connect(url)
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'spillover'"
    )
    await admin.close()


async def test_a_lost_connection_is_told_and_opened_anew(store: Store, url: str) -> None:
    epoch = await lead(store)
    batch = a_batch(b"a")
    assert await store.journal.append(0, batch, epoch) == 1
    blocker = await asyncpg.connect(url, server_settings={"search_path": "spillover"})
    await blocker.execute("BEGIN")
    await blocker.execute("LOCK TABLE leader, records IN ACCESS EXCLUSIVE MODE")
    appending = asyncio.create_task(store.journal.append(1, a_batch(b"b"), epoch))
    loading = asyncio.create_task(store.journal.load())
    while await blocker.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < 2:
        pass
    await end_connections(url)
    with pytest.raises(Unwritable, match=r"cannot write postgresql://localhost/test\d+: .*terminat"):
        await appending
    with pytest.raises(Unreadable, match="cannot read postgresql://"):
        await loading
    await blocker.close()
    assert await store.journal.append(0, batch, epoch) == 1
    assert await store.journal.append(1, a_batch(b"b"), epoch) == 2
    assert await events_of(store.journal) == [(1, b"a"), (2, b"b")]


async def test_a_cancelled_append_may_be_asked_again(store: Store) -> None:
    epoch = await lead(store)
    appending = asyncio.create_task(store.journal.append(0, a_batch(b"a"), epoch))
    await turn()
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert await store.journal.append(0, a_batch(b"a"), epoch) == 1
    assert await events_of(store.journal) == [(1, b"a")]


async def test_a_database_that_may_only_be_read_is_opened_and_read(
    store: Store, url: str, tmp_path: Path
) -> None:
    epoch = await lead(store)
    await store.journal.append(0, a_batch(b"a"), epoch)
    await store.archive.put([a_finished()], epoch)
    admin = await asyncpg.connect(url)
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await admin.close()
    reader = await open_store(url, tmp_path)
    assert await events_of(reader.journal) == [(1, b"a")]
    assert await reader.archive.count() == 1
    with pytest.raises(Unwritable, match="read-only transaction"):
        await reader.election.campaign("two", "")
    with pytest.raises(Unwritable, match="read-only transaction"):
        await reader.journal.append(1, a_batch(b"b"), epoch)
    await reader.close()


async def test_a_client_that_falls_silent_within_a_write_does_not_keep_others_from_leading(
    store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await lead(store) == 1
    silent = await asyncpg.connect(
        url, server_settings=connections.WRITING | {"idle_in_transaction_session_timeout": "200ms"}
    )
    await silent.execute("BEGIN")
    await silent.execute("SELECT epoch FROM leader FOR UPDATE")
    clock = Watchface()
    other = await open_store(url, tmp_path, 10, clock)
    assert isinstance(await other.election.campaign("two", ""), Holder)
    clock.now = 10
    assert await other.election.campaign("two", "") == 2
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await silent.execute("UPDATE leader SET epoch = 1")
    silent.terminate()
    with pytest.raises(Fenced):
        await store.journal.append(0, a_batch(b"late"), 1)
    await other.close()


async def test_a_takeover_and_an_append_at_once_are_one_after_the_other(
    store: Store, url: str, tmp_path: Path
) -> None:
    epoch = await lead(store)
    clock = Watchface()
    other = await open_store(url, tmp_path, 10, clock)
    await other.election.campaign("two", "")
    clock.now = 10
    appended, taken = await asyncio.gather(
        store.journal.append(0, a_batch(b"a"), epoch),
        other.election.campaign("two", ""),
        return_exceptions=True,
    )
    assert taken == 2
    if isinstance(appended, Fenced):
        assert await events_of(other.journal) == []
    else:
        assert appended == 1
        assert await events_of(other.journal) == [(1, b"a")]
    await other.close()


async def test_servers_that_start_together_on_an_empty_database_agree(url: str, tmp_path: Path) -> None:
    stores = await asyncio.gather(*(open_store(url, tmp_path) for _ in range(4)))
    answers = await asyncio.gather(*(store.election.campaign("x", "") for store in stores))
    assert sorted(isinstance(answer, int) for answer in answers) == [False, False, False, True]
    for store in stores:
        await store.close()


async def test_a_server_that_is_not_there_is_a_clear_error_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match=r"cannot write postgresql://localhost/spill: ") as refused:
        await open_store(f"postgresql://ada:secret@/spill?host={tmp_path}", tmp_path)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_database_that_does_not_exist_is_a_clear_error(
    server: PostgresqlServer, tmp_path: Path
) -> None:
    with pytest.raises(
        Unwritable, match='cannot write postgresql://localhost/nowhere: database "nowhere" does not exist'
    ):
        await open_store(server.url("nowhere"), tmp_path)


async def test_a_closed_store_says_so(url: str, tmp_path: Path) -> None:
    store = await open_store(url, tmp_path)
    await store.close()
    with pytest.raises(Unwritable, match="the store is closed"):
        await store.election.campaign("one", "")
