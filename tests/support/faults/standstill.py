"""Detects a story that makes no progress: a host that never ends its turn, or endless turns at one moment."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

LIMIT: Final = 5.0
"""Seconds of CPU time that a story may take; most take less than a tenth."""
TURN: Final = 0.5
"""Further seconds of CPU time for the turn in which the limit is reached."""


class Standstill(KeyboardInterrupt):
    """A story took too long. Derives from KeyboardInterrupt, because event loops swallow other errors."""


class Patience:
    """The time that a story may still take."""

    def __init__(self) -> None:
        self._where: str | None = None

    def ask(self) -> None:
        """Raise between two turns if the story took too long; hosts are consistent here and can still be ended."""
        if self._where is not None:
            raise Standstill(self._where)

    def ring(self, _: int, frame: FrameType | None) -> None:
        """Handle the timer; at the second time, the current turn does not end by itself, so raise here."""
        again = self._where is not None
        self._where = _place(frame)
        if again:
            raise Standstill(self._where)


@contextlib.contextmanager
def noticed(limit: float) -> Iterator[Patience]:
    """Raise Standstill after this much CPU time; works only in the main thread.

    CPU time does not pass while other processes run, so a busy machine does not make a story too long.
    """
    patience = Patience()
    before = signal.signal(signal.SIGVTALRM, patience.ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit, TURN)
    try:
        yield patience
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _place(frame: FrameType | None) -> str:
    return f"{frame.f_code.co_qualname} of {frame.f_globals['__name__']}" if frame is not None else "nowhere"
