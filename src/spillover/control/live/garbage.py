"""Keeps Python's garbage collector away from the state.

The state has no cycles, so there is nothing in it to collect. But the collector would scan each long list again and
again. With a million jobs, that blocks the process for a third of a second.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 100_000
"""Additional jobs that justify a freeze."""
IN_A_ROW: Final = 32
"""Consecutive steps of one piece of work after which its lists have become long."""


@contextmanager
def not_collecting() -> Iterator[None]:
    """Disable collection in this block, whose objects all stay and would be scanned again and again as they grow."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class FrozenState:
    """Freezes a growing state out of the collector's sight.

    Frozen objects stay frozen, and cycles among other objects of that moment are never collected. So this happens
    rarely.
    """

    def __init__(self) -> None:
        self._jobs = 0
        """Jobs at the last freeze; lowered when the number has halved since."""
        self._steps = 0
        """Consecutive steps of one piece of work so far."""

    def look(self, jobs: int, *, rebuilt: bool = False, goes_on: bool = False) -> bool:
        """Freeze if there are many more jobs than last time, or if long lists are being built; return whether it did.

        `rebuilt` means that all jobs are being sorted again. `goes_on` means that the next step continues this one.
        """
        if jobs < self._jobs // 2:
            self._jobs = jobs
        self._steps = self._steps + 1 if goes_on else 0
        longer = rebuilt or (goes_on and self._steps % IN_A_ROW == 0)
        if jobs < self._jobs + MANY and not (longer and jobs >= MANY):
            return False
        gc.freeze()
        self._jobs = jobs
        return True
