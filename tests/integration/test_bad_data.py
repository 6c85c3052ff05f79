"""A whole server on data that nobody thought of: it costs one job, never the process or the next start."""

import asyncio
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spillover.config.config import Config
from spillover.config.read import read_config
from spillover.control.agents.requests import Introduction
from spillover.control.controllers import archiving, keeping
from spillover.control.controllers.files import FileKeeping
from spillover.control.controllers.keeping import Keeping
from spillover.control.live.clock import SystemClock
from spillover.control.live.leader import Leader
from spillover.core.events import Usage
from spillover.core.proposals import Outcome, Refusal, Result
from spillover.core.records.jobs import Job, Placed
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.ports.callers import Caller
from spillover.ports.journal import Batch
from spillover.server.files import read_whereabouts, token_of
from spillover.server.server import Server
from spillover.stores.open import open_store
from tests.support.inside import form
from tests.support.waiting import until

NODE = NodeName("n1")
HOLDER = NodeKey("onprem/n1")
CONFIG = """
apiVersion: spillover/v1
kind: Config
http: 127.0.0.1:0
grpc: 127.0.0.1:0
clusters:
  - {name: onprem, kind: agents, role: owned}
"""
USED = Usage(1)


class Serving:
    """A server of this process, with an agent that says what it is told to."""

    def __init__(self, server: Server, data: Path) -> None:
        self.server = server
        self.loop = server.loop
        self._data = data

    async def register(self) -> None:
        await self.server._agent_requests.register(
            Introduction(ClusterName("onprem"), NODE, Resources(8000, 2**40), (), {}, 0, (), 0)
        )

    async def ended(self, *names: str, value_digest: str = "", usage: Usage = USED) -> list[str]:
        """Jobs that an agent of before reports were checked says to have ended well."""
        jobs = await self.server.commands.submit([form(name) for name in names], "ada")
        for each in jobs:
            job = self.loop.state.jobs[JobId(each)]
            assert isinstance(job.phase, Placed)
            result = Result(HOLDER, job.lease, Outcome.EXITED, 0, None, usage, 0, "", b"", value_digest)
            (reply,) = await self.loop.propose(result)
            assert not isinstance(reply, Refusal), reply
        return list(jobs)

    async def archived(self, *jobs: str) -> None:
        """Wait until jobs are in the archive."""
        await until(lambda: not any(JobId(job) in self.loop.state.jobs for job in jobs), "archiving")

    def get(self, path: str) -> str:
        where = read_whereabouts(self._data)
        assert where is not None
        headers = {"authorization": f"Bearer {token_of(self._data)}"}
        with urllib.request.urlopen(urllib.request.Request(where.http + path, headers=headers)) as answer:
            return str(answer.read().decode())


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[Serving]:
    """A server that is ready."""
    config: Config = read_config(CONFIG)
    await asyncio.to_thread(data.mkdir, exist_ok=True)
    store = await open_store("sqlite", data)
    listener = socket.create_server(("127.0.0.1", 0))
    leader = Leader(store.election, SystemClock(), "test")
    server, stop = Server(config, data, store), asyncio.Event()
    assert await leader.take(server.url(listener), standby=False) is None
    running = asyncio.create_task(server.run(leader, listener, stop))
    try:
        await until(lambda: running.done() or read_whereabouts(data) is not None, "a server that is ready")
        assert not running.done(), running.exception()
        yield Serving(server, data)
        assert not running.done(), running.exception()
    finally:
        stop.set()
        await running
        await leader.resign()
        await store.close()
        listener.close()


@pytest.mark.parametrize("digest", ["{outside}", "0" * 63 + "\0", "../../outside"])
async def test_a_digest_that_is_none_ends_neither_the_server_nor_its_next_start(
    tmp_path: Path, digest: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"not ours")
    before = outside.stat().st_mtime_ns
    digest = digest.format(outside=outside)
    async with serving(tmp_path / "data") as serves:
        await serves.register()
        jobs = await serves.ended("poisoned", value_digest=digest)  # and at once it is stopped
    async with serving(tmp_path / "data") as serves:
        assert JobId(jobs[0]) in serves.loop.state.jobs
        await serves.archived(*jobs)
        await serves.register()
        others = await serves.ended("good")
        await serves.archived(*others)
        assert not serves.loop.aside
        shown = await serves.server.commands.job(jobs[0])
        assert shown.state == "SUCCEEDED"
    assert outside.stat().st_mtime_ns == before


async def test_numbers_that_no_store_holds_end_neither_the_server_nor_its_next_start(tmp_path: Path) -> None:
    most = 2**64 - 1
    async with serving(tmp_path / "data") as serves:
        await serves.register()
        jobs = await serves.ended("poisoned", usage=Usage(most, most, most))
    async with serving(tmp_path / "data") as serves:
        await serves.archived(*jobs)
        assert (await serves.server.commands.job(jobs[0])).peak_memory == 2**63 - 1


async def test_a_job_that_cannot_be_archived_is_set_aside_where_everybody_can_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: set[str] = set()
    keep = FileKeeping.keep

    async def failing(self: FileKeeping, jobs: Sequence[Job]) -> None:
        if any(job.id in bad for job in jobs):
            raise ValueError("embedded null byte")
        await keep(self, jobs)

    monkeypatch.setattr(FileKeeping, "keep", failing)
    monkeypatch.setattr(archiving, "LINGER", 0.01)
    async with serving(tmp_path / "data") as serves:
        await serves.register()
        (job,) = await serves.server.commands.submit([form("odd")], "ada")
        bad.add(job)
        found = serves.loop.state.jobs[JobId(job)]
        await serves.loop.propose(Result(HOLDER, found.lease, Outcome.EXITED, 0, None, Usage(1), 0))
        others = await serves.ended("a", "b", "c")
        await serves.archived(*others)
        await until(lambda: serves.loop.aside, "setting it aside")
    async with serving(tmp_path / "data") as serves:  # and again after a restart
        await until(lambda: serves.loop.aside, "setting it aside")
        shown = await serves.server.commands.job(job)
        (failed,) = shown.set_aside
        assert (failed.work, failed.subject, failed.reason) == (
            "archiving",
            job,
            "ValueError: embedded null byte",
        )
        assert failed.since < failed.next_try
        told = await asyncio.to_thread(serves.get, "/metrics")
        assert 'spill_set_aside{work="archiving"} 1.0' in told
        overview = await serves.server.commands.overview(0, 0, 0)
        assert [each.subject for each in overview.set_aside] == [job]
        assert overview.set_aside_in_all == 1
        bad.clear()
        await serves.archived(job)
        await until(lambda: not serves.loop.aside, "that it is archived")


async def test_a_controller_that_fails_as_a_whole_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(_: Keeping) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Keeping, "look", failing)
    monkeypatch.setattr(keeping, "EVERY", 0.01)
    async with serving(tmp_path / "data") as serves:
        await until(lambda: serves.loop.aside, "setting it aside")
        await serves.register()
        await serves.archived(*await serves.ended("a"))
        overview = await serves.server.commands.overview(0, 0, 0)
        assert [(each.work, each.subject) for each in overview.set_aside] == [("keeping", "")]
        limited = serves.server.commands.of(Caller(TokenRole.SUBMIT, project="other"))
        assert (await limited.overview(0, 0, 0)).set_aside == []


async def damaged(data: Path, event: bytes) -> None:
    """Data that end with an event that no server writes."""
    async with serving(data) as serves:
        await serves.register()
    store = await open_store("sqlite", data)
    epoch = await store.election.campaign("test", "http://test")
    assert isinstance(epoch, int)
    loaded = await store.journal.load()
    await store.journal.append(loaded.last, Batch(0, (event,)), epoch)
    await store.election.resign(epoch)
    await store.close()


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (b"\xc1", "MessagePack data is malformed"),
        (b"\x92\xa7unknown\x01", "Invalid value 'unknown'"),
        (b"\x92\xabjobs_archiv\x01", "Invalid value 'jobs_archiv'"),
    ],
)
async def test_a_journal_that_cannot_be_read_is_told_in_one_line(
    tmp_path: Path, event: bytes, why: str
) -> None:
    await damaged(tmp_path / "data", event)
    (tmp_path / "spill.yaml").write_text(CONFIG)
    words = [sys.executable, "-m", "spillover.cli", "up", "--data", "data"]
    ended = await asyncio.to_thread(
        subprocess.run, words, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert re.fullmatch(
        rf"spill: event \d+ of the journal cannot be read \(.*{re.escape(why)}.*\); "
        r"check the data folder with `spill doctor`; repair it, or restore a backup \(docs/operations.md\)",
        line,
    ), line
