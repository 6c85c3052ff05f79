"""What the agent and its nursery say to each other.

Two pairs of sockets that keep messages apart (SOCK_SEQPACKET), so that a message is one call on either side:

* *work*: `(key, argv, env, folder, stem, mark, memory, cpu)` from the agent, taken by whichever thread of the nursery is idle,
  without a hand-over inside; `(ENDED, key, spawned, code, signal, at, ran, cpu, peak, out_of_memory, message)` back from it.
* *control*: `(SETUP, {...})` once, `(THREADS, count)`, `(SIGNAL, key, number)` and `(NAME, key)` from the agent;
  `(STARTED, key, pid, birth, at)` and `(NAMED, key)` back.

Times are monotonic nanoseconds. Work that is larger than a message may be is put into a file, and its path is sent.
"""

import marshal
import os
from typing import Any, Final

SETUP, THREADS, SIGNAL, NAME = 0, 1, 2, 3
STARTED, NAMED, ENDED = 4, 5, 6

LARGEST: Final = 1 << 16
"""Bytes of a message; more goes through a file."""

STREAMS: Final = ("out", "err")
"""Endings of the files that have a task's output."""

pack = marshal.dumps


def unpack(data: bytes) -> Any:
    """A message; both ends are our own processes on one pair of sockets, and nobody else can write there."""
    message = marshal.loads(data)  # noqa: S302
    if isinstance(message, str):
        with open(message, "rb") as file:
            data = file.read()
        os.unlink(message)
        return marshal.loads(data)  # noqa: S302
    return message
