"""Runs `spill agent` as a process of its own, in a folder as far away as another machine's."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support.fork_server import AGENT, Forked, fork_server
from tests.support.processes import clean_environment, processes_of


class RemoteAgent:
    """`spill agent` in a folder that is as far away as another machine's."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._words = words
        self._environment = environment
        self.process: Forked | None = None

    def start(self) -> "RemoteAgent":
        environment = clean_environment() | {"XDG_STATE_HOME": str(self.folder / "state")} | self._environment
        with Path(os.devnull).open("rb") as nothing, (self.folder / "agent.log").open("ab") as log:
            self.process = fork_server(AGENT).start(
                ["agent", *self._words],
                folder=self.folder,
                environment=environment,
                streams=(nothing.fileno(), 1, log.fileno()),
            )
        return self

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, seconds: float = 20) -> int:
        """Its exit code, once it has one."""
        assert self.process is not None
        return self.process.wait(seconds)

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def clear(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in processes_of(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
