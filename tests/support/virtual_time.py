"""An event loop on a virtual clock: when nobody has anything left to do, time goes on to the next moment at which somebody has.

What runs on it is the real thing, with its timers and tasks; hours pass in milliseconds, and the same way every time.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from spillover.model.units import FOREVER, SECOND

T = TypeVar("T")


class Outside(Protocol):
    """What happens by itself, besides the timers of the loop."""

    def next_time(self) -> int:
        """When the next thing happens, nanoseconds; FOREVER if nothing will."""
        ...

    def happen(self, now: int) -> None:
        """Let it happen. It is seen before the timers that ring at the same moment."""
        ...


class VirtualTime(asyncio.SelectorEventLoop):
    """The loop, and the clock that it goes by."""

    def __init__(self) -> None:
        self.now = 0
        """Nanoseconds."""
        self.outside: Outside | None = None
        super().__init__(_Patient(self._go_on))

    def time(self) -> float:
        """Seconds, as the loop counts them."""
        return self.now / SECOND

    def wall(self) -> int:
        """See Clock."""
        return self.now

    def monotonic(self) -> int:
        """See Clock."""
        return self.now

    def _go_on(self, seconds: float | None) -> None:
        """Nobody has anything to do for this long; None is for ever."""
        until = FOREVER if seconds is None else round((self.time() + seconds) * SECOND)
        due = FOREVER if self.outside is None else self.outside.next_time()
        if due >= FOREVER and until >= FOREVER:
            raise RuntimeError("nothing will ever happen again")
        self.now = max(self.now, min(until, due))
        if self.outside is not None and due <= self.now:
            self.outside.happen(self.now)


class _Patient(selectors.DefaultSelector):
    """Looks at files without waiting for them."""

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; time goes on if nothing is."""
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._idle(timeout)
        return ready


def run_virtually(main: Callable[[VirtualTime], Coroutine[Any, Any, T]]) -> T:
    """Run something on a clock of its own, which begins at 0."""
    loop = VirtualTime()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()
