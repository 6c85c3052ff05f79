"""Defines the messages between the agent and its nursery.

They use pairs of sockets that preserve message boundaries (SOCK_SEQPACKET), so that each message is one call on either
side:

* *work*, one socket for each thread of the nursery. The agent sends `[(key, argv, env, folder, stem, mark, memory,
  cpu, cpus), ...]`, some with more fields behind them (see `NurseryTask`), which the thread runs one after the other. The thread answers with `[(key, spawned, code, signal, at,
  ran, cpu, peak, out_of_memory, message), ...]` for those that ended.
* *control*. The agent sends `(SETUP, {...})` once, `(THREAD, number)` with the work socket of a new thread, `(SIGNAL,
  key, number)`, `(NOTIFY, key, number)`, `(NAME, key)`, `(RECALL, thread, keys)` and `(SHARE, cpus)` with the CPUs of tasks that have none for
  themselves. The nursery sends `(STARTED, key, pid, birth, at)`,
  `(NAMED, key)`, `(RETURNED, keys)` for tasks that have not begun and never will, and `(REFUSED, number)` for a thread
  that cannot be created.

Times are monotonic nanoseconds. Work that is too large for a message goes into a file, and the message has its path.
"""

import marshal
import os
from typing import Any, Final

SETUP, THREAD, SIGNAL, NAME, RECALL = 0, 1, 2, 3, 4
STARTED, NAMED, RETURNED, REFUSED = 5, 6, 7, 8
SHARE: Final = 9
NOTIFY: Final = 10

LARGEST: Final = 1 << 16
"""Most bytes of a message. More goes through a file."""

STREAMS: Final = ("out", "err")
"""Suffixes of the files with a task's output."""

pack = marshal.dumps


def unpack(data: bytes) -> Any:
    """Decode a message. Unmarshalling is safe, because only our own processes can write to the sockets."""
    message = marshal.loads(data)  # noqa: S302
    if isinstance(message, str):
        with open(message, "rb") as file:
            data = file.read()
        os.unlink(message)
        return marshal.loads(data)  # noqa: S302
    return message
