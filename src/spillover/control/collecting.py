"""What Python's garbage collector is kept from.

A state has no cycles, so there is nothing in it to collect. But the collector would go through the entries of each long list again
and again: with a million jobs, all else stands still for a third of a second.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 100_000
"""Jobs that are worth it."""
IN_A_ROW: Final = 32
"""Short steps, each of which goes on with what the one before began, after which lists have become long."""


@contextmanager
def not_collecting() -> Iterator[None]:
    """Meanwhile nothing is collected: what is made is kept, and would be gone through while there is ever more of it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Spared:
    """Keeps the collector from a state that grows.

    What is spared once stays so: of what else there is at that moment, a cycle is never collected. So it is done seldom.
    """

    def __init__(self) -> None:
        self._jobs = 0
        """How many there were when that was last done; fewer, if there were far fewer since."""
        self._steps = 0
        """Short steps that go on with one thing, so far."""

    def look(self, jobs: int, *, made_anew: bool = False, goes_on: bool = False) -> bool:
        """Spare what is there, if there are so many more jobs now, or if long lists of them are being made; whether it was done.

        They are `made_anew` when all jobs are put into order again. A step that `goes_on` in another one adds to them.
        """
        if jobs < self._jobs // 2:
            self._jobs = jobs
        self._steps = self._steps + 1 if goes_on else 0
        longer = made_anew or (goes_on and self._steps % IN_A_ROW == 0)
        if jobs < self._jobs + MANY and not (longer and jobs >= MANY):
            return False
        gc.freeze()
        self._jobs = jobs
        return True
