"""Notices a story that goes round in circles: a host that never ends its turn, or turns without end at one moment."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

LIMIT: Final = 5.0
"""Seconds of the processor's time that a story may take: most take less than a tenth of one."""


class Standstill(KeyboardInterrupt):
    """A story took too long. Of this kind, as event loops keep all other errors to themselves."""


@contextlib.contextmanager
def noticed(limit: float) -> Iterator[None]:
    """Raise Standstill wherever it stands when so much of the processor's time has gone by; in the main thread alone.

    That time does not pass while others have the processor, so that a busy machine makes no story too long.
    """
    before = signal.signal(signal.SIGVTALRM, _raise)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(_: int, frame: FrameType | None) -> None:
    where = f"{frame.f_code.co_qualname} of {frame.f_globals['__name__']}" if frame is not None else "nowhere"
    raise Standstill(where)
