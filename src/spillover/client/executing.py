"""Gathers what a command beside a task prints, and how it ends."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from spillover.client.errors import Unavailable, Unreachable
from spillover.wire.relay import Frame, FrameKind, FrameReader

END: Final = Frame(FrameKind.END).encoded()
"""Input for a command that gets none."""


def words_of(command: Sequence[str]) -> list[str]:
    """Return program and arguments; raise TypeError for a line, which would be split into letters."""
    if isinstance(command, str):
        raise TypeError(f'{command!r} is one text; write a list, as in ["sh", "-c", {command!r}]')
    return list(command)


class Executed(NamedTuple):
    """How a command ended."""

    code: int
    """Its exit code; negative for the number of a signal that killed it."""
    stdout: bytes
    stderr: bytes


class Executing:
    """A command that runs."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._printed = bytearray()
        self._errors = bytearray()
        self._code: int | None = None

    def take(self, chunk: bytes) -> None:
        """Take a part of the stream; raise Unavailable if the session ended early."""
        for frame in self._reader.feed(chunk) if self._code is None else ():
            match frame.kind:
                case FrameKind.DATA:
                    self._printed += frame.data
                case FrameKind.ERRORS:
                    self._errors += frame.data
                case FrameKind.EXIT:
                    self._code = frame.number
                    return  # what follows is no part of the session
                case FrameKind.ERROR:
                    raise Unavailable(frame.text)
                case _:
                    pass

    def done(self) -> Executed:
        """Return how it ended, once the stream has; raise Unreachable if that is not known."""
        if self._code is None:
            raise Unreachable("the connection to the command was lost, so it was ended", sent=True)
        return Executed(self._code, bytes(self._printed), bytes(self._errors))
