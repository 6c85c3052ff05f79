"""A server with agents on wires of their own, and what befalls them: they are killed, stopped, cut off and slowed, and the server is killed."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

from spillover.client import Client
from spillover.server.certificates import make_certificates
from tests.support.processes import (
    ServerProcess,
    clean_environment,
    command_lines,
    free_ports,
    processes_of,
    wait_until,
)
from tests.support.wires import Wire, Wires

CPUS: Final = 3
"""Of each agent."""
LOST_AFTER: Final = 4.0
"""Seconds after which the server counts an agent as lost."""
ROUND: Final = 45.0
"""Seconds in which every agent fails three times, and the server twice."""
AGAIN: Final = 0.5
"""Seconds after which a fault is tried again whose target fails already."""


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

    def staged(self) -> list[Path]:
        """The folders of tasks with files that it prepares, or that run."""
        with suppress(FileNotFoundError):
            return list((self.folder / "data" / "agents" / self.name / "work").iterdir())
        return []

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


class Fault:
    """Something that fails and comes back."""

    def __init__(
        self, what: str, target: object, begin: Callable[[], object], end: Callable[[], object]
    ) -> None:
        self.what = what
        self.target = target
        """What fails. It fails in one way at a time."""
        self.begin, self.end = begin, end


class Chaos:
    """What happens at which second; every fault is over before the end."""

    def __init__(
        self,
        server: ServerProcess,
        agents: list[Far],
        wires: Wires,
        dice: random.Random,
        lasts: float = ROUND,
    ) -> None:
        self._server, self._agents, self._wires, self._dice = server, agents, wires, dice
        self._plan: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._failing: set[object] = set()
        self.happened: Counter[str] = Counter()
        self.rounds = max(1, round(lasts / ROUND))
        self.span = lasts / self.rounds
        """Seconds of a round."""
        for number in range(self.rounds):
            self._draw(number * self.span)

    def _at(self, second: float, do: Callable[[float], None]) -> None:
        self._count += 1
        heappush(self._plan, (second, self._count, do))

    def fail(self, second: float, span: float, fault: Fault) -> None:
        """Let something fail at this second for so long; later, if it fails already."""

        def begin(now: float) -> None:
            if not self.begin(now, span, fault):
                self._at(now + AGAIN, begin)

        self._at(second, begin)

    def begin(self, now: float, span: float, fault: Fault) -> bool:
        """Let something fail now for so long; return whether it does, and not in another way."""
        if fault.target in self._failing:
            return False

        def end(_: float) -> None:
            fault.end()
            self._failing.discard(fault.target)

        self._failing.add(fault.target)
        self.happened[fault.what] += 1
        fault.begin()
        self._at(now + span, end)
        return True

    def _draw(self, begin: float) -> None:
        """Draw the faults of a round."""
        for number in range(3 * len(self._agents)):
            agent = self._agents[number % len(self._agents)]
            start = begin + 2 + (number // len(self._agents)) * (self.span - 4) / 3 + self._dice.uniform(0, 2)
            kind = (number + number // len(self._agents)) % 4
            fault = [self.killed, self.stopped, self.cut, self.slow][kind](agent)
            span = LOST_AFTER + 3 if kind == 1 else self._dice.uniform(0.1 if not kind else 1, 8)
            self.fail(start, span, fault)
        for at in (0.3, 0.7):
            self.fail(begin + self.span * at, self._dice.uniform(0.2, 2), self.server_killed())

    def server_killed(self) -> Fault:
        return Fault("the server is killed", self._server, self._server.kill, self._server.up)

    def killed(self, agent: Far) -> Fault:
        return Fault("an agent is killed", agent, agent.kill, agent.start)

    def stopped(self, agent: Far) -> Fault:
        return Fault(
            "an agent is stopped",
            agent,
            partial(agent.signal, signal.SIGSTOP),
            partial(agent.signal, signal.SIGCONT),
        )

    def cut(self, agent: Far) -> Fault:
        call = self._wires.call
        return Fault("a wire is cut", agent, partial(call, agent.wire.cut), partial(call, agent.wire.mend))

    def slow(self, agent: Far, seconds: float = 0.3) -> Fault:
        call = self._wires.call
        return Fault(
            "a wire is slow", agent, partial(call, agent.wire.slow, seconds), partial(call, agent.wire.mend)
        )

    def due(self, second: float) -> None:
        """Let happen what is due."""
        while self._plan and self._plan[0][0] <= second:
            heappop(self._plan)[2](second)

    @property
    def over(self) -> bool:
        return not self._plan


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
        wait_until(partial(_is_gone, agent), f"the end of {command_lines(processes_of(agent.folder))}")
    assert server.stop() == 0


def _is_gone(agent: Far) -> bool:
    return not processes_of(agent.folder)
