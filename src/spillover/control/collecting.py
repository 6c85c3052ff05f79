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

    def look(self, jobs: int, *, made_anew: bool = False) -> bool:
        """Spare what is there, if there are so many more jobs now, or if long lists of them are being made anew; whether it was done."""
        if jobs < self._jobs // 2:
            self._jobs = jobs
        if jobs < self._jobs + MANY and not (made_anew and jobs >= MANY):
            return False
        gc.freeze()
        self._jobs = jobs
        return True
