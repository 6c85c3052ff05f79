"""Encodes the messages between an agent and its warm workers. `worker` describes them.

A worker may use another version of Python than the agent, so frames use a marshal format that all versions read.
"""

import marshal
import struct
from typing import Any, Final

CONTEXT, CALL, FORGET = 0, 1, 2
DROP, STOP, NAME, TELL = 0, 1, 2, 3
DROPPED, NAMED = 1, 2

STAGE: Final = 1 << 18
"""Bytes of the memory page that agent and worker share."""
FORM: Final = 4
"""Version of the marshal format."""
LENGTH = struct.Struct("<I")
NOW = struct.Struct("<QQ")
"""At the start of the page: the key of the running call, and when it began."""
STAGED = struct.Struct("<Q")
"""After that: the bytes of results that were not sent yet."""
STAGED_AT: Final = NOW.size
RECORDS_AT: Final = NOW.size + STAGED.size


def pack(messages: list[tuple[Any, ...]]) -> bytes:
    """Encode messages as one frame."""
    body = marshal.dumps(messages, FORM)
    return LENGTH.pack(len(body)) + body


def unpack_records(data: bytes) -> list[tuple[Any, ...]]:
    """Decode the results in a frame, or in the page of a worker that died."""
    records, at, end = [], 0, len(data)
    while at < end:
        after = at + LENGTH.size + LENGTH.unpack_from(data, at)[0]
        # Unmarshalling is safe: both ends are our own processes, and a connection must present a secret first.
        records.append(marshal.loads(data[at + LENGTH.size : after]))  # noqa: S302
        at = after
    return records
