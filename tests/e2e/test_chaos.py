"""Agents on wires of their own that are killed, stopped, cut off and slowed, and a server that is killed, while short jobs run."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from heapq import heappop, heappush
from pathlib import Path

import pytest

from spillover.client import Client
from spillover.client.errors import Unavailable, Unreachable
from spillover.core.events import JobEnded, JobState
from spillover.server.certificates import make_certificates
from tests.support.processes import (
    ServerProcess,
    clean_environment,
    command_lines,
    free_ports,
    processes_of,
    read_journal,
    wait_until,
)
from tests.support.wires import Wire, Wires

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOBS = int(os.environ.get("CHAOS_JOBS", "20000"))
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
AGENTS = 4
CPUS = 3
LOST_AFTER = 4.0
LASTS = 45.0
"""Seconds over which jobs come and faults happen."""


class Far:
    """An agent on the far side of a wire."""

    def __init__(self, name: str, wire: Wire, folder: Path, words: list[str]) -> None:
        self.name = name
        self.wire = wire
        self.folder = folder
        self._words = [*words, "--name", name, "--data", str(folder / "data")]
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.wire.command([sys.executable, "-m", "spillover.cli", "agent", *self._words]),
                cwd=self.folder,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def tasks(self) -> int:
        """Tasks that really run on it."""
        mark = f"SPILL_AGENT={self.folder}/".encode()
        told = [_environment(pid) for pid in processes_of(self.folder)]
        jobs = {
            line
            for each in told
            if mark in each
            for line in each.split(b"\0")
            if line.startswith(b"SPILL_JOB_ID=")
        }
        return len(jobs)

    def clear(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        for pid in processes_of(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


class Chaos:
    """What happens at which second; every fault is over before the end."""

    def __init__(self, server: ServerProcess, agents: list[Far], wires: Wires, dice: random.Random) -> None:
        self._server, self._agents, self._wires = server, agents, wires
        self._dice = dice
        self._count = 0
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self.happened: Counter[str] = Counter()
        for number in range(12):
            self._draw(number)
        for at in (LASTS * 0.3, LASTS * 0.7):
            self._at(at, "the server is killed", self._server.kill)
            self._at(at + dice.uniform(0.2, 2), "the server is started", self._server.up)

    def _at(self, second: float, what: str, do: Callable[[], object]) -> None:
        def happen() -> None:
            self.happened[what] += 1
            do()

        self._count += 1
        heappush(self._plan, (second, self._count, happen))

    def _draw(self, number: int) -> None:
        """One fault of an agent: each has its own times, so that they do not get into each other's way."""
        agent = self._agents[number % AGENTS]
        begin = 2 + (number // AGENTS) * (LASTS - 4) / 3 + self._dice.uniform(0, 2)
        kind = (number + number // AGENTS) % 4
        call = self._wires.call
        match kind:
            case 0:
                self._at(begin, "an agent is killed", agent.kill)
                self._at(begin + self._dice.uniform(0.1, 7), "an agent is started", agent.start)
            case 1:
                self._at(begin, "an agent is stopped", lambda: agent.signal(signal.SIGSTOP))
                self._at(begin + LOST_AFTER + 3, "an agent goes on", lambda: agent.signal(signal.SIGCONT))
            case 2:
                self._at(begin, "a wire is cut", lambda: call(agent.wire.cut))
                self._at(begin + self._dice.uniform(1, 8), "a wire is mended", lambda: call(agent.wire.mend))
            case _:
                self._at(begin, "a wire is slow", lambda: call(agent.wire.slow, 0.3))
                self._at(begin + self._dice.uniform(2, 8), "a wire is mended", lambda: call(agent.wire.mend))

    def due(self, second: float) -> None:
        """Let happen what is due."""
        while self._plan and self._plan[0][0] <= second:
            heappop(self._plan)[2]()

    @property
    def over(self) -> bool:
        return not self._plan


@pytest.fixture
def wires() -> Iterator[Wires]:
    made = Wires(AGENTS)
    yield made
    made.close()


@pytest.fixture
def agents(wires: Wires, tmp_path: Path) -> Iterator[list[Far]]:
    made: list[Far] = []
    yield made
    for agent in made:
        agent.clear()


def submit(client: Client, first: int, last: int) -> list[str]:
    """Submit some jobs; said again under the same keys, they are the same."""
    spec = {"run": "true", "retry": {"lost": 50}}
    documents = [
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": "short"},
            "spec": spec | {"key": f"short-{number}"},
        }
        for number in range(first, last)
    ]
    try:
        return list(client.submit(documents)) if documents else []
    except (Unreachable, Unavailable):
        return []  # whoever waited here could not start the server again


def is_gone(agent: Far) -> bool:
    return not processes_of(agent.folder)


def leases(client: Client) -> dict[str, int]:
    return {agent.name: agent.leased for agent in client.agents()}


def test_no_job_is_lost_or_doubled_while_agents_wires_and_servers_fail(
    servers: Callable[..., ServerProcess], wires: Wires, agents: list[Far], tmp_path: Path
) -> None:
    http, grpc = free_ports(2)
    tls = tmp_path / "tls"
    make_certificates(tls, ["127.0.0.1", "localhost", *(wire.host for wire in wires.wires)], 2)
    server = servers(
        http=f"127.0.0.1:{http}",
        grpc=f"127.0.0.1:{grpc}",
        tls={"cert": str(tls / "server.pem"), "key": str(tls / "server-key.pem"), "ca": str(tls / "ca.pem")},
        clusters=[{"name": "onprem"}],
        agents={"heartbeat": "1s", "lost_after": f"{LOST_AFTER:g}s"},
    ).up()
    wires.open([http, grpc])
    token = tmp_path / "agent.token"
    with ExitStack() as stack:
        client = stack.enter_context(server.client(patience=60))
        made = server.spill("token", "create", "--role", "agent")
        assert made.returncode == 0, made.stderr
        token.write_text(next(word for word in made.stdout.split() if word.startswith("spt_")))
        for number, wire in enumerate(wires.wires, 1):
            words = ["--server", f"https://{wire.host}:{http}", "--token-file", str(token)]
            words += [
                "--ca",
                str(tls / "ca.pem"),
                "--cluster",
                "onprem",
                "--cpu",
                str(CPUS),
                "--memory",
                "1Gi",
            ]
            agents.append(Far(f"n{number}", wire, tmp_path / f"n{number}", words))
            agents[-1].start()
        wait_until(lambda: len(client.agents()) == AGENTS, "the registration of all agents", 30)

        chaos = Chaos(server, agents, wires, random.Random(SEED))
        begun, jobs = time.monotonic(), list[str]()
        hasty = stack.enter_context(server.client())
        while len(jobs) < JOBS or not chaos.over:
            second = time.monotonic() - begun
            chaos.due(second)
            upto = min(JOBS, int(JOBS * second / LASTS))
            jobs += submit(hasty, len(jobs), min(upto, len(jobs) + 500))
            time.sleep(0.05)
        assert len(chaos.happened) == 9, chaos.happened
        wait_until(lambda: not (at := client.server()).queued + at.running, "the end of all jobs", 300, 0.5)

        # Quiet, and not idle: the book and what really runs are the same.
        long = client.submit(
            [
                {
                    "apiVersion": "spillover/v1",
                    "kind": "Job",
                    "metadata": {"name": "long"},
                    "spec": {"run": "exec sleep 600", "grace": "0s"},
                }
            ]
            * (AGENTS * CPUS)
        )
        wait_until(lambda: client.server().running == len(long), "all long jobs", 60)
        wait_until(
            lambda: leases(client) == {agent.name: agent.tasks() for agent in agents}, "agreement", 30, 0.5
        )
        assert sum(leases(client).values()) == AGENTS * CPUS
        for job in long:
            client.cancel(job)
        wait_until(lambda: not any(leases(client).values()), "the end of all leases", 60, 0.5)
        wait_until(lambda: not any(agent.tasks() for agent in agents), "the end of all tasks", 30)

    for agent in agents:
        agent.signal(signal.SIGTERM)
    for agent in agents:
        assert agent.process is not None
        assert agent.process.wait(30) == 0, (agent.folder / "log").read_text()[-2000:]
        wait_until(partial(is_gone, agent), f"the end of {command_lines(processes_of(agent.folder))}")
    assert server.stop() == 0
    ended = [event for event in read_journal(server.data) if isinstance(event, JobEnded)]
    results = Counter(event.job for event in ended)
    assert set(jobs) <= results.keys()
    assert len(set(jobs)) == JOBS
    assert not [job for job, count in results.items() if count != 1]
    assert {event.state for event in ended if event.job in set(jobs)} == {JobState.SUCCEEDED}
