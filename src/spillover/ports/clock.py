"""Time, as the live loop asks for it. The core is told the time instead."""

from typing import Protocol


class Clock(Protocol):
    """Two clocks: the one on the wall, which people set, and one that only runs."""

    def wall(self) -> int:
        """Nanoseconds UTC; may jump."""
        ...

    def monotonic(self) -> int:
        """Nanoseconds from some moment; never jumps."""
        ...
