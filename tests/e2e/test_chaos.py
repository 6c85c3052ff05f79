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
from spillover.core.events import Back, JobEnded, JobRequeued, JobState
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
        for number in range(3 * len(agents)):
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
        agents = len(self._agents)
        agent = self._agents[number % agents]
        begin = 2 + (number // agents) * (LASTS - 4) / 3 + self._dice.uniform(0, 2)
        kind = (number + number // agents) % 4
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
def wires(request: pytest.FixtureRequest) -> Iterator[Wires]:
    made = Wires(getattr(request, "param", AGENTS))
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


def set_up(
    servers: Callable[..., ServerProcess], wires: Wires, agents: list[Far], folder: Path
) -> ServerProcess:
    """Start a server and, on a wire each, its agents; wait until all have registered."""
    http, grpc = free_ports(2)
    tls = folder / "tls"
    make_certificates(tls, ["127.0.0.1", "localhost", *(wire.host for wire in wires.wires)], 2)
    server = servers(
        http=f"127.0.0.1:{http}",
        grpc=f"127.0.0.1:{grpc}",
        tls={"cert": str(tls / "server.pem"), "key": str(tls / "server-key.pem"), "ca": str(tls / "ca.pem")},
        clusters=[{"name": "onprem"}],
        agents={"heartbeat": "1s", "lost_after": f"{LOST_AFTER:g}s"},
    ).up()
    wires.open([http, grpc])
    made = server.spill("token", "create", "--role", "agent")
    assert made.returncode == 0, made.stderr
    token = folder / "agent.token"
    token.write_text(next(word for word in made.stdout.split() if word.startswith("spt_")))
    for number, wire in enumerate(wires.wires, 1):
        words = ["--server", f"https://{wire.host}:{http}", "--token-file", str(token)]
        words += ["--ca", str(tls / "ca.pem"), "--cluster", "onprem", "--cpu", str(CPUS), "--memory", "1Gi"]
        agents.append(Far(f"n{number}", wire, folder / f"n{number}", words))
        agents[-1].start()
    with server.client(patience=60) as client:
        wait_until(lambda: len(client.agents()) == len(agents), "the registration of all agents", 60)
    return server


def stop_all(server: ServerProcess, agents: list[Far]) -> None:
    """Stop agents and server; nothing is left."""
    for agent in agents:
        agent.signal(signal.SIGTERM)
    for agent in agents:
        assert agent.process is not None
        assert agent.process.wait(30) == 0, (agent.folder / "log").read_text()[-2000:]
        wait_until(partial(is_gone, agent), f"the end of {command_lines(processes_of(agent.folder))}")
    assert server.stop() == 0


def test_no_job_is_lost_or_doubled_while_agents_wires_and_servers_fail(
    servers: Callable[..., ServerProcess], wires: Wires, agents: list[Far], tmp_path: Path
) -> None:
    server = set_up(servers, wires, agents, tmp_path)
    with ExitStack() as stack:
        client = stack.enter_context(server.client(patience=60))
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

    stop_all(server, agents)
    ended = [event for event in read_journal(server.data) if isinstance(event, JobEnded)]
    results = Counter(event.job for event in ended)
    assert set(jobs) <= results.keys()
    assert len(set(jobs)) == JOBS
    assert not [job for job, count in results.items() if count != 1]
    assert {event.state for event in ended if event.job in set(jobs)} == {JobState.SUCCEEDED}


# --- gangs

GANGS = int(os.environ.get("CHAOS_GANGS", "400"))
WIDEST = 16
"""Most tasks of a gang, of the 24 that all agents together run."""
GANG = """
echo begin $SPILL_JOB_ID $SPILL_ATTEMPT $SPILL_TASK $SPILL_TASKS >> {stamps}
sleep 0.$((SPILL_TASK % 3))
echo end $SPILL_JOB_ID $SPILL_ATTEMPT $SPILL_TASK $SPILL_TASKS >> {stamps}
"""


def gangs(first: int, last: int, stamps: Path) -> list[dict[str, object]]:
    """Job files of gangs, the same for the same numbers."""
    return [
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": "gang"},
            "spec": {
                "run": GANG.format(stamps=stamps),
                "tasks": random.Random(number).randint(2, WIDEST),
                "retry": {"lost": 200},
                "grace": "0s",
                "key": f"gang-{number}",
            },
        }
        for number in range(first, last)
    ]


def wait_for_the_end(client: Client) -> None:
    """Wait until all gangs have ended, however slow the machine is; if none ends for two minutes, they wait for each other."""
    least, since = GANGS + 1, time.monotonic()
    while least:
        at = client.server()
        if at.queued + at.running < least:
            least, since = at.queued + at.running, time.monotonic()
        assert time.monotonic() < since + 120, f"{least} gangs are left, and none ended: {client.jobs()}"
        time.sleep(0.5)


@pytest.mark.parametrize("wires", [8], indirect=True)
def test_gangs_run_whole_or_not_at_all_while_agents_wires_and_servers_fail(
    servers: Callable[..., ServerProcess], wires: Wires, agents: list[Far], tmp_path: Path
) -> None:
    server = set_up(servers, wires, agents, tmp_path)
    stamps = tmp_path / "stamps"
    chaos = Chaos(server, agents, wires, random.Random(SEED))
    begun, jobs = time.monotonic(), list[str]()
    with server.client(patience=60) as client, server.client() as hasty:
        while len(jobs) < GANGS or not chaos.over:
            second = time.monotonic() - begun
            chaos.due(second)
            upto = min(GANGS, int(GANGS * second / LASTS))
            with suppress(Unreachable, Unavailable):
                jobs += hasty.submit(gangs(len(jobs), upto, stamps)) if upto > len(jobs) else []
            time.sleep(0.05)
        assert len(chaos.happened) == 9, chaos.happened
        wait_for_the_end(client)
        wait_until(lambda: not any(leases(client).values()), "the end of all leases", 60, 0.5)
        wait_until(lambda: not any(agent.tasks() for agent in agents), "the end of all tasks", 30)
    stop_all(server, agents)

    events = read_journal(server.data)
    ended = {event.job: event for event in events if isinstance(event, JobEnded)}
    assert len(set(jobs)) == GANGS
    assert ended.keys() == set(jobs)
    assert {event.state for event in ended.values()} == {JobState.SUCCEEDED}
    seen = Counter(line for line in stamps.read_text().splitlines())
    for job, event in ended.items():
        (size,) = {line.split()[-1] for line in seen if line.split()[1] == job}
        for word in ("begin", "end"):
            lines = [f"{word} {job} {event.attempt} {rank} {size}" for rank in range(int(size))]
            assert [seen[line] for line in lines] == [1] * int(size), f"{job} did not run whole"
    back = Counter(event.why for event in events if isinstance(event, JobRequeued))
    assert back[Back.LOST] > 0, "no fault hit a gang that ran"
