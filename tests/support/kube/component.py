"""One program of a cluster as a process: started, killed, stopped where it stands and started again on the same data."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.support.kube.guard import MARK

LONGEST: Final = 120.0
"""Seconds that a program may take until it is ready; seconds on a quiet machine, more where tests of others run."""
SHOWN: Final = 15
"""Last lines of its output that are in the message when it does not start."""


class NotStarted(Exception):
    """A program that ended, or took too long, before it was ready."""


class Component:
    """A program with its arguments, and how to see that it is ready."""

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
        """What all its lives wrote."""
        self._command = [str(word) for word in command]
        self._folder = folder
        self._ready = ready
        self._before = before
        """Done before each life."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of this life, or of the last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, be it paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, or start it again, and wait until it is ready."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it and do not wait."""
        assert not self.alive, f"{self.name} runs already"
        if self._before is not None:
            self._before()
        with self.log.open("ab") as log:
            # A group of its own: Ctrl-C is for the tests. The folder is its home, so that nothing of a person's is read.
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
        """Wait until it does its work."""
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
        """`kill -9`, and nothing else."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it where it stands, as a frozen machine would: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def last_words(self) -> str:
        """The end of what it wrote."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-SHOWN:])

    def _code(self) -> int | None:
        return None if self._process is None else self._process.returncode
