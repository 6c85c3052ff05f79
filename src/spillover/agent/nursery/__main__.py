"""Runs a nursery (`python -m spillover.agent.nursery CONTROL LOCK MARKS`) with descriptors from the agent."""

import fcntl
import gc
import os
import socket
import sys

from spillover.agent.nursery.frames import LARGEST, unpack
from spillover.agent.nursery.marks import Marks
from spillover.agent.nursery.procfs import birth_of
from spillover.agent.nursery.serving import Nursery, Setup


def main() -> None:
    """Serve until the agent is gone."""
    control, lock, marks = (int(word) for word in sys.argv[1:4])
    for file in (control, lock, marks):
        os.set_inheritable(file, False)
    fcntl.flock(lock, fcntl.LOCK_SH)
    os.write(lock, f"{os.getpid()} {birth_of(os.getpid())}\n".encode())
    channel = socket.socket(fileno=control)
    gc.disable()  # nothing here makes cycles
    first = channel.recv(LARGEST)
    if first:
        Nursery(channel, Marks(marks), Setup(unpack(first)[1])).serve()
    os._exit(0)  # threads that wait for a task that cannot die would block a normal exit


if __name__ == "__main__":
    main()
