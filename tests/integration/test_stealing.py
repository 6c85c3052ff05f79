"""Real agents of a real server: work that waits at one of them is taken over by another, and runs once."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from spillover.client import Client
from spillover.core.events import JobEnded, LeaseMoved
from tests.support.processes import (
    ServerProcess,
    await_ends,
    clean_environment,
    nothing_left,
    read_journal,
    wait_until,
    write_config,
)

Join: TypeAlias = "Callable[..., subprocess.Popen[bytes]]"
CLUSTER = {"name": "lab", "role": "owned"}
AGENT = "from spillover.agent.__main__ import main; main()"
LIAR = f"""
from spillover.agent.connection.peers import Peers
async def nowhere(self):
    return "127.0.0.1:1"
Peers.open = nowhere
{AGENT}
"""
"""An agent that nobody can reach where it says that it is."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose agents are given much more than they have room for."""
    config = write_config(
        tmp_path, clusters=[CLUSTER], agents={"ahead": "60s", "heartbeat": "500ms"}, policy={"wait": "never"}
    )
    server = ServerProcess(tmp_path, *config)
    server.up()
    yield server
    server.clear()
    nothing_left(tmp_path)


@pytest.fixture
def join(server: ServerProcess) -> Iterator[Join]:
    """Have an agent of one CPU join."""
    started: list[subprocess.Popen[bytes]] = []

    def join(name: str, script: str = AGENT) -> "subprocess.Popen[bytes]":
        command = ["--data", str(server.data), "--name", name, "--cluster", "lab", "--cpu", "1"]
        with (server.folder / f"{name}.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-c", script, *command], stderr=log, env=clean_environment()
                )
            )
        return started[-1]

    yield join
    for process in started:
        process.terminate()
    for process in started:
        process.wait(20)


def backlog(server: ServerProcess, client: Client, count: int) -> str:
    """A long job on the only agent, and short ones behind it that were handed to it all the same; returns the long one."""
    warm = client.submit(run="true") + client.submit(run="true")
    client.wait(*warm, timeout=30)
    (long,) = client.submit(run=f"while [ ! -e {server.folder}/go ]; do sleep 0.05; done")
    wait_until(lambda: client.job(long).state == "RUNNING", "the start of the long job")
    client.submit(run=f"echo $SPILL_JOB_ID >> {server.folder}/ran", array=f"0-{count - 1}")
    wait_until(lambda: client.agents()[0].leased >= count, "the prefetched leases")
    return long


def moved(server: ServerProcess) -> list[LeaseMoved]:
    return [event for event in read_journal(server.data) if isinstance(event, LeaseMoved)]


def test_what_waits_at_one_agent_runs_on_another_once(server: ServerProcess, join: Join) -> None:
    with server.client() as client:
        join("busy")
        long = backlog(server, client, 20)
        join("idle")
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
    replayed = server.spill("replay")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    thefts = moved(server)
    assert thefts
    assert all((event.node, event.thief) == ("busy", "idle") for event in thefts)


def test_a_peer_that_cannot_be_reached_is_made_up_for_by_the_server(
    server: ServerProcess, join: Join
) -> None:
    with server.client() as client:
        join("busy", LIAR)
        backlog(server, client, 8)
        join("idle")
        wait_until((server.folder / "ran").exists, "work on the idle agent", 60)
        (server.folder / "go").touch()
        assert set(await_ends(client).values()) == {"SUCCEEDED"}
    assert len((server.folder / "ran").read_text().split()) == 8
    server.stop()
    assert moved(server)
    assert "agent at 127.0.0.1:1 did not send" in (server.folder / "idle.log").read_text()


def test_a_thief_that_is_killed_loses_no_job(server: ServerProcess, join: Join) -> None:
    with server.client() as client:
        join("busy")
        backlog(server, client, 20)
        thief = join("idle")
        wait_until(lambda: any(agent.stolen_in for agent in client.agents()), "the first theft", 60)
        thief.kill()
        thief.wait()
        join("another")
        (server.folder / "go").touch()
        assert set(await_ends(client).values()) == {"SUCCEEDED"}
    assert len(set((server.folder / "ran").read_text().split())) == 20
    server.stop()
    ends = [event.job for event in read_journal(server.data) if isinstance(event, JobEnded)]
    assert len(ends) == len(set(ends))


def test_an_agent_is_drained_resumed_and_forgotten_by_name(server: ServerProcess, join: Join) -> None:
    with server.client() as client:
        join("one")
        wait_until(client.agents, "the agent")
        assert server.spill("policy", "set", "route=biased(0.5)").returncode == 0
        assert client.server().policy["route"] == {"name": "biased", "options": {"share": 0.5}}
        assert server.spill("agents", "drain", "one").returncode == 0
        wait_until(lambda: client.agents()[0].state == "draining", "draining")
        (job,) = client.submit(run="true")
        assert client.job(job).state == "QUEUED"
        shown = server.spill("agents")
        assert "draining" in shown.stdout
        refused = server.spill("agents", "forget", "one")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "stop it and wait until it is lost, then forget it" in refused.stderr
        assert server.spill("agents", "drain", "nobody").returncode != 0
        assert server.spill("agents", "resume", "lab/one").returncode == 0
        assert client.wait(job, timeout=30)[0].state == "SUCCEEDED"
