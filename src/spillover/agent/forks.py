"""Forks the agents of machines that are processes of one host, from a process that has loaded the program of an agent.

Loading the program takes an agent a third of a second of CPU time and 25 MiB of memory. Agents that are forked share
both, so one host can have hundreds of such machines. The provider `process` runs this program and asks it for each
machine over a socket; whatever it forked goes on after its end, which is that of the server, or a minute without orders.
"""

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from spillover.agent.__main__ import main as run_agent
from spillover.providers.process.starting import Started

IDLE: Final = 60.0
"""Seconds without a request after which the program ends."""


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


def main() -> int:
    """Load an agent, and fork; in a child, wait for the boot time and run the agent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # looking through what is never garbage would copy its memory into each child
    asked = serve(socket.socket(fileno=int(sys.argv[2])))
    if asked is None:
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    time.sleep(asked.boot)
    return run_agent(list(asked.words))


if __name__ == "__main__":
    sys.exit(main())
