"""A server that stands by while its store fails: it waits, shows nothing of its own, and leads when it may."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from spillover.control.live import leader as leader_module
from spillover.ports.election import Holder
from spillover.ports.journal import Loaded, StoreError, Unreadable, Unwritable
from spillover.server import server as server_module
from spillover.server import up
from spillover.stores.memory import Shelf, open_memory
from spillover.stores.store import Store
from spillover.testing.stores import lead
from tests.support.waiting import until


class Troubled:
    """An election that cannot be asked while told so."""

    term = 1000.0

    def __init__(self, store: Store) -> None:
        self._election = store.election
        self.fault: StoreError | None = None
        """None while all is well."""
        self.campaigns = 0

    async def campaign(self, name: str, url: str, least: int = 0) -> int | Holder:
        self.campaigns += 1
        if self.fault is not None:
            raise self.fault
        return await self._election.campaign(name, url, least)

    async def renew(self, epoch: int) -> bool:
        return await self._election.renew(epoch)

    async def resign(self, epoch: int) -> None:
        await self._election.resign(epoch)

    async def holder(self) -> Holder | None:
        return await self._election.holder()


class Standby:
    """A server that is told to stand by, beside one that leads."""

    epoch = 0
    """Of the one that leads."""

    def __init__(self, printed: Callable[[], str], logged: Sequence[Mapping[str, object]]) -> None:
        shelf = Shelf()
        self.other = open_memory(shelf)
        store = open_memory(shelf, Troubled.term)
        self.journal = store.journal
        self.election = Troubled(store)
        self.store = Store(
            store.journal, self.election, store.archive, store.audit, store.secrets, store.outbox
        )
        self._printed = printed
        self._said = ""
        self._logged = logged

    async def says(self, word: str) -> str:
        """The URL that it prints behind a word, once it does."""

        def said() -> list[str]:
            self._said += self._printed()
            return [line for line in self._said.splitlines() if line.startswith(f"{word} ")]

        await until(said, f"printing {word}")
        return said()[-1].split()[1]

    def logged(self, event: str) -> int:
        """How often it logged something."""
        return sum(each["event"] == event for each in self._logged)

    async def logs(self, event: str) -> None:
        """Return once it logged something."""
        await until(lambda: self.logged(event), f"logging {event!r}")

    async def asks(self) -> None:
        """Return once it asked again who leads, and then again."""
        asked = self.election.campaigns
        await until(lambda: self.election.campaigns >= asked + 2, "asking again", every=0.001)


@pytest.fixture
async def standby(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Standby]:
    with capture_logs() as logged:
        standby = Standby(lambda: capsys.readouterr().out, logged)

        async def opened(*_: object) -> Store:
            return standby.store

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(up, "open_store", opened)
        monkeypatch.setattr(server_module, "RETRY", 0.001)
        monkeypatch.setattr(leader_module, "STANDBY", 0.001)
        standby.epoch = await lead(standby.other)
        yield standby


@asynccontextmanager
async def started(data: Path) -> AsyncIterator[None]:
    """The server runs meanwhile, and ends well."""
    config = up.settings_of(
        None, str(data), http="127.0.0.1:0", grpc="127.0.0.1:0", clusters=["elsewhere=agents:owned"]
    )
    serving = asyncio.create_task(up._serve(config, data, 0o077, 1024, standby=True))
    try:
        yield
    finally:
        if not serving.done():
            signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            code = await serving
    assert code == 0


async def answers(url: str) -> bool:
    """Whether anybody listens there."""
    place = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(place.hostname, place.port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_a_standby_whose_store_fails_at_first_shows_data_only_until_it_hears_who_leads(
    standby: Standby, tmp_path: Path
) -> None:
    standby.election.fault = Unwritable("another process holds its lock")
    async with started(tmp_path / "data"):
        url = await standby.says("read-only")
        assert await answers(url)
        standby.election.fault = None
        await standby.logs("standing by")
        assert not await answers(url), "what it would show is as old as its last look"
        await standby.other.election.resign(standby.epoch)
        assert await standby.says("ready") == url
        assert await answers(url)


async def test_a_standby_goes_on_when_the_store_can_be_neither_written_nor_read_for_a_while(
    standby: Standby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable() -> Loaded:
        raise Unreadable("the connection is lost")

    async with started(tmp_path / "data"):
        await standby.logs("standing by")
        with monkeypatch.context() as away:
            away.setattr(standby.journal, "load", unreadable)
            standby.election.fault = Unwritable("the connection is lost")
            await standby.asks()
            standby.election.fault = None
        await standby.other.election.resign(standby.epoch)
        assert await answers(await standby.says("ready"))
    assert standby.logged("cannot see which server leads; standing by") == 1, "which is said once"


async def test_a_server_that_shows_data_leads_when_they_can_be_written(
    standby: Standby, tmp_path: Path
) -> None:
    await standby.other.election.resign(standby.epoch)
    standby.election.fault = Unwritable("the disk is full")
    async with started(tmp_path / "data"):
        url = await standby.says("read-only")
        standby.election.fault = None
        assert await standby.says("ready") == url
