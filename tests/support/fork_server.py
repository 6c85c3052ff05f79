"""Runs `spill` commands, servers and agents in processes that are forked from one that has loaded their modules.

A test of the whole system types dozens of commands, and each of them would take longer to import its modules than to do its
work. So one process for each test session imports what every command that talks to a server imports. It forks for each
command. The child runs the command as `python -m spillover.cli` does, with its own folder, environment and streams, to the
regular end of the interpreter. It loads the module of the command itself. Another process does the same for servers, and a
third one for agents.

A child shows the command line of what it runs, as tests and people look for processes by it.

Tests of how a process starts, of signals and of terminals run `python -m spillover.cli` instead.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

COMMON: Final = (
    "httpcore",
    "httpx",
    "spillover.cli.main",
    "spillover.cli.printing.output",
    "spillover.client.synchronous.client",
)
"""What every command that talks to a server loads. With more, a command that lacks an import would work in tests alone."""
SERVER: Final = ("spillover.cli.main", "spillover.server.up")
"""What every server loads."""
AGENT: Final = ("spillover.cli.main", "spillover.agent.__main__")
"""What every agent loads."""
PROGRAMS: Final = {"spillover.cli": "spillover.cli.main", "spillover.agent": "spillover.agent.__main__"}
"""Where the `main` of what `python -m` runs is."""
ROOM: Final = 8192
"""Bytes for the command line of a child."""
NUMBER: Final = struct.Struct("i")
"""What the fork server answers: the process of a command, then its wait status."""


class Forked:
    """A process that was forked, as `subprocess.Popen` shows one."""

    def __init__(self, pid: int, answers: socket.socket, arguments: Sequence[str]) -> None:
        self.pid = pid
        self.args = arguments
        self.stdout: IO[bytes] | None = None
        """What it prints, if it was asked for."""
        self._answers = answers
        self._code: int | None = None

    def fileno(self) -> int:
        """A descriptor that becomes readable when it ends; only while `returncode` is None."""
        return self._answers.fileno()

    @property
    def returncode(self) -> int | None:
        """Its exit code, or None while it runs."""
        if self._code is None and select.select([self], [], [], 0)[0]:
            self._code = os.waitstatus_to_exitcode(_number(self._answers))
            self._answers.close()
        return self._code

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raise TimeoutExpired if it does not come in time."""
        if self._code is None and not select.select([self], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        code = self.returncode
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks, as tests see it."""

    def __init__(self, modules: Sequence[str] = COMMON) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A folder of a test in its environment would make it one of the processes that the test must not leave behind.
        kept = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        kept.pop("PYTHONPATH", None)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *modules, " " * ROOM],
                cwd=Path(__file__).parents[2],  # where `tests` is
                env=kept | {"LC_ALL": "C.UTF-8"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def close(self) -> None:
        """End it. It ends by itself when this process does."""
        self._requests.close()
        self._process.wait()

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        typed: str | None = None,
        timeout: float = 30.0,
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end, as `subprocess.run` does. Several threads may do so at once."""
        with contextlib.ExitStack() as opened:
            stdin, stdout, stderr = (
                opened.enter_context(os.fdopen(os.memfd_create(name), "w+b", buffering=0))
                for name in ("stdin", "stdout", "stderr")
            )
            stdin.write((typed or "").encode())
            stdin.seek(0)
            streams = (stdin.fileno(), stdout.fileno(), stderr.fileno())
            process = self.start(arguments, folder=folder, environment=environment, streams=streams)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            for file in (stdout, stderr):
                file.seek(0)
            return subprocess.CompletedProcess(
                ["spill", *arguments], code, stdout.read().decode(), stderr.read().decode()
            )

    def start(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        program: str = "spillover.cli",
    ) -> Forked:
        """Start what `python -m program` would run, with these files as standard input, output and error."""
        ours, theirs = socket.socketpair()
        with theirs, os.fdopen(os.memfd_create("request"), "w+b", buffering=0) as request:
            asked = [program, list(arguments), str(folder), dict(environment)]
            request.write(json.dumps(asked).encode())
            socket.send_fds(self._requests, [b"."], [theirs.fileno(), request.fileno(), *streams])
        # Our copy of `theirs` is closed, so the end of the fork server is the end of its answers.
        return Forked(_number(ours), ours, [program, *arguments])


@functools.cache
def fork_server(modules: Sequence[str] = COMMON) -> ForkServer:
    """The one of this test session with these modules."""
    server = ForkServer(modules)
    atexit.register(server.close)
    return server


def _number(answers: socket.socket) -> int:
    """The next number that the fork server answers."""
    answer = answers.recv(NUMBER.size)
    assert answer, "the fork server has ended; what it printed says why"
    return int(NUMBER.unpack(answer)[0])


# --- in the process that forks


def serve(requests: socket.socket) -> tuple[str, list[str]] | None:
    """Fork for each request, until there are no more. In a child, return the program and its arguments."""
    # Not epoll: a child that closes its copy would change what its parent waits for.
    with requests, selectors.PollSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    selector.unregister(key.fileobj)
                    _tell_end(key.fd, *key.data)
                    continue
                _, received, _, _ = socket.recv_fds(requests, 1, 5)
                if not received:
                    return None
                answers, *files = received
                if not (pid := os.fork()):
                    os.close(answers)
                    return _become(files)
                for file in files:
                    os.close(file)
                with contextlib.suppress(BrokenPipeError):  # whoever asked is gone
                    os.write(answers, NUMBER.pack(pid))
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answers))


def _tell_end(pidfd: int, pid: int, answers: int) -> None:
    """Answer how a command ended."""
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(answers, NUMBER.pack(status))
    os.close(answers)
    os.close(pidfd)


def _become(files: list[int]) -> tuple[str, list[str]]:
    """Take over the folder, environment and streams of a request; its program and arguments."""
    request, *streams = files
    for stream, standard in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, standard)
    program, arguments, folder, environment = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    for file in files:
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()
    _show([sys.executable, "-m", program, *arguments])
    return program, list(arguments)


def _show(words: list[str]) -> None:
    """Make this the command line of this process, in the memory where the kernel reads it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = map(int, fields[45:47])  # arg_start and arg_end of proc(5)
    shown = "".join(f"{word}\0" for word in words).encode()
    assert len(shown) <= end - start, f"a command line has room for {end - start} bytes"
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def main() -> int:
    """Load what commands have in common, and fork."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then end this process
    _, number, *modules, _room = sys.argv
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # what was loaded is never garbage, and looking through it would copy its memory into each child
    asked = serve(socket.socket(fileno=int(number)))
    if asked is None:
        return 0
    program, arguments = asked
    return int(importlib.import_module(PROGRAMS[program]).main(arguments))


if __name__ == "__main__":
    sys.exit(main())
