"""What an agent and its warm workers say to each other; see `worker` for the words.

A worker may be of another version of Python than the agent, so frames are marshalled in a form that all of them read.
"""

import marshal
import struct
from typing import Any, Final

CONTEXT, CALL, FORGET = 0, 1, 2
DROP, STOP, NAME = 0, 1, 2
DROPPED, NAMED = 1, 2

STAGE: Final = 1 << 18
"""Bytes of the page of memory that agent and worker share."""
FORM: Final = 4
"""Of marshal."""
LENGTH = struct.Struct("<I")
NOW = struct.Struct("<QQ")
"""At the beginning of the page: the key of the call that runs, and when it began."""
STAGED = struct.Struct("<Q")
"""Behind that: how many bytes of results were not sent yet."""
STAGED_AT: Final = NOW.size
RECORDS_AT: Final = NOW.size + STAGED.size


def pack(messages: list[tuple[Any, ...]]) -> bytes:
    """Messages as one frame."""
    body = marshal.dumps(messages, FORM)
    return LENGTH.pack(len(body)) + body


def unpack_records(data: bytes) -> list[tuple[Any, ...]]:
    """The results in a frame, or in the page of a worker that died."""
    records, at, end = [], 0, len(data)
    while at < end:
        after = at + LENGTH.size + LENGTH.unpack_from(data, at)[0]
        # Both ends are our own processes, on a connection that shows a secret first.
        records.append(marshal.loads(data[at + LENGTH.size : after]))  # noqa: S302
        at = after
    return records
