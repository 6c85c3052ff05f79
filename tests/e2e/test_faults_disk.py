"""Data that cannot be written: submitters hear why, reading goes on, nothing acknowledged is lost, and room is enough to go on."""

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.client import Client, Unavailable
from spillover.core.events import EpochStarted, JobEnded, JobSubmitted
from spillover.stores.store import TERM
from tests.support.processes import ServerProcess, await_ends, read_journal, wait_until

pytestmark = pytest.mark.slow


class Small:
    """A file system of its own, of a few megabytes."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def remount(self, mode: str) -> None:
        """Change how it is mounted. A process that is ending has no memory any more when it closes its last files."""
        words = ["mount", "-o", f"remount,{mode}", str(self.where)]
        wait_until(
            lambda: subprocess.run(words, capture_output=True, check=False).returncode == 0,
            f"a file system that is mounted {mode}",
        )

    def fill(self) -> None:
        with (self.where / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass

    def clear(self) -> None:
        (self.where / "filler").unlink()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    if shutil.which("mount") is None:
        pytest.skip("needs mount")
    where = tmp_path / "small"
    where.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(where)], capture_output=True, check=False
    ).returncode:
        pytest.skip("needs the right to mount")
    yield Small(where)
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def submit_until_refused(client: Client, most: int = 5000) -> tuple[list[str], Unavailable]:
    """Submit one by one; the ids that were acknowledged, and the refusal."""
    taken: list[str] = []
    for number in range(most):
        try:
            taken += client.submit(run="true", key=f"job-{number}", env={"LOAD": "x" * 2000})
        except Unavailable as refusal:
            return taken, refusal
    raise AssertionError("it was never refused")


def fill_up(client: Client) -> list[str]:
    """Submit until the server stays read-only; the ids that were acknowledged.

    A refusal alone does not mean that nothing fits. The server tries to write a few bytes every second, and opening the
    file again moves the log into the file, which makes room in the log.
    """
    taken: list[str] = []
    quiet = 0
    while quiet < 5:
        try:
            taken += client.submit(run="true", env={"LOAD": "x" * 2000} if quiet == 0 else {})
            quiet = 0
        except Unavailable:
            wait_for(0.7)
            quiet = quiet + 1 if client.ready() else 0
    return taken


def nothing_lost(server: ServerProcess, taken: list[str]) -> None:
    """Hold what was acknowledged against the journal of a server that has stopped."""
    events = read_journal(server.data)
    assert [event.epoch for event in events if isinstance(event, EpochStarted)] == [1]
    submitted = [event.job for event in events if isinstance(event, JobSubmitted)]
    ended = [event.job for event in events if isinstance(event, JobEnded)]
    assert sorted(submitted) == sorted(ended) == sorted(taken)


def read_only_service(server: ServerProcess, client: Client, taken: list[str], says: str) -> None:
    """What people see of a server that cannot write."""
    typed = server.spill("run", "--", "true")
    assert (typed.returncode, typed.stdout, typed.stderr.count("\n")) == (2, "", 1)
    assert says in typed.stderr
    assert client.job(taken[0]).id == taken[0]
    assert len(list(client.jobs(limit=10))) == min(10, len(taken))
    view = client.server()
    assert not view.writable
    assert says in (view.message or "")
    assert says in (client.ready() or "")
    assert server.spill("ls").returncode == 0


@pytest.mark.parametrize("outage", [0.0, TERM + 3])
def test_a_full_disk_is_a_clear_error_and_room_is_enough_to_go_on(
    servers: Callable[..., ServerProcess], small: Small, outage: float
) -> None:
    server = servers(data=small.where / "data").up()
    with server.client() as client:
        [first] = client.submit(run="true")
        client.wait(first, timeout=20)
        small.fill()
        taken, refusal = submit_until_refused(client)
        taken.insert(0, first)
        assert "the disk is full" in str(refusal) or "No space left" in str(refusal)
        read_only_service(server, client, taken, "spill.db")
        wait_for(outage)
        read_only_service(server, client, taken, "spill.db")
        small.clear()
        wait_until(lambda: client.ready() is None, "accepting work again")
        taken += client.submit(run="true", key="room")
        await_ends(client)
    assert server.stop() == 0
    assert "Traceback" not in server.last_words()
    nothing_lost(server, taken)


def test_a_file_that_may_not_grow_is_a_clear_error_and_nothing_acknowledged_is_lost(
    servers: Callable[..., ServerProcess],
) -> None:
    """For machines where nothing may be mounted: a limit on the size of files stands for the full disk."""
    server = servers(clusters=[ELSEWHERE])
    server.up(limits=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000)))
    with server.client() as client:
        taken, refusal = submit_until_refused(client)
        assert taken
        assert f"cannot write {server.data}/spill.db" in str(refusal)
        taken += fill_up(client)
        read_only_service(server, client, taken, "spill.db")
    assert server.stop() == 0
    server.up()
    with server.client() as client:
        assert {job.id for job in client.jobs()} == set(taken)
        again = client.submit(run="true", key="job-0", env={"LOAD": "x" * 2000})
        assert again == taken[:1]


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_data_that_cannot_be_written_from_the_start_are_shown_until_they_can(
    servers: Callable[..., ServerProcess], small: Small, fault: str
) -> None:
    server = servers(data=small.where / "data").up()
    token = (server.data / "token").read_text().strip()
    with server.client() as client:
        [job] = client.submit(run="true")
        client.wait(job, timeout=20)
    server.kill()
    server.end_agents()
    small.fill() if fault == "full" else small.remount("ro")
    server.launch()
    assert server.await_ready(word="read-only") == server.url
    assert f"cannot write {server.data}/spill.db" in server.last_words()
    with Client(server=server.url, token=token) as client:
        read_only_service(server, client, [job], "spill.db")
        assert client.job(job).state == "SUCCEEDED"
        with pytest.raises(Unavailable, match=r"not accepting changes: cannot write .*spill\.db"):
            client.submit(run="true")
        small.clear() if fault == "full" else small.remount("rw")
        server.await_ready()
        [after] = client.submit(run="true")
        assert client.wait(after, timeout=20)[0].state == "SUCCEEDED"
    assert "Traceback" not in server.last_words()


def test_a_server_that_shows_data_which_cannot_be_written_can_be_stopped(
    servers: Callable[..., ServerProcess], small: Small
) -> None:
    server = servers(data=small.where / "data").up()
    assert server.stop() == 0
    small.remount("ro")
    server.launch()
    server.await_ready(word="read-only")
    assert server.stop(seconds=5) == 0
    assert "Traceback" not in server.last_words()


ELSEWHERE = {"name": "elsewhere", "kind": "agents", "role": "owned"}
"""A cluster without an agent, so that nothing else writes."""


def wait_for(seconds: float) -> None:
    """Let real time pass: the outage is to outlast the term of the lead."""
    if seconds:
        subprocess.run(["sleep", str(seconds)], check=True)
