"""The messages of a remote shell: each is signed with a key that only tasks of the gang can derive.

Both sides send a random number first. The key of a connection follows from both numbers and the secret of the attempt.
A message that was changed, repeated, left out or sent back has another signature, and ends the connection. The content
is not encrypted, like the traffic of the programs that such shells start.
"""

import asyncio
import hashlib
import hmac
import secrets
import signal
import struct
from enum import IntEnum
from typing import Final

NONCE: Final = 32
"""Bytes of a random number."""
MAC: Final = 32
"""Bytes of a signature."""
MOST: Final = 1 << 20
"""Most bytes of one message."""
_HEAD: Final = struct.Struct("!BI")


class FrameKind(IntEnum):
    """What a message is."""

    RUN = 1
    """Run this command line."""
    IN = 2
    """Standard input; an empty one ends it."""
    OUT = 3
    ERR = 4
    EXIT = 5
    """The exit code, as text."""
    WATCH = 6
    """Keep this connection open while you live; the caller ends when it breaks."""
    SIGNAL = 7
    """Send this signal to the command; the number as text. A service of an earlier release ends the command."""


PASSED_ON: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that may be sent to a command."""


class Unsigned(Exception):
    """The other side does not know the secret of this gang, or the message was changed."""


class Wire:
    """One connection, after both sides have exchanged their random numbers."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        key: bytes,
        mine: bytes,
        theirs: bytes,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._key = key
        self._mine, self._theirs = mine, theirs
        """The names of both directions, so that no message can be sent back to its sender."""
        self._sent = self._received = 0

    @classmethod
    async def agree(
        cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes, *, calls: bool
    ) -> "Wire":
        """Exchange random numbers; the first message proves that the other side knows the secret."""
        own = secrets.token_bytes(NONCE)
        try:
            writer.write(own)
            await writer.drain()
            other = await reader.readexactly(NONCE)
        except BaseException:
            writer.close()
            raise
        first, second = (own, other) if calls else (other, own)
        key = hmac.digest(token, b"spillover rsh 1" + first + second, hashlib.sha256)
        names = (b"call", b"serve") if calls else (b"serve", b"call")
        return cls(reader, writer, key, *names)

    async def send(self, kind: FrameKind, data: bytes = b"") -> None:
        """Send a message; one of a stream may become several."""
        for at in range(0, len(data) or 1, MOST):
            piece = data[at : at + MOST]
            head = _HEAD.pack(kind, len(piece))
            self._writer.write(head + piece + self._sign(self._mine, self._sent, head, piece))
            self._sent += 1
        await self._writer.drain()

    async def receive(self) -> tuple[FrameKind, bytes]:
        """Return the next message; raise Unsigned, or EOFError at the end."""
        head = await self._reader.readexactly(_HEAD.size)
        kind, size = _HEAD.unpack(head)
        if size > MOST:
            raise Unsigned("the other side is not a task of this gang")
        data = await self._reader.readexactly(size)
        signature = await self._reader.readexactly(MAC)
        expected = self._sign(self._theirs, self._received, head, data)
        if not hmac.compare_digest(signature, expected):
            raise Unsigned("the other side is not a task of this gang")
        self._received += 1
        return FrameKind(kind), data

    def _sign(self, way: bytes, number: int, head: bytes, data: bytes) -> bytes:
        return hmac.digest(self._key, way + struct.pack("!Q", number) + head + data, hashlib.sha256)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()
