"""Asks for forked agents: starts the program that forks them when one is needed, and sends it orders. All calls block."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from spillover.providers.process.starting import MARK, Started

PROGRAM: Final = "spillover.agent.forks"
_ANSWER: Final = 60.0
"""Seconds for an answer, the first of which may include loading the program of an agent on a busy machine."""
_LEAVE: Final = 5.0
"""Seconds for the program to end."""


class AgentForks:
    """The program that forks the agents of one pool."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        """That of all machines. The command line has it, so that people see whose process it is."""
        self._requests: int | None = None
        """The program ends when this is closed."""
        self._lock = threading.Lock()

    def start(self, how: Started, log: int, lock: int) -> None:
        """Start the agent of a machine, which gets the log and the lock; raise OSError if it did not start."""
        with self._lock:
            for _ in range(2):  # the program may have ended meanwhile, for want of orders
                if self._requests is None:
                    self._begin(how.environ)
                if self._ask(how, log, lock):
                    return
                self._end()
        raise OSError("the program that starts agents ended; the server's output says why")

    def prepare(self, environ: Mapping[str, str]) -> None:
        """Start the program, so that the first order need not wait until it has loaded; raise OSError."""
        with self._lock:
            if self._requests is None:
                self._begin(environ)

    def close(self) -> None:
        """Let the program end, and wait for that. What it started goes on."""
        with self._lock:
            if self._requests is None:
                return
            with socket.socket(fileno=os.dup(self._requests)) as requests:
                self._end()
                requests.shutdown(socket.SHUT_WR)
                requests.settimeout(_LEAVE)
                with contextlib.suppress(OSError):
                    requests.recv(1)  # nothing, once it has ended

    def _end(self) -> None:
        if self._requests is not None:
            self._closes()
            self._requests = None

    def _begin(self, environ: Mapping[str, str]) -> None:
        """Start the program. It is no child of the server, as machines are not."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.run(
                [
                    "/bin/sh",
                    "-c",
                    '"$@" &',
                    "sh",
                    sys.executable,
                    "-m",
                    PROGRAM,
                    str(self._folder),
                    str(theirs.fileno()),
                ],
                cwd="/",
                env={name: value for name, value in environ.items() if name != MARK},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                check=True,
            )
        self._requests = ours.detach()
        self._closes = weakref.finalize(self, os.close, self._requests)

    def _ask(self, how: Started, log: int, lock: int) -> bool:
        """Ask for one agent; return whether it was started: not if the program ended first. Raise OSError."""
        assert self._requests is not None  # noqa: S101 - it was begun
        request = os.memfd_create("request")
        requests = socket.socket(fileno=os.dup(self._requests))
        ours, theirs = socket.socketpair()
        try:
            os.write(request, msgspec.msgpack.encode(how))
            ours.settimeout(_ANSWER)
            with theirs:
                socket.send_fds(requests, [b"."], [theirs.fileno(), request, log, lock])
            return bool(ours.recv(16))
        except (BrokenPipeError, ConnectionResetError):
            return False
        finally:
            os.close(request)
            ours.close()
            requests.close()
