"""The clocks of the machine, for the live loop. The core gets the time as an argument."""

import time
from functools import partial
from pathlib import Path
from typing import Final, Protocol

boottime: Final = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds since boot, including suspended time. A server that may act until a time needs this clock to notice
that it slept. One that waits for another to stop does not: a slower clock only makes it wait longer."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the id of this boot of the machine, the same within containers; empty if unknown."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


class Clock(Protocol):
    """A wall clock, which can be set, and a monotonic clock."""

    def wall(self) -> int:
        """Return nanoseconds UTC; may jump."""
        ...

    def monotonic(self) -> int:
        """Return nanoseconds since a fixed moment, including suspended time; never jumps."""
        ...
