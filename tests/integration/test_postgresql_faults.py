"""PostgreSQL that goes away, refuses to write, or has a client that fell silent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from spillover.control.live.clock import SystemClock
from spillover.control.live.leader import Leader
from spillover.ports.election import Holder
from spillover.ports.journal import Fenced, Moved, Unreadable, Unwritable
from spillover.stores.open import open_store
from spillover.stores.postgresql import connection as connections
from spillover.stores.store import Store
from spillover.testing.stores import Watchface, a_batch, a_finished, events_of, lead
from tests.support.live import Told
from tests.support.postgresql import PostgresqlServer
from tests.support.waiting import turn

TERM = 1.0
"""Seconds that who leads on a road does so at the most."""


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


class Road:
    """A way to PostgreSQL that can fall silent and break."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._database = parts.path
        self._open = asyncio.Event()
        self._open.set()
        self._ends: list[asyncio.StreamWriter] = []
        self._carrying: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def carry(self) -> AsyncIterator[str]:
        """The address of the database on this road."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}{self._database}"
        finally:
            server.close()
            self.cut()
            for task in self._carrying:
                task.cancel()
            await asyncio.gather(*self._carrying, return_exceptions=True)

    def silence(self) -> None:
        """Let nothing pass, and tell nobody."""
        self._open.clear()

    def cut(self) -> None:
        """End all connections."""
        for end in self._ends:
            end.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._path)
        self._ends += [writer, far_writer]
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._carrying.add(asyncio.create_task(self._pump(source, target)))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def road(url: str) -> Road:
    return Road(url)


@pytest.fixture
async def far(road: Road, tmp_path: Path) -> AsyncIterator[Store]:
    """A store at the end of the road."""
    async with road.carry() as address:
        store = await open_store(address, tmp_path, TERM)
        yield store
        road.cut()
        await store.close()


@contextlib.asynccontextmanager
async def locked(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Nobody else can lead, write or load; who tries waits within a transaction."""
    blocker = await asyncpg.connect(url, server_settings={"search_path": "spillover"})
    await blocker.execute("BEGIN")
    await blocker.execute("LOCK TABLE leader, records IN ACCESS EXCLUSIVE MODE")
    try:
        yield blocker
    finally:
        await blocker.close()


async def blocked(blocker: asyncpg.Connection, count: int) -> None:
    """So many wait for their answer."""
    async with asyncio.timeout(20):
        while await blocker.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < count:
            pass


async def connected(url: str) -> set[int]:
    """The processes of the server that serve us."""
    admin = await asyncpg.connect(url)
    found = await admin.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'spillover'"
    )
    await admin.close()
    return {pid for (pid,) in found}


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
    async with locked(url) as blocker:
        appending = asyncio.create_task(store.journal.append(1, a_batch(b"b"), epoch))
        loading = asyncio.create_task(store.journal.load())
        await blocked(blocker, 2)
        await end_connections(url)
        with pytest.raises(Unwritable, match=r"cannot write postgresql://localhost/test\d+: .*terminat"):
            await appending
        with pytest.raises(Unreadable, match=r"cannot read postgresql://.*terminat"):
            await loading
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


@pytest.mark.parametrize("dies", [False, True])
async def test_who_is_cancelled_is_so_at_once_whatever_postgresql_does(
    far: Store, road: Road, url: str, *, dies: bool
) -> None:
    epoch = await lead(far)
    async with locked(url) as blocker:
        asking = {
            asyncio.create_task(far.journal.append(0, a_batch(b"a"), epoch)),
            asyncio.create_task(far.journal.load()),
        }
        await blocked(blocker, 2)
        road.silence()
        for task in asking:
            task.cancel()
        await turn()
        if dies:
            road.cut()
        await asyncio.wait(asking, timeout=10)
        assert [task.cancelled() for task in asking] == [True, True]


async def test_what_was_cancelled_leaves_nothing_and_holds_up_nobody(
    far: Store, store: Store, url: str
) -> None:
    epoch = await lead(far)
    async with locked(url) as blocker:
        appending = asyncio.create_task(far.journal.append(0, a_batch(b"a"), epoch))
        await blocked(blocker, 1)
        appending.cancel()
        await asyncio.wait({appending}, timeout=10)
    assert await events_of(store.journal) == []
    assert await far.journal.append(0, a_batch(b"b"), epoch) == 1
    assert await events_of(store.journal) == [(1, b"b")]


async def test_a_refusal_leaves_nothing_and_keeps_the_connection(store: Store, url: str) -> None:
    epoch = await lead(store)
    await store.journal.append(0, a_batch(b"a"), epoch)
    before = await connected(url)
    with pytest.raises(Fenced):
        await store.journal.append(1, a_batch(b"b"), epoch + 1)
    with pytest.raises(Moved):
        await store.journal.append(0, a_batch(b"b"), epoch)
    assert await store.journal.append(1, a_batch(b"c"), epoch) == 2
    assert await connected(url) == before


async def test_a_leader_holds_when_its_term_ends_though_postgresql_is_silent(
    far: Store, road: Road, url: str
) -> None:
    leader, led = Leader(far.election, SystemClock(), "one"), Told()
    leader.epoch = await lead(far)
    async with locked(url) as blocker:
        keeping = asyncio.create_task(leader.keep(led))
        await blocked(blocker, 1)
        road.silence()
        async with asyncio.timeout(10):
            await led.hears("hold")
        keeping.cancel()
        await asyncio.wait({keeping}, timeout=10)
        assert keeping.cancelled()


async def test_a_leader_resigns_in_vain_no_longer_than_a_term(far: Store, road: Road) -> None:
    leader = Leader(far.election, SystemClock(), "one")
    leader.epoch = await lead(far)
    road.silence()
    async with asyncio.timeout(10):
        await leader.resign()


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
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)):
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
