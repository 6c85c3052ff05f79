"""Servers whose state takes longer to load than the term of their lead."""

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from spillover.control.live import garbage as collecting
from spillover.control.live import leader as leader_module
from spillover.control.live import loading
from spillover.control.live.loop import Loop
from spillover.core import rebuild as rebuilding
from spillover.policies.loading import load
from spillover.ports.journal import Changed, Journal, Record
from spillover.server import up
from spillover.stores.memory import Shelf, open_memory
from spillover.stores.store import Store
from spillover.stores.tail import PAGE_RECORDS
from spillover.testing.stores import a_batch, lead
from tests.support.inside import form, leading
from tests.support.sameness import said_by
from tests.support.waiting import until

TERM = 0.4


class SlowJournal:
    """A journal whose records come one page in a quarter of a term, until they are let through."""

    def __init__(self, journal: Journal, pages: int) -> None:
        self._journal = journal
        self._pages = pages
        self.read = 0
        """Pages so far."""

    async def records(self, checkpoint: int) -> AsyncIterator[Sequence[Record]]:
        for _ in range(self._pages):
            await asyncio.sleep(TERM / 4)
            self.read += 1
            yield []
        async for page in self._journal.records(checkpoint):
            yield page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class Servers:
    """Servers in this process, on one set of data."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf()
        self.journals: list[SlowJournal] = []
        self.tasks: list[asyncio.Task[int]] = []
        self._folder = folder

    async def store(self, *_: object) -> Store:
        """As `open_store` would open it."""
        store = open_memory(self.shelf, TERM)
        journal = SlowJournal(store.journal, pages=12)
        self.journals.append(journal)
        return Store(journal, store.election, store.archive, store.audit, store.secrets, store.outbox)

    def up(self) -> asyncio.Task[int]:
        """One more that stands by, or leads."""
        data = self._folder / "data"
        config = up.settings_of(
            None, str(data), http="127.0.0.1:0", grpc="127.0.0.1:0", clusters=["elsewhere=agents:owned"]
        )
        task = asyncio.create_task(up._serve(config, data, 0o077, 1024, standby=True))
        self.tasks.append(task)
        return task


@pytest.fixture
async def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Servers]:
    servers = Servers(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(up, "open_store", servers.store)
    monkeypatch.setattr(leader_module, "STANDBY", 0.01)
    yield servers
    for task in servers.tasks:
        task.cancel()
    await asyncio.gather(*servers.tasks, return_exceptions=True)


async def test_of_two_servers_that_load_for_longer_than_a_term_one_leads(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    servers.up()
    await until(lambda: servers.shelf.epoch, "somebody leads")
    servers.up()
    said = ""

    def ready() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return "ready " in said

    await until(ready, "one is ready")
    assert servers.shelf.epoch == 1, "none of them took the lead from the other"
    assert servers.journals[0].read == 12
    assert servers.journals[1].read == 0


async def test_a_server_that_loses_the_lead_while_it_loads_ends_with_a_clear_line(servers: Servers) -> None:
    task = servers.up()
    await until(lambda: servers.journals and servers.journals[0].read, "loading")
    servers.shelf.epoch += 1  # as a successor would
    with pytest.raises(up.CannotStart, match="another server took over; this one stopped"):
        async with asyncio.timeout(10):
            await task
    assert servers.journals[0].read < 12


async def test_a_server_that_is_told_to_stop_while_it_loads_stops_and_resigns(servers: Servers) -> None:
    task = servers.up()
    await until(lambda: servers.journals and servers.journals[0].read, "loading")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert servers.journals[0].read < 12
    assert servers.shelf.holder is None


async def asked(url: str, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body of an answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_a_server_that_loads_says_how_far_it_is(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "TOLD", 0.0)
    before = open_memory(servers.shelf)
    epoch = await lead(before)
    await before.journal.append(0, a_batch(b"x"), epoch)
    await before.journal.checkpoint(Changed(revision=1, records={}), epoch)
    await before.election.resign(epoch)
    servers.shelf.last = 1_100_001  # as if so many events were to be applied
    with capture_logs() as logged:
        servers.up()
        await until(lambda: servers.journals and servers.journals[0].read, "loading")
        holder = servers.shelf.holder
        assert holder is not None
        assert await asked(holder.url, "/v1/health") == (200, {"status": "ok", "message": None})
        status, body = await asked(holder.url, "/v1/ready")
        assert (status, body["message"]) == (503, "loading: 0 of 1,100,000 records")
        status, body = await asked(holder.url, "/v1/jobs")
        assert (status, body["retry_after_s"]) == (503, 1.0)
    assert any(re.fullmatch(r"loading: 0 of 1,100,000 records", each["event"]) for each in logged)


@pytest.mark.parametrize("many", [1_000, 100_000])
async def test_others_have_a_turn_while_a_state_is_loaded(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(collecting, "MANY", many)
    monkeypatch.setattr(gc, "freeze", lambda: None)  # what tests leave is to be collected
    jobs, turns = 5_000, 0
    async with leading() as control:
        await control.submitting.submit([form("train", resources={"cpu": 64})] * jobs, "ada")
        await control.loop.checkpoints.write()
        await control.submitting.submit([form("later", resources={"cpu": 64})] * jobs, "ada")
        again = Loop(control.store.journal, load, control.clock)

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        await again.load()
        counting.cancel()
        assert len(again.state.jobs) == 2 * jobs
        assert said_by(again.state) == said_by(control.loop.state)
    records = jobs // PAGE_RECORDS + jobs // rebuilding.STEP
    assert turns >= records + jobs // loading.STEP
