"""Time, as the live loop asks for it, and the machine whose clocks tell it. The core is told the time instead."""

import time
from functools import partial
from pathlib import Path
from typing import Final, Protocol

boottime: Final = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds since the machine was started, those that it was suspended for among them: whoever may act until a time must know
how late it is after a sleep. Whoever waits for another to have stopped needs no such clock, as a slower one only waits longer."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """What this start of this machine is known by, also within containers; empty if the system does not tell."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


class Clock(Protocol):
    """Two clocks: the one on the wall, which people set, and one that only runs."""

    def wall(self) -> int:
        """Nanoseconds UTC; may jump."""
        ...

    def monotonic(self) -> int:
        """Nanoseconds from some moment, those that the machine was suspended for among them; never jumps."""
        ...
