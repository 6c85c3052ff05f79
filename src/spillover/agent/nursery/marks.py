"""Which task each thread of a nursery began last, in memory that it shares with the agent.

Tasks are run in the order of their keys by each thread. So when a nursery is gone without a word, the agent still knows which of the
tasks that it had handed over were never begun, and that these may begin elsewhere.
"""

import mmap
import os
from typing import Final

MOST: Final = 4096
"""Threads that leave marks; a task of any other counts as begun."""


class Marks:
    """Of one nursery."""

    def __init__(self, file: int) -> None:
        self._keys = memoryview(mmap.mmap(file, 8 * MOST)).cast("Q")

    def close(self) -> None:
        """Let go of the file."""
        self._keys.release()

    def begin(self, thread: int, key: int) -> None:
        """A thread is about to begin a task."""
        if thread < MOST:
            self._keys[thread] = key

    def begun(self, thread: int, key: int) -> bool:
        """Whether a thread may have begun a task that it was given."""
        return thread >= MOST or key <= self._keys[thread]


def make() -> int:
    """A file in memory for the marks of one nursery."""
    file = os.memfd_create("marks")
    os.ftruncate(file, 8 * MOST)
    return file
