"""The frames of a live session with a task: what people type, what programs print, and how they end.

Client and agent exchange them through the server, which passes bytes on. A frame is its kind (one byte), the length of its
data (four bytes, big endian) and its data. Both sides ignore kinds that they do not know, so later releases can add some.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

MOST: Final = 1 << 16
"""Most bytes of data in one frame."""
_HEAD: Final = struct.Struct("!BI")
_SIZE: Final = struct.Struct("!HH")
_CODE: Final = struct.Struct("!i")


class FrameKind(IntEnum):
    """What a frame is."""

    DATA = 1
    """Input of the program, or its output."""
    ERRORS = 2
    """What the program printed on standard error, if it has no terminal."""
    END = 3
    """The sender sends no more data."""
    RESIZE = 4
    """The size of the client's terminal."""
    SIGNAL = 5
    """The number of a signal for the program."""
    EXIT = 6
    """How the program ended; the last frame of a session."""
    ERROR = 7
    """Why the session ended early, as text; the last frame of a session."""
    ALIVE = 8
    """Nothing, so that the other side knows that the connection works."""
    READY = 9
    """The program runs, or the port is connected."""


_KINDS: Final = frozenset(FrameKind)


class BadFrame(ValueError):
    """The bytes are not frames."""


class Frame(NamedTuple):
    """One frame."""

    kind: FrameKind
    data: bytes = b""

    def encoded(self) -> bytes:
        """Return it as bytes; data beyond `MOST` become several frames."""
        if len(self.data) <= MOST:
            return _HEAD.pack(self.kind, len(self.data)) + self.data
        pieces = (self.data[at : at + MOST] for at in range(0, len(self.data), MOST))
        return b"".join([_HEAD.pack(self.kind, len(piece)) + piece for piece in pieces])

    @property
    def text(self) -> str:
        """Its data as text."""
        return self.data.decode(errors="replace")

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of a terminal; raise BadFrame if it has none."""
        rows, columns = _unpack(_SIZE, self.data)
        return rows, columns

    @property
    def number(self) -> int:
        """The exit code of EXIT, negative for a signal, or the number of SIGNAL; raise BadFrame if it has none."""
        (number,) = _unpack(_CODE, self.data)
        return int(number)


def _unpack(form: struct.Struct, data: bytes) -> tuple[int, ...]:
    try:
        return form.unpack(data)
    except struct.error:
        raise BadFrame(f"a frame has {len(data)} bytes instead of {form.size}") from None


def resize(rows: int, columns: int) -> Frame:
    """Return the size of a terminal; what does not fit into the frame becomes as large as possible."""
    return Frame(FrameKind.RESIZE, _SIZE.pack(*(min(max(0, each), 0xFFFF) for each in (rows, columns))))


def signal(number: int) -> Frame:
    """Return a signal for the program."""
    return Frame(FrameKind.SIGNAL, _CODE.pack(number))


def ended(code: int) -> Frame:
    """Return how a program ended: its exit code, or the negative number of a signal."""
    return Frame(FrameKind.EXIT, _CODE.pack(code))


def failed(why: str) -> Frame:
    """Return why a session ended early."""
    return Frame(FrameKind.ERROR, why.encode(errors="replace")[:MOST])


class FrameReader:
    """Finds the frames in pieces of a stream."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[Frame]:
        """Return the frames that are complete now, without those of unknown kinds; raise BadFrame."""
        rest, frames, at = self._rest, [], 0
        rest += piece
        while len(rest) - at >= _HEAD.size:
            kind, size = _HEAD.unpack_from(rest, at)
            if size > MOST:
                raise BadFrame(f"a frame announces {size} bytes; the maximum is {MOST}")
            end = at + _HEAD.size + size
            if len(rest) < end:
                break
            if kind in _KINDS:
                frames.append(Frame(FrameKind(kind), bytes(rest[at + _HEAD.size : end])))
            at = end
        del rest[:at]
        return frames

    @property
    def torn(self) -> bool:
        """Whether the stream ended inside of a frame."""
        return bool(self._rest)
