"""What the agent and its nursery say to each other.

Pairs of sockets that keep messages apart (SOCK_SEQPACKET), so that a message is one call on either side:

* *work*, one for each thread of the nursery: `[(key, argv, env, folder, stem, mark, memory, cpu), ...]` from the agent, run one
  after the other; `[(key, spawned, code, signal, at, ran, cpu, peak, out_of_memory, message), ...]` back, of those that ended.
* *control*: `(SETUP, {...})` once, `(THREAD, number)` with the work socket of a new thread, `(SIGNAL, key, number)`, `(NAME, key)`
  and `(RECALL, thread, keys)` from the agent; `(STARTED, key, pid, birth, at)`, `(NAMED, key)`, `(RETURNED, keys)` of tasks that
  have not begun and never will, and `(REFUSED, number)` of a thread that cannot be back.

Times are monotonic nanoseconds. Work that is larger than a message may be is put into a file, and its path is sent.
"""

import marshal
import os
from typing import Any, Final

SETUP, THREAD, SIGNAL, NAME, RECALL = 0, 1, 2, 3, 4
STARTED, NAMED, RETURNED, REFUSED = 5, 6, 7, 8

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
