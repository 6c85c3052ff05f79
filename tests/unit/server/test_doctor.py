"""`spill doctor` finds what is wrong with a data folder, says so in one line each, and changes nothing."""

import asyncio
import fcntl
import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import apsw
import pytest
from msgspec import structs

from spillover import __version__
from spillover.client import Client, Refused, Unreachable
from spillover.config.config import Config, TelemetryConfig, Tls
from spillover.core.events import JobsAdmitted
from spillover.core.proposals import Drain, Register
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, SECOND, format_time
from spillover.ports.journal import Batch
from spillover.server.certificates import make_certificates
from spillover.server.doctor import certificates, folder
from spillover.server.doctor.checks import CHECKS, DoctorReport, examine
from spillover.server.doctor.findings import Finding, Level
from spillover.server.doctor.inspection import Inspection
from spillover.server.files import Whereabouts, write_whereabouts
from spillover.stores.open import open_store
from spillover.wire.api import (
    AgentView,
    ClusterView,
    NotificationView,
    OfferView,
    Overview,
    PolicyAxis,
    PolicyView,
    PoolView,
    SecretView,
    ServerView,
    SetAsideView,
    TokenView,
)
from spillover.wire.journal import encode_event
from tests.support.inside import Inside, leading
from tests.support.otlp import receiving

NOW = 1_800_000_000 * SECOND
"""The time of `leading`'s clock."""
INPUT = b"what a job needs"
DIGEST = hashlib.sha256(INPUT).hexdigest()


def put_blob(data: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    path = data / "blobs" / digest[:2] / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return digest


async def _write(data: Path) -> None:
    """What a server leaves that was given some jobs and stopped in good order."""
    store = await open_store("sqlite", data)
    try:
        async with leading(store) as inside:
            await inside.propose(
                Register(ClusterName("onprem"), NodeName("n1"), 1, Resources(2000), (), {}, 0, ())
            )
            await inside.submit("first", "second", "third")
            await inside.loop.checkpoints.write()
            await inside.submit(
                "needy", inputs=[{"path": "in.txt", "digest": DIGEST, "size": len(INPUT)}], queue="later"
            )
            await inside.store.election.resign(inside.loop.epoch)
    finally:
        await store.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("made") / "data"
    data.mkdir(mode=0o700)
    asyncio.run(_write(data))
    put_blob(data, INPUT)
    (data / "token").write_text("a-token\n")
    (data / "token").chmod(0o600)
    (data / "leader.lock").touch()
    return data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A data folder of a server that was stopped."""
    return Path(shutil.copytree(made, tmp_path / "data"))


def nobody() -> Client:
    raise Unreachable("no server runs in DIR; start one with `spill up`")


def examined(data: Path | None, *, connect: Callable[[], Client] = nobody, **how: Any) -> DoctorReport:
    how.setdefault("clock", lambda: NOW)
    how.setdefault("config", None)
    return examine(Inspection(data=data, connect=connect, **how))


def wrong(data: Path | None, **how: Any) -> list[Finding]:
    """All that somebody should see to."""
    return [each for each in examined(data, **how).findings if each.level is not Level.OK]


def only(data: Path | None, **how: Any) -> Finding:
    """The one thing that somebody should see to."""
    (found,) = wrong(data, **how)
    assert found.todo, "what to do about it is missing"
    return found


def contents(data: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(data)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(data.rglob("*"))
    }


# --- what is well


def test_data_of_a_server_that_was_stopped_are_well(data: Path) -> None:
    report = examined(data)
    assert report.healthy, report
    said = {each.check: each.found for each in report.findings}
    assert said["server"] == "no server runs here"
    assert said["files"] == "1 input of jobs that have not ended"
    assert said["specs"] == "4 specs of jobs that have not ended"
    assert said["journal"].endswith("as stored")


def test_looking_changes_nothing_not_even_what_sqlite_keeps_beside_its_file(data: Path) -> None:
    before = contents(data)
    examined(data)
    assert contents(data) == before


def test_a_data_folder_that_cannot_be_written_is_looked_at_as_well(data: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is read-only for root")
    data.chmod(0o500)
    try:
        assert examined(data).healthy
    finally:
        data.chmod(0o700)


def test_the_log_of_a_server_that_was_killed_is_read_and_left_as_it_is(data: Path, tmp_path: Path) -> None:
    killed = _killed_amid_writing(data, tmp_path)
    assert (killed / "spill.db-wal").stat().st_size
    before = contents(killed)
    assert examined(killed).healthy
    assert contents(killed) == before


def test_a_quick_look_replays_nothing(data: Path) -> None:
    checks = {each.check for each in examined(data, quick=True).findings}
    assert "journal" not in checks
    assert "integrity" not in checks
    assert "checkpoint" in checks


# --- what is damaged


def test_a_file_that_is_no_database_is_one_line(data: Path) -> None:
    (data / "spill.db").write_bytes(b"not a database at all" * 1000)
    found = only(data)
    assert (found.level, found.check) == (Level.PROBLEM, "store")
    assert "damaged or not a Spillover database" in found.found


def test_a_missing_database_is_one_line(data: Path) -> None:
    (data / "spill.db").unlink()
    assert only(data).found == f"there is no data in {data}"


def test_a_database_that_was_cut_off_is_told_and_never_a_traceback(data: Path) -> None:
    whole = (data / "spill.db").read_bytes()
    for size in (0, 1, 100, 512, 4096, 10_000, len(whole) // 2, len(whole) - 4096):
        (data / "spill.db").write_bytes(whole[:size])
        found = wrong(data)
        assert found, size
        assert all(each.level is Level.PROBLEM and "\n" not in each.found for each in found)


def test_bits_that_flipped_anywhere_cost_lines_and_never_the_command(data: Path) -> None:
    whole = (data / "spill.db").read_bytes()
    dice = random.Random(20261116)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(dice.choice((1, 8, 64))):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        (data / "spill.db").write_bytes(damaged)
        for found in examined(data).findings:
            assert "\n" not in found.found + found.todo
            assert found.level is Level.OK or found.todo


def test_pages_that_are_garbage_are_found_by_sqlite(data: Path) -> None:
    connection = apsw.Connection(str(data / "spill.db"))
    tables = connection.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'").fetchall()
    connection.close()
    whole = bytearray((data / "spill.db").read_bytes())
    for page in range(4, len(whole) // 4096):
        if (page + 1,) in tables:  # without them, the store cannot be opened at all
            continue
        whole[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    (data / "spill.db").write_bytes(whole)
    assert "integrity" in {each.check for each in wrong(data)}


def test_data_of_a_newer_version_are_left_to_it(data: Path) -> None:
    _execute(data, "UPDATE meta SET value = 99 WHERE name = 'version'")
    found = only(data)
    assert found.found == f"the data in {data} have version 99"
    assert "newer" in found.todo


def test_data_of_an_older_version_are_well_until_they_are_upgraded(data: Path) -> None:
    _execute(data, "UPDATE meta SET value = 1 WHERE name = 'version'")
    report = examined(data)
    assert report.healthy
    assert "the next start upgrades it" in next(
        each.found for each in report.findings if each.check == "store"
    )


def _execute(data: Path, statement: str, *values: Any) -> None:
    connection = apsw.Connection(str(data / "spill.db"))
    connection.execute(statement, values).fetchall()
    connection.close()


def _append(data: Path, *events: bytes) -> None:
    async def append() -> None:
        store = await open_store("sqlite", data)
        try:
            epoch = await store.election.campaign("test", "http://test")
            assert isinstance(epoch, int)
            last = (await store.journal.load()).last
            await store.journal.append(last, Batch(NOW, events), epoch)
            await store.election.resign(epoch)
        finally:
            await store.close()

    asyncio.run(append())


def test_what_cannot_be_read_is_read_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _execute(data, "UPDATE records SET body = x'c1' WHERE kind = 'job'")
    inspection = Inspection(data=data, config=None, connect=nobody, clock=lambda: NOW, quick=True)
    reading, read = inspection._of_journal, list[str]()

    def counted(ask: Any) -> Any:
        read.append(ask.__name__)
        return reading(ask)

    monkeypatch.setattr(inspection, "_of_journal", counted)
    examine(inspection)
    assert read == ["_restart"]


def test_an_event_that_cannot_be_read_keeps_a_server_from_starting(data: Path) -> None:
    _append(data, b"\xc1 no event")
    found = {each.check: each for each in wrong(data)}
    assert set(found) == {"checkpoint", "journal"}
    assert "a server could not start: event " in found["checkpoint"].found


def test_a_record_that_cannot_be_read_keeps_a_server_from_starting(data: Path) -> None:
    _execute(data, "UPDATE records SET body = x'c1' WHERE kind = 'job'")
    found = only(data)
    assert found.check == "checkpoint"
    assert "the checkpoint at revision" in found.found


def test_an_event_that_does_not_follow_from_those_before_it_is_named(data: Path) -> None:
    _append(data, encode_event(JobsAdmitted((), ())))
    found = only(data)
    assert found.check == "journal"
    assert "jobs_admitted is not part of the plan before it" in found.found


def test_a_state_that_contradicts_itself_is_reported(data: Path) -> None:
    _execute(data, "DELETE FROM records WHERE kind = 'job'")
    found = next(each for each in wrong(data) if each.check == "checkpoint")
    assert found.found.startswith("the state is inconsistent: ")


def _killed_amid_writing(data: Path, tmp_path: Path) -> Path:
    """The data of a server that was killed after some commits."""
    connection = apsw.Connection(str(data / "spill.db"))
    for number in range(3):
        connection.execute(f"CREATE TABLE other{number} (a)").fetchall()
    killed = Path(shutil.copytree(data, tmp_path / "killed"))
    connection.close()
    return killed


def test_commits_that_a_damaged_log_hides_are_told(data: Path, tmp_path: Path) -> None:
    """SQLite reads such a log up to the damage, and finds nothing wrong."""
    killed = _killed_amid_writing(data, tmp_path)
    log = killed / "spill.db-wal"
    damaged = bytearray(log.read_bytes())
    damaged[32 + 24 + 100] ^= 1
    log.write_bytes(damaged)
    found = only(killed)
    assert (found.level, found.check) == (Level.PROBLEM, "integrity")
    assert "commits after that cannot be read" in found.found


def test_a_log_whose_end_was_never_written_is_well(data: Path, tmp_path: Path) -> None:
    killed = _killed_amid_writing(data, tmp_path)
    log = killed / "spill.db-wal"
    log.write_bytes(log.read_bytes()[:-1000])
    assert examined(killed).healthy


def test_a_spec_that_is_gone_is_told_with_its_job(data: Path) -> None:
    _execute(data, "DELETE FROM blobs WHERE rowid = (SELECT min(rowid) FROM blobs)")
    found = only(data)
    assert found.check == "specs"
    assert found.found.startswith("1 spec is missing of jobs that have not ended: ")


def test_a_spec_that_is_garbage_is_told(data: Path) -> None:
    _execute(data, "UPDATE blobs SET body = x'c1' WHERE rowid = (SELECT min(rowid) FROM blobs)")
    assert "damaged" in only(data).found


# --- files of jobs


def test_an_input_that_is_gone_is_told_with_its_job(data: Path) -> None:
    (data / "blobs" / DIGEST[:2] / DIGEST).unlink()
    found = only(data)
    assert (found.level, found.check) == (Level.PROBLEM, "files")
    assert "files that 1 job needs are missing or have the wrong size" in found.found


def test_an_input_that_was_cut_off_is_told(data: Path) -> None:
    (data / "blobs" / DIGEST[:2] / DIGEST).write_bytes(INPUT[:3])
    assert only(data).check == "files"


def test_what_is_no_blob_is_told(data: Path) -> None:
    blobs = data / "blobs"
    (blobs / "notes.txt").write_text("x")
    (blobs / DIGEST[:2] / "thumbs.db").write_text("x")
    (blobs / DIGEST[:2] / "folder").mkdir()
    (blobs / "00").mkdir()
    (blobs / "00" / DIGEST).symlink_to(blobs / DIGEST[:2] / DIGEST)
    (blobs / "new").mkdir()
    (blobs / "new" / "half").write_text("x")
    found = only(data)
    assert (found.level, found.check) == (Level.WARNING, "blobs")
    assert found.found.startswith("4 entries are not blobs: ")


def test_marks_that_say_of_which_project_a_blob_is_are_nothing_odd(data: Path) -> None:
    (data / "blobs" / DIGEST[:2] / f"{DIGEST}.vision").touch()
    assert examined(data).healthy


def test_a_file_in_place_of_the_blobs_is_told(data: Path) -> None:
    shutil.rmtree(data / "blobs")
    (data / "blobs").touch()
    assert [each.check for each in wrong(data)] == ["files", "blobs"]


def test_a_blob_that_lost_its_bytes_is_told(data: Path) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    (data / "blobs" / other[:2]).mkdir(exist_ok=True)
    (data / "blobs" / other[:2] / other).touch()
    put_blob(data, b"")
    assert only(data).found == f"1 blob is empty that should not be: {other}"


# --- the folder


def test_others_who_may_read_the_data_are_told(data: Path) -> None:
    data.chmod(0o755)
    (data / "token").chmod(0o644)
    found = wrong(data)
    assert [(each.check, each.level) for each in found] == [
        ("data folder", Level.WARNING),
        ("token", Level.PROBLEM),
    ]
    assert [each.todo for each in found] == [f"chmod 700 {data}", f"chmod 600 {data / 'token'}"]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\x00", b"\x00\x01"])
def test_a_token_that_is_none_is_told(data: Path, content: bytes) -> None:
    (data / "token").write_bytes(content)
    assert only(data).found == f"{data / 'token'} does not hold a token"


def test_a_missing_token_is_told(data: Path) -> None:
    (data / "token").unlink()
    assert only(data).check == "token"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"http": 1}', b"[]"])
def test_a_damaged_server_json_is_told(data: Path, content: bytes) -> None:
    (data / "server.json").write_bytes(content)
    assert only(data).found == f"{data / 'server.json'} is damaged"


def gone() -> int:
    """The number of a process that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_what_a_killed_server_left_is_told(data: Path) -> None:
    pid = gone()
    write_whereabouts(data, Whereabouts("http://127.0.0.1:1", "127.0.0.1:2", 1, pid))
    (data / f".token.{pid}").touch()
    (data / ".server.json.what").touch()
    first, second = wrong(data)
    assert first.found == f".server.json.what, .token.{pid}: left by a process that ended"
    assert f"names process {pid}, which ended unexpectedly" in second.found


def test_a_server_that_does_not_answer_is_told(data: Path) -> None:
    write_whereabouts(data, Whereabouts("http://127.0.0.1:1", "127.0.0.1:2", 1, os.getpid()))
    found = only(data)
    assert (found.level, found.check) == (Level.PROBLEM, "server")
    assert found.found.startswith(f"process {os.getpid()} runs, but ")


def test_who_holds_a_lock_is_read_without_taking_it(data: Path) -> None:
    path = data / "leader.lock"
    assert folder.lock_holder(path) is None
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert folder.lock_holder(path) == os.getpid()
        assert only(data).found.startswith(f"process {os.getpid()} leads, but ")
    assert folder.lock_holder(path) is None
    assert folder.lock_holder(path, data / "no such file") is None


def test_a_disk_without_room_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, level in ((2**20, Level.PROBLEM), (2**29, Level.WARNING)):
        usage = shutil._ntuple_diskusage(2**40, 2**40 - free, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        found = only(data)
        assert (found.check, found.level) == ("disk", level)


def test_a_log_that_is_not_put_back_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "LARGE_LOG", 10)
    (data / "spill.db-wal").write_bytes(b"\0" * 11)
    assert "spill.db-wal has grown to 11" in only(data).found


# --- clocks


def test_events_of_the_future_are_told(data: Path) -> None:
    found = only(data, clock=lambda: NOW - 2 * HOUR)
    assert (found.level, found.check) == (Level.WARNING, "clock")
    assert "2h ahead of this machine's clock" in found.found


# --- a server that runs


class FakeServer:
    """Answers as a healthy server would, unless told otherwise."""

    url = "http://127.0.0.1:7070"

    def __init__(self) -> None:
        self.view = ServerView(__version__, 3, True, True, None, "USD", 10, 2, 1, {})
        self.at = NOW
        self.all_agents = [_agent("n1")]
        self.all_clusters = [_cluster("onprem")]
        self.all_tokens: list[TokenView] = []
        self.all_secrets: list[SecretView] = []
        self.unsent: list[NotificationView] = []
        self.all_pools: list[PoolView] = []
        self.axes: list[PolicyAxis] = []
        self.forbidden = False

    def server(self) -> ServerView:
        return self.view

    def overview(self, **_: int) -> Overview:
        return Overview(format_time(self.at), self.view, 0, 0.0, self.all_clusters, [], 1, [], 0, [])

    def agents(self) -> list[AgentView]:
        return self.all_agents

    def pools(self) -> list[PoolView]:
        return self.all_pools

    def policy(self) -> PolicyView:
        return PolicyView("order=fifo", self.axes, 1, 1.0, None, None, None, "order=fifo", differs=False)

    def tokens(self) -> list[TokenView]:
        if self.forbidden:
            raise Refused("a token of role submit may not do this", status=403, kind="forbidden")
        return self.all_tokens

    def secrets(self) -> list[SecretView]:
        if self.forbidden:
            raise Refused("a token of role submit may not do this", status=403, kind="forbidden")
        return self.all_secrets

    def notifications(self, *, failed: bool, limit: int | None = None) -> list[NotificationView]:
        if self.forbidden:
            raise Refused("a token of role submit may not do this", status=403, kind="forbidden")
        return [each for each in self.unsent if (each.state == "failed") is failed][:limit]

    def close(self) -> None:
        pass


def _agent(name: str, state: str = "ready", **changes: Any) -> AgentView:
    whole = {"cpu": 2.0}
    return structs.replace(AgentView(name, "onprem", state, whole, whole, 0, 0, [], {}, None), **changes)


def _cluster(name: str, state: str = "READY", kind: str = "agents", **changes: Any) -> ClusterView:
    whole = {"cpu": 2.0}
    return structs.replace(ClusterView(name, kind, "owned", state, 1, whole, whole, 0, {}), **changes)


def _token(name: str, role: str, left: int | None, state: str = "valid", note: str = "") -> TokenView:
    ends = None if left is None else format_time(NOW + left)
    at = format_time(NOW)
    return TokenView(name, role, state, None, None, None, at, "ada", ends, None, None, None, note)


def _secret(name: str, state: Literal["usable", "no_key"] = "usable") -> SecretView:
    return SecretView(name, "vision", 1, format_time(NOW), "kim", [], state)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def running(server: FakeServer, data: Path | None = None, **how: Any) -> list[Finding]:
    return wrong(data, connect=lambda: cast("Client", server), **how)


def test_a_healthy_server_elsewhere_is_asked_alone(server: FakeServer) -> None:
    report = examined(None, connect=lambda: cast("Client", server))
    assert report.healthy
    assert {each.check for each in report.findings} == {
        "server",
        "version",
        "server's clock",
        "clusters",
        "agents",
        "policies",
        "tokens",
        "set aside",
    }


def test_no_server_where_one_was_named_is_a_problem() -> None:
    assert only(None).found == "no server runs in DIR"


def test_a_server_that_accepts_nothing_is_told(server: FakeServer) -> None:
    server.view = structs.replace(server.view, writable=False, message="the disk is full")
    (found,) = running(server)
    assert found.found == "does not accept changes: the disk is full"


def test_two_versions_are_told(server: FakeServer) -> None:
    server.view = structs.replace(server.view, version="0.0.1")
    (found,) = running(server)
    assert found.found == f"the server has version 0.0.1, this command line {__version__}"


@pytest.mark.parametrize(("apart", "which"), [(HOUR, "1h ahead of"), (-HOUR, "1h behind")])
def test_clocks_that_differ_are_told(server: FakeServer, apart: int, which: str) -> None:
    server.at += apart
    (found,) = running(server)
    assert found.found == f"is {which} this machine's"


def _aside(work: str, subject: str, reason: str) -> SetAsideView:
    return SetAsideView(work, subject, reason, format_time(NOW), 1, format_time(NOW))


def test_work_that_was_set_aside_is_told(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = [_aside("archiving", "abcdefghijkl", "KeyError: 'x'"), _aside("cycle", "", "ValueError")]
    told = "the server failed on 7 pieces of work and retries: archiving of abcdefghijkl (KeyError: 'x'), cycle (ValueError)"
    troubled = structs.replace(server.overview(), set_aside=aside, set_aside_in_all=7)
    monkeypatch.setattr(server, "overview", lambda **_: troubled)
    assert [each.found for each in running(server)] == [told]


def test_a_clock_that_the_server_does_not_believe_is_told(server: FakeServer) -> None:
    said = "the clock is 3 years ahead; correct it, or say `spill clock accept`"
    server.view = structs.replace(server.view, clock=said)
    (found,) = running(server)
    assert (found.found, found.todo) == tuple(said.split("; "))


def test_agents_that_are_lost_or_did_not_come_back_are_told(server: FakeServer) -> None:
    server.all_agents = [
        _agent("n1", "lost"),
        _agent("n2", "unobserved", leased=2),
        _agent("n3", "unobserved"),
        _agent("n4", "draining", drained_by="ada"),
    ]
    lost, missing = running(server)
    assert lost.found == "1 agent is lost: onprem/n1"
    assert missing.found == "1 agent holds jobs but did not reconnect: onprem/n2"


async def _drain(data: Path) -> None:
    store = await open_store("sqlite", data)
    try:
        inside = Inside(store)
        await inside.begin()
        looping = asyncio.create_task(inside.loop.run())
        await inside.propose(Drain(ClusterName("onprem"), NodeName("n1"), "ada"))
        looping.cancel()
        await asyncio.gather(looping, return_exceptions=True)
    finally:
        await store.close()


def test_an_agent_that_was_drained_long_ago_is_told(data: Path, server: FakeServer) -> None:
    asyncio.run(_drain(data))
    server.all_agents = [_agent("n1", "draining", drained_by="ada")]
    assert running(server, data) == []
    server.at += 2 * DAY
    (found,) = running(server, data, clock=lambda: NOW + 2 * DAY)
    assert found.found == "1 agent was drained long ago: onprem/n1"


def test_clusters_that_cannot_be_used_are_told(server: FakeServer) -> None:
    since = format_time(NOW)
    server.all_clusters = [
        _cluster("onprem", "DEGRADED"),
        _cluster("cloud", "EMPTY"),
        _cluster("k1", "FAILED", "kubernetes", why="no answer", since=since),
        _cluster("k2", "DEGRADED", "kubernetes"),
        _cluster("own", "UNOBSERVED", "subprocesses"),
    ]
    found = running(server)
    levels = [Level.WARNING, Level.WARNING, Level.PROBLEM, Level.WARNING, Level.WARNING]
    assert [each.level for each in found] == levels
    assert found[2].found == "k1 is FAILED since 2027-01-15 08:00:00 UTC: no answer"
    pages = ["kubernetes", "kubernetes", "clusters"]
    assert [each.todo for each in found[2:]] == [
        f"check that it can be reached; docs/{page}.md explains each state" for page in pages
    ]


def test_a_pool_without_machines_is_well_and_one_that_is_paused_is_told(server: FakeServer) -> None:
    pool = PoolView("cloud", "aws", "open", None, [], [], 0, 4)
    server.all_clusters = [_cluster("onprem"), _cluster("cloud", "EMPTY")]
    server.all_pools = [pool]
    assert running(server) == []
    offer = OfferView("m7i", "a", False, 0.2, 4, 2**34, 0, 60, 90, format_time(NOW), "quota: no more")
    server.all_pools = [
        structs.replace(pool, state="paused", paused="3 machines in a row did not join"),
        structs.replace(pool, cluster="other", state="closed", offers=[offer]),
    ]
    first, second = running(server)
    assert first.found == "cloud is paused: 3 machines in a row did not join"
    assert first.todo == "mend that, then run `spill pools resume cloud`"
    assert second.found == "the provider of other refused all offers for now: quota: no more"
    server.all_pools = [pool]
    server.all_clusters = [_cluster("cloud", "DEGRADED", why="the provider does not answer: no route")]
    (found,) = running(server)
    assert "the provider does not answer: no route" in found.found


def test_policies_that_were_disabled_or_fail_are_told(server: FakeServer) -> None:
    axis = PolicyAxis("wait", "compute(0.1)", "compute", {}, False, 0, None)
    server.axes = [
        axis,
        structs.replace(axis, disabled="mine(2)", error="took 2 s"),
        structs.replace(axis, axis="order", policy="own", failures=3, error="ValueError: no"),
    ]
    disabled, failing = running(server)
    assert disabled.found == "wait=mine(2) was disabled: took 2 s; compute(0.1) decides instead"
    assert failing.found == "order=own failed 3 times: ValueError: no"


def test_tokens_that_end_soon_are_told_those_of_agents_first(server: FakeServer) -> None:
    server.all_tokens = [
        _token("a", "submit", 1 * DAY),
        _token("b", "agent", 13 * DAY, note="rack 4"),
        _token("c", "agent", 15 * DAY),
        _token("d", "agent", -DAY, state="expired"),
        _token("e", "admin", None),
        _token("f", "submit", 2 * DAY),
        _token("g", "submit", 3 * DAY),
    ]
    found = running(server)
    assert [each.found for each in found] == [
        "token b of role agent (rack 4) expires in 13d",
        "token a of role submit (made by ada) expires in 1d",
        "token f of role submit (made by ada) expires in 2d",
        "1 more token expires within 14 days",
    ]


def _notification(state: Literal["waiting", "failed"], tries: int) -> NotificationView:
    at = format_time(NOW)
    told = "answered with status 500"
    return NotificationView(
        "n1", "chat", "webhook/chat", "end", "job a ended", None, at, state, tries, at, told
    )


def test_notifications_that_do_not_arrive_are_told(server: FakeServer) -> None:
    server.unsent = [_notification("waiting", 1)]
    assert running(server) == []
    server.unsent = [_notification("waiting", 3)]
    (stuck,) = running(server)
    assert stuck.found == "one to chat was tried 3 times: answered with status 500"
    server.unsent = [_notification("failed", 9)]
    (failed,) = running(server)
    assert failed.level is Level.WARNING
    assert failed.found == "some could not be sent, the newest one to chat: answered with status 500"
    assert "spill notifications retry --failed" in failed.todo


def test_notifications_that_are_stuck_are_told_behind_newer_ones_that_were_not_tried(
    server: FakeServer,
) -> None:
    """The list begins with the newest, and the oldest ones were tried most; each channel is told."""
    mail = structs.replace(_notification("waiting", 2), to="ada@example.org", channel="mail")
    server.unsent = [
        *(_notification("waiting", 0), structs.replace(mail, tries=0), mail),
        *(_notification("waiting", 7), structs.replace(mail, to="bob@example.org", tries=3)),
    ]
    assert [each.found for each in running(server)] == [
        "one to bob@example.org was tried 3 times: answered with status 500",
        "one to chat was tried 7 times: answered with status 500",
    ]


def test_traces_that_do_not_arrive_are_told_by_their_server(server: FakeServer) -> None:
    said = "http://localhost:4318/v1/traces: connection refused; 3 spans waiting, 0 lost"
    server.view = structs.replace(server.view, traces=said)
    (found,) = running(server)
    assert (found.check, found.level, found.found) == ("traces", Level.WARNING, said)
    assert "`telemetry.endpoint`" in found.todo


def test_a_receiver_of_traces_that_is_dead_is_told_before_there_are_any(
    server: FakeServer, data: Path
) -> None:
    with receiving() as receiver:
        config = Config((), telemetry=TelemetryConfig(endpoint=receiver.url))
        (fine,) = [
            each
            for each in examined(data, config=config, connect=lambda: cast("Client", server)).findings
            if each.check == "traces"
        ]
        assert (fine.level, fine.found) == (Level.OK, f"go to {receiver.url}/v1/traces")
        assert receiver.spans == [], "the check sends none"
        receiver.answers.append((401, {}, b"no token"))
        (found,) = running(server, data, config=config)
        assert f"{receiver.url}/v1/traces answers 401: no token" in found.found
    (found,) = running(server, data, config=config)
    assert found.check == "traces"
    assert found.found.startswith(f"their receiver does not take them: {receiver.url}/v1/traces: ")


def test_secrets_without_a_key_are_told(server: FakeServer, tmp_path: Path) -> None:
    server.all_secrets = [_secret("db"), _secret("api", "no_key")]
    (found,) = running(server)
    assert found.found == "the server does not have the key of vision/api; tasks that use them do not start"
    server.all_secrets = [_secret("db")]
    assert running(server) == []


def test_what_a_token_may_not_see_is_not_looked_at_and_nobodys_fault(server: FakeServer) -> None:
    server.forbidden = True
    assert running(server) == []


# --- certificates


def a_config(folder: Path, days: int) -> Config:
    make_certificates(folder, ["127.0.0.1"], days)
    tls = Tls(str(folder / "server.pem"), str(folder / "server-key.pem"), str(folder / "ca.pem"))
    return Config(clusters=(), store="memory", tls=tls)


def of_certificates(config: Config, *, clock: Callable[[], int]) -> list[Finding]:
    inspection = Inspection(data=None, config=config, connect=nobody, clock=clock)
    return list(certificates.certificates(inspection))


def test_certificates_that_end_soon_or_have_ended_are_told(tmp_path: Path) -> None:
    config, now = a_config(tmp_path / "tls", 30), time.time_ns()
    well, authority = of_certificates(config, clock=lambda: now)
    assert (well.level, authority.level) == (Level.OK, Level.OK)
    soon, _ = of_certificates(config, clock=lambda: now + 20 * DAY + DAY // 2)
    assert (soon.level, soon.check) == (Level.WARNING, "certificate")
    assert f"the certificate of {config.tls.cert} expires in 9d" in soon.found  # type: ignore[union-attr]
    late, _ = of_certificates(config, clock=lambda: now + 31 * DAY)
    assert late.level is Level.PROBLEM
    assert "expired on" in late.found


def test_a_certificate_that_is_missing_is_told(tmp_path: Path) -> None:
    config = a_config(tmp_path / "tls", 30)
    (tmp_path / "tls" / "server.pem").write_text("no certificate")
    (tmp_path / "tls" / "ca.pem").unlink()
    report = examine(
        Inspection(data=None, config=config, connect=nobody), [("certificate", certificates.certificates)]
    )
    assert not report.healthy
    assert all(each.level is Level.PROBLEM for each in report.findings)


# --- checks themselves


def test_a_check_that_fails_costs_its_line_alone(data: Path) -> None:
    def failing(_: Inspection) -> Iterator[Finding]:
        yield Finding(Level.OK, "mine", "so far")
        raise RuntimeError("of two\nlines")

    report = examine(
        Inspection(data=data, config=None, connect=nobody, clock=lambda: NOW), [("mine", failing), *CHECKS]
    )
    (found,) = [each for each in report.findings if each.level is not Level.OK]
    assert found.found == "cannot be checked: RuntimeError: of two lines"
    assert len(report.findings) > 10


def test_long_checks_say_what_they_do(data: Path) -> None:
    told: list[str] = []
    examined(data, tell=told.append)
    assert "checking: journal" in told
