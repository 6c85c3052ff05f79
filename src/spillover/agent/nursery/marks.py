"""Records which task each thread of a nursery began last, in memory shared with the agent.

Each thread runs its tasks in the order of their keys. So when a nursery dies, the agent knows which tasks never began
and can start them elsewhere.
"""

import mmap
import os
from typing import Final

MOST: Final = 4096
"""Most threads with marks. A task of any other thread counts as begun."""


class Marks:
    """The marks of one nursery."""

    def __init__(self, file: int) -> None:
        self._keys = memoryview(mmap.mmap(file, 8 * MOST)).cast("Q")

    def close(self) -> None:
        """Release the shared memory."""
        self._keys.release()

    def begin(self, thread: int, key: int) -> None:
        """Record that a thread is about to begin a task."""
        if thread < MOST:
            self._keys[thread] = key

    def begun(self, thread: int, key: int) -> bool:
        """Return whether a thread may have begun a task."""
        return thread >= MOST or key <= self._keys[thread]


def make() -> int:
    """Create an in-memory file for the marks of one nursery."""
    file = os.memfd_create("marks")
    os.ftruncate(file, 8 * MOST)
    return file
