"""Runs the server of the demo as a real process, and removes it, its agents and its data at the end."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, NoReturn

from spillover.cli.command import UsageError

_COMMAND: Final = (sys.executable, "-m", "spillover.cli", "up")
_FREE: Final = "127.0.0.1:0"
"""Port 0, so that the system picks a free one."""
_START: Final = 20.0
"""Seconds for a server to become ready."""
_LOOK: Final = 0.02
"""Seconds between two checks for the end of a process."""
_STOP: Final = 8.0
"""Seconds for a server to stop before it is killed."""


class DemoServer(NamedTuple):
    """A server that is ready."""

    url: str
    token: str | None
    data: Path
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def running(config: str) -> Iterator[DemoServer]:
    """Run a server on free ports in a temporary folder; leave nothing behind, however the demo ends."""
    with _orderly_end():
        folder = Path(tempfile.mkdtemp(prefix="spill-demo-"))
        process: subprocess.Popen[bytes] | None = None
        try:
            (folder / "spill.yaml").write_text(config, encoding="utf-8")
            data = folder / "data"
            process = _start(folder, data)
            url = _ready(process, folder / "stderr")
            token = data / "token"
            yield DemoServer(url, token.read_text().strip() if token.exists() else None, data, process)
        finally:
            with _undisturbed():
                if process is not None:
                    _stop(process)
                    _sweep(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, data: Path) -> subprocess.Popen[bytes]:
    """Start `spill up` in its own session, so that Ctrl-C reaches only the demo, which then stops the server."""
    given = ("--config", str(folder / "spill.yaml"), "--data", str(data), "--http", _FREE, "--grpc", _FREE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILL_")}
    with (folder / "stderr").open("wb") as errors:
        return subprocess.Popen(
            [*_COMMAND, *given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )


def _ready(process: subprocess.Popen[bytes], errors: Path) -> str:
    """Return the address that the server prints once it accepts work."""
    assert process.stdout is not None  # noqa: S101 - Popen was called with a pipe
    until = time.monotonic() + _START
    said = b""
    while (left := until - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            break
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            _ended(process, _STOP)
            told = errors.read_text(errors="replace").strip().splitlines()
            raise UsageError(
                "the server of the demo did not start", *(line.removeprefix("spill: ") for line in told[-5:])
            )
        said += piece
        for line in said.splitlines(keepends=True):
            if line.startswith(b"ready ") and line.endswith(b"\n"):
                return line.split()[1].decode()
    raise UsageError(f"the server of the demo was not ready after {_START:g} seconds")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server, which stops its agents; kill its process group if it does not end."""
    if not _ended(process, 0.0):
        process.terminate()
        _ended(process, _STOP)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _sweep(folder: Path) -> None:
    """Kill what a crashed server left behind: every process with the unique name of the folder in its arguments.

    A rented machine that boots, and a task, have it only in their environment.
    """
    name = os.fsencode(folder)
    for process in Path("/proc").glob("[0-9]*"):
        for told in ("cmdline", "environ"):  # agents hide the second
            with contextlib.suppress(OSError):
                if name in (process / told).read_bytes() and int(process.name) != os.getpid():
                    os.kill(int(process.name), signal.SIGKILL)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process to end, without reaping it: its pid must keep naming its own process group."""
    until = time.monotonic() + seconds
    while (
        process.returncode is None
        and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
    ):
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK)
    return True


@contextlib.contextmanager
def _orderly_end() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the demo like Ctrl-C."""

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals during clean-up, so that it always completes."""
    before = {
        number: signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
