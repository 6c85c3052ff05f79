"""Runs real servers as processes that tests can kill, stop, continue and restart on the same data.

Tests compare what the server acknowledged with its journal, so they see a server only from outside.
"""

import asyncio
import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import yaml

from spillover.agent.tasks.isolation import RECORD, remove_groups
from spillover.client import Client
from spillover.client.flows import ENDED
from spillover.core.events import AnyEvent
from spillover.stores.open import open_store
from spillover.wire.journal import decode_event
from tests.support.fork_server import SERVER, Forked, fork_server

T = TypeVar("T")

READY: Final = 60.0
"""Seconds for a server to become ready, which is a matter of one or two unless other programs take all cores."""
STOP: Final = 30.0
"""Seconds for a server to stop. The documented limit is shorter, and has its own tests."""
LEFT: Final = 5.0
"""Seconds for the children of a server to end after it."""


class NotReady(AssertionError):
    """A server ended, or took too long, before it was ready."""


class ServerProcess:
    """Runs `spill up` on one data folder."""

    def __init__(self, folder: Path, *options: str, data: Path | None = None) -> None:
        self.folder = folder
        """Working directory of commands."""
        self.data = data or folder / "data"
        self.log = folder / "server.log"
        """Standard error of all its processes."""
        self.url = ""
        self.program = "spillover.cli"
        """The module to run; a test may wrap the usual one."""
        self.terminal: int | None = None
        """File descriptor of a terminal for standard error; None for the log."""
        self.forked = True
        """Whether it is forked from a process that has loaded its modules, which saves a third of a second of CPU time."""
        self._options = options
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes] | Forked":
        """The current process, or the last one."""
        assert self._process is not None, "it was never started"
        return self._process

    # --- lifecycle

    def launch(self, *options: str, limits: Callable[[], None] | None = None) -> None:
        """Start the server without waiting; `limits` runs in the new process first."""
        environment = dict(clean_environment())
        plain = limits is None and self.terminal is None and self.program == "spillover.cli"
        if self.forked and plain:
            self._process = self._fork(["up", *self._options, *options], environment)
            return
        if not self.program.startswith("spillover."):
            environment["PYTHONPATH"] = str(Path(__file__).parents[2])  # for imports of `tests`
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.program, "up", *self._options, *options],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log if self.terminal is None else self.terminal,
                preexec_fn=limits,  # noqa: PLW1509 - only sets a limit of the new process
            )

    def _fork(self, words: Sequence[str], environment: Mapping[str, str]) -> Forked:
        said, told = os.pipe()
        with open(os.devnull, "rb") as nothing, self.log.open("ab") as log, open(told, "wb") as printed:  # noqa: PTH123 - also of a descriptor
            streams = (nothing.fileno(), printed.fileno(), log.fileno())
            process = fork_server(SERVER).start(
                words, folder=self.folder, environment=environment, streams=streams
            )
        process.stdout = open(said, "rb", buffering=0)  # noqa: PTH123, SIM115 - of a descriptor; whoever ends the server closes it
        return process

    def up(self, *options: str, limits: Callable[[], None] | None = None) -> "ServerProcess":
        """Start the server and wait until it accepts work."""
        self.launch(*options, limits=limits)
        self.await_ready()
        return self

    def await_ready(self, seconds: float = READY, word: str = "ready") -> str:
        """Return the address that the server prints after this word when it accepts work."""
        process, said = self.process, b""
        assert process.stdout is not None
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([process.stdout], [], [], left)[0]:
                piece = os.read(process.stdout.fileno(), 4096)
                said += piece
                for line in said.splitlines(keepends=True):
                    if line.startswith(f"{word} ".encode()) and line.endswith(b"\n"):
                        self.url = line.split()[1].decode()
                        return self.url
                if not piece:
                    break
        raise NotReady(
            f"the server was not ready; it printed {said!r}, and its log ends {self.last_words()!r}"
        )

    def kill(self) -> None:
        """Kill the server process with SIGKILL, and nothing else."""
        self.process.kill()
        self._reap()

    def pause(self) -> None:
        """Stop the process with SIGSTOP, like a debugger or a frozen machine."""
        self.process.send_signal(signal.SIGSTOP)
        state = self._state
        wait_until(lambda: state() == "T", "stopping the process")

    def resume(self) -> None:
        """Continue a stopped process."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self, number: int = signal.SIGTERM, seconds: float = STOP) -> int:
        """Ask the server to stop; return its exit code."""
        self.process.send_signal(number)
        return self.await_end(seconds)

    def await_end(self, seconds: float = STOP) -> int:
        """Wait until the server ends by itself; return its exit code."""
        code = self.process.wait(seconds)
        self._reap()
        return code

    def clear(self) -> None:
        """End the server and everything it started, in any state; raise if it had to be killed."""
        process = self._process
        stubborn = False
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(STOP)
            except subprocess.TimeoutExpired:
                stubborn = True
                process.kill()
        if process is not None:
            self._reap()
        self.end_agents()
        assert not stubborn, f"the server did not stop in time; its log ends {self.last_words()!r}"

    def end_agents(self) -> None:
        """Kill every process of this data folder."""
        for pid in processes_of(self.data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        nothing_left(self.data)
        for record in self.data.glob(f"agents/*/{RECORD}"):
            remove_groups(record.parent)  # no agent is left to do it

    def _reap(self) -> None:
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _state(self) -> str:
        """Return the process state as in /proc: R, S, T, ..."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    # --- observation

    def client(self, patience: float = 0.0) -> Client:
        """Return a client for this data folder."""
        return Client(data=self.data, patience=patience)

    def spill(
        self,
        *arguments: str,
        typed: str | None = None,
        timeout: float = 30.0,
        variables: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, with more variables if they are given."""
        return fork_server().run(
            arguments,
            folder=self.folder,
            environment=clean_environment() | {"SPILL_DATA": str(self.data)} | dict(variables or {}),
            typed=typed,
            timeout=timeout,
        )

    def start(self, *arguments: str, stdin: IO[bytes] | None = None) -> "subprocess.Popen[str]":
        """Start a command that keeps running; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "spillover.cli", *arguments],
            cwd=self.folder,
            env=clean_environment() | {"SPILL_DATA": str(self.data)},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def last_words(self) -> str:
        """Return the end of its log."""
        return self.log.read_text()[-2000:] if self.log.exists() else ""

    def agents(self) -> list[int]:
        """Return the pids of its local agents."""
        return [pid for pid in processes_of(self.data) if b"spillover.agent\0" in _read(pid, "cmdline")]

    def tasks(self) -> list[int]:
        """Return the pids of tasks on its local agents."""
        mark = f"SPILL_AGENT={self.data}/".encode()
        return [pid for pid in _pids() if mark in _read(pid, "environ")]


def write_config(folder: Path, **settings: Any) -> tuple[str, str]:
    """Write a configuration with free ports; return it as options of `spill up`."""
    http, grpc = free_ports(2)
    document: dict[str, Any] = {
        "apiVersion": "spillover/v1",
        "kind": "Config",
        "data": str(folder / "data"),
        "http": f"127.0.0.1:{http}",
        "grpc": f"127.0.0.1:{grpc}",
    }
    path = folder / "spill.yaml"
    path.write_text(yaml.safe_dump(document | settings))
    return ("--config", str(path))


PORTS: Final = range(11_000, 32_000)
"""Ports for servers of tests: the system gives none of them to outgoing connections, as it begins at 32768."""
_dice = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, and that nobody gets who asks the system for any port."""
    ports: list[int] = []
    while len(ports) < count:
        port = _dice.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports += [port] if port not in ports else []
    return ports


def read_journal(data: Path, store: str = "sqlite") -> list[AnyEvent]:
    """Read all events of a stopped server, oldest first."""

    async def read() -> list[AnyEvent]:
        opened = await open_store(store, data)
        try:
            return [decode_event(each.event) async for each in opened.journal.tail(0)]
        finally:
            await opened.close()

    return asyncio.run(read())


def wait_until(ask: Callable[[], T], what: str, seconds: float = 15.0, every: float = 0.02) -> T:
    """Poll until the answer is true, and return it."""
    until = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < until, f"{what} did not happen within {seconds:g} seconds"
        time.sleep(every)
    return answer


def await_ends(client: Client, seconds: float = 120.0) -> dict[str, str]:
    """Wait until every job has ended; return the states."""

    def ended() -> dict[str, str]:
        states = {job.id: job.state for job in client.jobs()}
        return states if states and ENDED.issuperset(states.values()) else {}

    wait_until(lambda: not (at := client.server()).queued + at.running, "work on all jobs", seconds, 0.1)
    return wait_until(ended, "the end of all jobs", seconds, 0.2)


def processes_of(data: Path) -> list[int]:
    """Return other processes whose arguments or environment name a data folder: servers, agents and tasks."""
    marks = [f"{data}\0".encode(), f"{data}/".encode()]
    found = []
    for pid in _pids():
        told = _read(pid, "cmdline") + b"\0" + _read(pid, "environ")
        if pid != os.getpid() and any(mark in told for mark in marks):
            found.append(pid)
    return found


def nothing_left(data: Path) -> None:
    """Raise if a process of a data folder is still there after a short time."""
    wait_until(lambda: not processes_of(data), f"the end of all processes of {data}", LEFT)


def clean_environment() -> dict[str, str]:
    """Return our environment without variables that configure `spill`, and without those of traces."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPILL_", "OTEL_")) and name != "TRACEPARENT"
    }


def command_lines(pids: Sequence[int]) -> Mapping[int, str]:
    """Return the command lines of processes, for messages."""
    return {pid: _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in pids}


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    state = _read(pid, "stat").rpartition(b")")[2].split()[:1]
    return state not in ([], [b"Z"], [b"X"])


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())  # noqa: PTH208 - called often, and needs only names


def _read(pid: int, what: str) -> bytes:
    """Read a file about a process; empty if the process is gone or inaccessible."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
