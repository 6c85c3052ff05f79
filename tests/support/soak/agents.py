"""Runs agents that are killed, stopped in order, and restarted under the same name."""

import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.support.processes import clean_environment, processes_of


class FarAgent:
    """Runs `spill agent` with its own folder."""

    def __init__(self, name: str, folder: Path, server: str, token: Path, cluster: str) -> None:
        self.name = name
        self.folder = folder
        self._words = ["--server", server, "--token-file", str(token), "--cluster", cluster]
        self._words += ["--cpu", "2", "--memory", "1Gi", "--name", name, "--data", str(folder / "data")]
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    def start(self) -> None:
        """Start the agent, or start it again."""
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "spillover.cli", "agent", *self._words],
                cwd=self.folder,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, number: signal.Signals) -> None:
        """End the agent with a signal."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def clear(self) -> None:
        """End the agent and everything it started."""
        self.end(signal.SIGTERM)
        for pid in processes_of(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Comings:
    """Ends and restarts agents in a thread; when it rests, all of them run."""

    def __init__(self, agents: list[FarAgent], seed: int) -> None:
        self._agents = agents
        self._dice = random.Random(seed)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.killed = 0
        self.stopped = 0

    def begin(self) -> None:
        """Start ending and restarting agents."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Stop, with all agents running."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(self._dice.uniform(4, 10)):
            agent = self._dice.choice(self._agents)
            if self._dice.random() < 0.7:
                self.killed += 1
                agent.end(signal.SIGKILL)
            else:
                self.stopped += 1
                agent.end(signal.SIGTERM)
            self._stop.wait(self._dice.uniform(0.2, 8))
            agent.start()
