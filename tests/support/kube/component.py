"""Runs one program of a cluster as a process that can be killed, paused and restarted on the same data."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.support.kube.guard import MARK

LONGEST: Final = 120.0
"""Seconds for a program to become ready; on an idle machine it takes a few."""
SHOWN: Final = 15
"""Lines of its output to show if it does not start."""


class NotStarted(Exception):
    """A program ended, or took too long, before it was ready."""


class Component:
    """A program with its arguments and its readiness check."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        folder: Path,
        ready: Callable[[], bool],
        before: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        """The output of all its processes."""
        self._command = [str(word) for word in command]
        self._folder = folder
        self._ready = ready
        self._before = before
        """Called before each start."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Pid of the current process, or of the last one."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, possibly paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, or start it again, and wait until it is ready."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it without waiting."""
        assert not self.alive, f"{self.name} runs already"
        if self._before is not None:
            self._before()
        with self.log.open("ab") as log:
            # Its own process group, because Ctrl-C is for the tests; its own HOME, so that it reads no files of the
            # user.
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={"PATH": os.defpath, "HOME": str(self._folder), MARK: str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def await_ready(self, seconds: float = LONGEST) -> None:
        """Wait until it is ready."""
        until = time.monotonic() + seconds
        while not self._ready():
            if not self.alive:
                raise NotStarted(
                    f"{self.name} ended with {self._code()}; its output ends:\n{self.last_words()}"
                )
            if time.monotonic() > until:
                raise NotStarted(
                    f"{self.name} was not ready in {seconds:g} s; its output ends:\n{self.last_words()}"
                )
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it with SIGKILL, and nothing else."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Pause it like a frozen machine: connections stay open, without answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it."""
        os.kill(self.pid, signal.SIGCONT)

    def last_words(self) -> str:
        """Return the end of its output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-SHOWN:])

    def _code(self) -> int | None:
        return None if self._process is None else self._process.returncode
