"""Runs `spill` commands in processes that are forked from one that has loaded the client.

A test of the whole system types dozens of commands, and each of them would take longer to import its modules than to do its
work. So one process for each test session imports what every command that talks to a server imports. It forks for each
command. The child runs the command as `python -m spillover.cli` does, with its own folder, environment and streams, to the
regular end of the interpreter. It loads the module of the command itself.

Tests of how a process starts, of signals and of terminals run `python -m spillover.cli` instead.
"""

import atexit
import contextlib
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
from typing import Final

COMMON: Final = (
    "httpcore",
    "httpx",
    "spillover.cli.main",
    "spillover.cli.printing.output",
    "spillover.client.synchronous.client",
)
"""What every command that talks to a server loads. With more, a command that lacks an import would work in tests alone."""
NUMBER: Final = struct.Struct("i")
"""What the fork server answers: the process of a command, then its wait status."""


class ForkServer:
    """The process that forks, as tests see it."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A folder of a test in its environment would make it one of the processes that the test must not leave behind.
        kept = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        kept.pop("PYTHONPATH", None)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
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
            request, stdin, stdout, stderr = files = [
                opened.enter_context(os.fdopen(os.memfd_create(name), "w+b", buffering=0))
                for name in ("request", "stdin", "stdout", "stderr")
            ]
            request.write(json.dumps([list(arguments), str(folder), dict(environment)]).encode())
            stdin.write((typed or "").encode())
            stdin.seek(0)
            ours, theirs = map(opened.enter_context, socket.socketpair())
            socket.send_fds(self._requests, [b"."], [theirs.fileno(), *(file.fileno() for file in files)])
            theirs.close()  # so that the end of the fork server is the end of its answers
            pid = _number(ours)
            if not select.select([ours], [], [], timeout)[0]:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["spill", *arguments], timeout)
            code = os.waitstatus_to_exitcode(_number(ours))
            for file in (stdout, stderr):
                file.seek(0)
            return subprocess.CompletedProcess(
                ["spill", *arguments], code, stdout.read().decode(), stderr.read().decode()
            )


@functools.cache
def fork_server() -> ForkServer:
    """The one of this test session."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def _number(answers: socket.socket) -> int:
    """The next number that the fork server answers."""
    answer = answers.recv(NUMBER.size)
    assert answer, "the fork server has ended; what it printed says why"
    return int(NUMBER.unpack(answer)[0])


# --- in the process that forks


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request, until there are no more. In a child, return the arguments of its command."""
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


def _become(files: list[int]) -> list[str]:
    """Take over the folder, environment and streams of a request; its arguments."""
    request, *streams = files
    for stream, standard in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, standard)
    arguments, folder, environment = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    for file in files:
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()
    return list(arguments)


def main() -> int:
    """Load what commands have in common, and fork."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then end this process
    for module in COMMON:
        importlib.import_module(module)
    gc.freeze()  # what was loaded is never garbage, and looking through it would copy its memory into each child
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        return 0
    from spillover.cli.main import main as spill  # noqa: PLC0415 - loaded above

    return spill(arguments)


if __name__ == "__main__":
    sys.exit(main())
