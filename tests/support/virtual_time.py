"""An event loop on a virtual clock: when no task can continue, time jumps to the next timer.

It runs real code with its timers and tasks. Hours pass in milliseconds, and always in the same way.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from spillover.model.units import FOREVER, SECOND

T = TypeVar("T")


class Outside(Protocol):
    """A source of events beside the timers of the loop."""

    def next_time(self) -> int:
        """Return the time of its next event in nanoseconds; FOREVER if there is none."""
        ...

    def happen(self, now: int) -> None:
        """Run the events that are due, before timers of the same time."""
        ...


class VirtualTime(asyncio.SelectorEventLoop):
    """The loop and its clock."""

    def __init__(self) -> None:
        self.now = 0
        """Nanoseconds."""
        self.outside: Outside | None = None
        super().__init__(_Patient(self._go_on))

    def time(self) -> float:
        """Return seconds on the clock of the loop."""
        return self.now / SECOND

    def wall(self) -> int:
        """See Clock."""
        return self.now

    def monotonic(self) -> int:
        """See Clock."""
        return self.now

    def _go_on(self, seconds: float | None) -> None:
        """Advance the clock; no task can continue for this many seconds (None: for ever)."""
        until = FOREVER if seconds is None else round((self.time() + seconds) * SECOND)
        due = FOREVER if self.outside is None else self.outside.next_time()
        if due >= FOREVER and until >= FOREVER:
            raise RuntimeError("nothing will ever happen again")
        self.now = max(self.now, min(until, due))
        if self.outside is not None and due <= self.now:
            self.outside.happen(self.now)


class _Patient(selectors.DefaultSelector):
    """A selector that never blocks."""

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, advance the clock."""
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._idle(timeout)
        return ready


def run_virtually(main: Callable[[VirtualTime], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a new virtual clock, which begins at 0."""
    loop = VirtualTime()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()
