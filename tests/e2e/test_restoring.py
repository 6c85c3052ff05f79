"""Going back to a backup: what it knows goes on, what it does not know ends, and nothing counts twice."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess, alive, wait_until, write_config

WAITS = 'echo "$SPILL_ATTEMPT $$" >> "$0.runs"; while [ ! -e "$0.go" ]; do sleep 0.05; done; cat input'


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with two machines of one CPU, whose tasks outlive it."""
    clusters = [{"name": "onprem", "local": [{"name": f"n{n}", "cpu": 1, "memory": "1Gi"} for n in (1, 2)]}]
    # With shorter heartbeats, a task whose start the server has not heard of would not outlive a restart.
    settings = {"heartbeat": "2s", "on_shutdown": "keep"}
    server = ServerProcess(tmp_path, *write_config(tmp_path, clusters=clusters, agents=settings))
    try:
        yield server.up()
    finally:
        server.clear()


def submit(lab: ServerProcess, name: str, *options: str) -> str:
    (lab.folder / "input").write_text(f"for {name}\n")
    command = ("sh", "-c", WAITS, str(lab.folder / name))
    done = lab.spill("run", "--name", name, "--input", "input", *options, "--", *command)
    assert done.returncode == 0, done
    return done.stdout.split()[0]


def runs(lab: ServerProcess, name: str) -> list[tuple[int, int]]:
    """Attempt and process of each time that a job ran."""
    file = lab.folder / f"{name}.runs"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(attempt), int(pid)) for attempt, pid in (line.split() for line in lines)]


def ran(lab: ServerProcess, name: str, times: int) -> None:
    wait_until(lambda: len(runs(lab, name)) == times, f"run {times} of {name}")


def let(lab: ServerProcess, name: str) -> None:
    (lab.folder / f"{name}.go").touch()


def back_up(lab: ServerProcess, to: Path) -> None:
    """Copy the database, then the blobs, as the page of operations says."""
    to.mkdir()
    with (
        closing(sqlite3.connect(lab.data / "spill.db")) as database,
        closing(sqlite3.connect(to / "spill.db")) as copy,
    ):
        database.backup(copy)
    shutil.copytree(lab.data / "blobs", to / "blobs")


def restore(lab: ServerProcess, source: Path) -> None:
    for name in ("spill.db", "spill.db-wal", "spill.db-shm"):
        (lab.data / name).unlink(missing_ok=True)
    shutil.rmtree(lab.data / "blobs")
    shutil.copy2(source / "spill.db", lab.data)
    shutil.copytree(source / "blobs", lab.data / "blobs")


def test_a_server_goes_on_from_a_backup(lab: ServerProcess, tmp_path: Path) -> None:
    runs_on = submit(lab, "runs-on")
    ended = submit(lab, "ended", "--retry-lost", "0")
    later = submit(lab, "later")
    ran(lab, "runs-on", 1)
    ran(lab, "ended", 1)
    with lab.client() as client:  # what the server does not know to run is run again
        wait_until(
            lambda: {client.job(each).state for each in (runs_on, ended)} == {"RUNNING"}, "both starts"
        )
    back_up(lab, tmp_path / "backup")

    let(lab, "ended")
    with lab.client() as client:
        assert client.wait(ended, timeout=30)[0].state == "SUCCEEDED"
    ran(lab, "later", 1)  # under a lease that the backup does not know
    unknown = submit(lab, "unknown")
    lab.kill()
    lab.up()  # epochs begin that the backup does not know
    lab.kill()
    lab.up()
    lab.kill()
    restore(lab, tmp_path / "backup")

    lab.up("--restored")
    ran(lab, "later", 2)
    (_, first), (attempt, second) = runs(lab, "later")
    assert attempt == 1, "in the book of the backup it never ran"
    wait_until(lambda: not alive(first), "the end of the task that the backup does not know")
    assert alive(second)
    with lab.client() as client:
        # Lost, unless its agent still had the result, because the server of then had not confirmed it.
        wait_until(
            lambda: client.job(ended).state in {"FAILED", "SUCCEEDED"},
            "the end of what the backup has running",
        )
        assert len(runs(lab, "ended")) == 1
        let(lab, "runs-on")
        let(lab, "later")
        assert [job.state for job in client.wait(runs_on, later, timeout=30)] == ["SUCCEEDED"] * 2
        assert [each.id for each in client.jobs() if each.id == unknown] == []
        assert len(runs(lab, "runs-on")) == 1, "its task went on"
        assert len(runs(lab, "later")) == 2
    assert lab.spill("logs", "later").stdout == "for later\n", "of the run that counts"
    assert lab.spill("replay").returncode == 0
    fresh = submit(lab, "fresh")
    let(lab, "fresh")
    with lab.client() as client:
        assert client.wait(fresh, timeout=30)[0].state == "SUCCEEDED"


def test_agents_refuse_a_backup_until_it_is_called_one(lab: ServerProcess, tmp_path: Path) -> None:
    job = submit(lab, "job")
    ran(lab, "job", 1)
    back_up(lab, tmp_path / "backup")
    for _ in range(2):
        lab.kill()
        lab.up()
        wait_until(lambda: "ready" in lab.spill("agents").stdout.lower(), "the registration of an agent")
    lab.kill()
    restore(lab, tmp_path / "backup")
    lab.up()
    wait_until(lambda: "start it with `spill up --restored`" in lab.log.read_text(), "the advice in the log")
    lab.stop()
    lab.up("--restored")
    let(lab, "job")
    with lab.client() as client:
        assert client.wait(job, timeout=30)[0].state == "SUCCEEDED"
    assert len(runs(lab, "job")) == 1
