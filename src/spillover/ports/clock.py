"""Time, as the live loop asks for it. The core is told the time instead."""

import time
from functools import partial
from typing import Final, Protocol

boottime: Final = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds since the machine was started, those that it was suspended for among them: whoever may act until a time must know
how late it is after a sleep. Whoever waits for another to have stopped needs no such clock, as a slower one only waits longer."""


class Clock(Protocol):
    """Two clocks: the one on the wall, which people set, and one that only runs."""

    def wall(self) -> int:
        """Nanoseconds UTC; may jump."""
        ...

    def monotonic(self) -> int:
        """Nanoseconds from some moment, those that the machine was suspended for among them; never jumps."""
        ...
