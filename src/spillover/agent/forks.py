"""Forks the agents of machines that are processes of one host, from a process that has loaded the program of an agent.

Loading the program takes an agent a third of a second of CPU time and 25 MiB of memory. Agents that are forked share
both, so one host can have hundreds of such machines. The provider `process` runs this program and asks it for each
machine over a socket; whatever it forked goes on after its end, which is that of the server, or ten minutes without orders.

Agents start by turns. If hundreds started at the same time, each would get so little of the processor that none could
register in time, and the server beside them could not answer.
"""

import contextlib
import fcntl
import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import IO, Final

import msgspec

from spillover.agent.__main__ import main as run_agent
from spillover.providers.process.starting import Started

IDLE: Final = 600.0
"""Seconds without a request after which the program ends."""
TURNS: Final = 2 * len(os.sched_getaffinity(0))
"""How many agents of one pool start at the same time. Half of their time they wait for the server, or for the disk."""
TURN: Final = 15.0
"""Seconds after which the next agent may start although this one has not joined: perhaps it never will."""


def serve(requests: socket.socket) -> Started | None:
    """Fork for each request until there are none any more, and return None. In a child, return what to start."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for machines that end
    while select.select([requests], [], [], IDLE)[0]:
        _, received, _, _ = socket.recv_fds(requests, 1, 4)
        if not received:
            return None
        if not os.fork():
            requests.close()
            return _become(received)
        for each in received:
            os.close(each)
    return None


def _become(received: list[int]) -> Started:
    """Take over folder, environment and output of a machine, and answer. The lock of its folder stays open."""
    answers, request, log, _lock = received
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = msgspec.msgpack.decode(os.pread(request, os.fstat(request).st_size, 0), type=Started)
    os.chdir(asked.folder)
    for standard in (1, 2):
        os.dup2(log, standard)
    new = Path("pid.new")
    new.write_text(f"{os.getpid()}\n")
    new.rename("pid")
    os.environ.clear()
    os.environ.update(asked.environ)
    time.tzset()
    if asked.umask >= 0:
        os.umask(asked.umask)
    if asked.files is not None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (asked.files, most))
    with contextlib.suppress(OSError):  # whoever asked is gone
        os.write(answers, b"started")
    for each in (answers, request, log):
        os.close(each)
    return asked


def take_turn(folder: Path, number: int, turns: int = TURNS, patience: float = TURN) -> IO[bytes]:
    """Wait for a turn to start. It lasts until the file is closed, for so many seconds, or until the process ends."""
    turn = (folder / f".turn-{number % turns}").open("wb")
    fcntl.flock(turn, fcntl.LOCK_EX)
    over = threading.Timer(patience, turn.close)
    over.daemon = True
    over.start()
    return turn


def main() -> int:
    """Load an agent, and fork; in a child, wait for the boot time and for its turn, and run the agent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # looking through what is never garbage would copy its memory into each child
    asked = serve(socket.socket(fileno=int(sys.argv[2])))
    if asked is None:
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    time.sleep(asked.boot)
    turn = take_turn(Path(sys.argv[1]), os.getpid())
    return run_agent(list(asked.words), turn.close)


if __name__ == "__main__":
    sys.exit(main())
