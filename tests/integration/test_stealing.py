"""Real agents of a real server: work that waits at one of them is taken over by another, and runs once."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.client import Client
from spillover.core.events import JobEnded, LeaseMoved
from spillover.testing.processes import (
    ServerProcess,
    await_ends,
    clean_environment,
    nothing_left,
    read_journal,
    wait_until,
    write_config,
)

CLUSTER = {
    "name": "lab",
    "role": "owned",
    "local": [{"name": "busy", "cpu": 1, "memory": "1Gi", "queue": 64}],
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with one agent of one CPU, which is given much more than it has room for."""
    config = write_config(tmp_path, clusters=[CLUSTER], agents={"ahead": "60s"}, policy={"wait": "never"})
    server = ServerProcess(tmp_path, *config)
    server.up()
    yield server
    server.clear()
    nothing_left(tmp_path)


@pytest.fixture
def idle(server: ServerProcess) -> Iterator[Callable[..., None]]:
    """Have another agent join."""
    started: list[subprocess.Popen[bytes]] = []

    def join(name: str = "idle", *words: str) -> None:
        command = ["--data", str(server.data), "--name", name, "--cluster", "lab", "--cpu", "1", *words]
        with (server.folder / f"{name}.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "spillover.agent", *command],
                    stderr=log,
                    env=clean_environment(),
                )
            )

    yield join
    for process in started:
        process.terminate()
    for process in started:
        process.wait(20)


def backlog(server: ServerProcess, client: Client, count: int) -> tuple[str, list[str]]:
    """A long job on the only agent, and short ones behind it that were handed to it all the same."""
    warm = client.submit(run="true") + client.submit(run="true")
    client.wait(*warm, timeout=30)
    (long,) = client.submit(run=f"while [ ! -e {server.folder}/go ]; do sleep 0.05; done")
    wait_until(lambda: client.job(long).state == "RUNNING", "the start of the long job")
    short = client.submit(run=f"echo $SPILL_JOB_ID >> {server.folder}/ran", array=f"0-{count - 1}")
    wait_until(lambda: client.agents()[0].leased >= count, "the leases ahead of room")
    return long, short


def moved(server: ServerProcess) -> list[LeaseMoved]:
    return [event for event in read_journal(server.data) if isinstance(event, LeaseMoved)]


def test_what_waits_at_one_agent_runs_on_another_once(
    server: ServerProcess, idle: Callable[..., None]
) -> None:
    with server.client() as client:
        long, _ = backlog(server, client, 20)
        idle()
        ran = server.folder / "ran"
        wait_until(lambda: ran.exists() and len(ran.read_text().split()) >= 10, "work on the idle agent", 60)
        assert client.job(long).state == "RUNNING"
        by_name = {agent.name: agent for agent in client.agents()}
        assert by_name["idle"].stolen_in > 0
        assert by_name["busy"].stolen_out == by_name["idle"].stolen_in
        (server.folder / "go").touch()
        states = await_ends(client)
    assert set(states.values()) == {"SUCCEEDED"}
    lines = ran.read_text().split()
    assert len(lines) == len(set(lines)) == 20
    server.stop()
    ends = [event.job for event in read_journal(server.data) if isinstance(event, JobEnded)]
    assert len(ends) == len(set(ends))
    thefts = moved(server)
    assert thefts
    assert all((event.node, event.thief) == ("busy", "idle") for event in thefts)
