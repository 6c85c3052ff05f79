"""Notices a story that goes round in circles: a host that never ends its turn, or turns without end at one moment."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

LIMIT: Final = 5.0
"""Seconds of the processor's time that a story may take: most take less than a tenth of one."""
TURN: Final = 0.5
"""Seconds of it that the turn may still take during which that time runs out."""


class Standstill(KeyboardInterrupt):
    """A story took too long. Of this kind, as event loops keep all other errors to themselves."""


class Patience:
    """How long a story may still take."""

    def __init__(self) -> None:
        self._where: str | None = None

    def ask(self) -> None:
        """Between two turns: raise if the story took too long. Nothing is half done here, so all hosts can still be ended."""
        if self._where is not None:
            raise Standstill(self._where)

    def ring(self, _: int, frame: FrameType | None) -> None:
        """Time has run out; when that is said a second time, a turn does not end by itself."""
        again = self._where is not None
        self._where = _place(frame)
        if again:
            raise Standstill(self._where)


@contextlib.contextmanager
def noticed(limit: float) -> Iterator[Patience]:
    """Raise Standstill when so much of the processor's time has gone by; in the main thread alone.

    That time does not pass while others have the processor, so that a busy machine makes no story too long.
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
