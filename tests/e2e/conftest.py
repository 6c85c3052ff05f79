"""Real servers, started and stopped as a person would."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

_READY = 20.0
"""Seconds that a server may take until it is ready."""
_STOP = 10.0
"""Seconds that it may take to stop."""


class Server(NamedTuple):
    """A server that is ready, and its command line."""

    url: str
    data: Path
    folder: Path
    """Where commands are typed."""
    process: subprocess.Popen[bytes]

    def spill(
        self,
        *arguments: str,
        typed: str | None = None,
        timeout: float = 30.0,
    ) -> "subprocess.CompletedProcess[str]":
        """Type a command."""
        return subprocess.run(
            [sys.executable, "-m", "spillover.cli", *arguments],
            cwd=self.folder,
            env=_environment() | {"SPILL_DATA": str(self.data)},
            input=typed,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command that goes on; whoever starts it ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "spillover.cli", *arguments],
            cwd=self.folder,
            env=_environment() | {"SPILL_DATA": str(self.data)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers with options; all are stopped in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str, data: Path | None = None) -> Server:
        folder = data or tmp_path / "data"
        ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        process = subprocess.Popen(
            [sys.executable, "-m", "spillover.cli", "up", "--data", str(folder), *ports, *options],
            cwd=tmp_path,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        return Server(_ready(process), folder, tmp_path, process)

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail("the server did not stop in time")
        finally:
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    """A server with one owned cluster of two CPUs on this machine."""
    return start_server("--slots", "2")


def _environment() -> dict[str, str]:
    """That of the tests, without what tells the command line where to go."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SPILL_")}


def _ready(process: subprocess.Popen[bytes]) -> str:
    """The address that the server prints once it accepts work."""
    assert process.stdout is not None
    until, said = time.monotonic() + _READY, b""
    while (left := until - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            piece = os.read(process.stdout.fileno(), 4096)
            said += piece
            for line in said.splitlines(keepends=True):
                if line.startswith(b"ready ") and line.endswith(b"\n"):
                    return line.split()[1].decode()
            if not piece:
                break
    pytest.fail(f"the server was not ready; it printed {said!r}")
