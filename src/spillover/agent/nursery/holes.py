"""Limits the output of a task while it grows, by punching a hole into the middle of the file.

A task writes to a file that is open for appending. The file keeps its length, so the task notices nothing and later
output stays at its offset. A reader finds the hole with SEEK_HOLE and reports how much is missing. There is no other
record of it.
"""

import contextlib
import ctypes
import os
from typing import Final

_PUNCH_HOLE: Final = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
LEAST_LIMIT: Final = 1 << 20
"""Least limit of a stream, in bytes."""
BLOCK: Final = 1 << 16
"""Bytes. Holes begin and end at multiples of this, which is a multiple of the block size of any file system."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class BoundedFile:
    """One output stream of a task, and the hole in it."""

    __slots__ = ("_end", "_file", "_head", "_limit", "size")

    def __init__(self, file: int, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._head = max(BLOCK, limit // 2 // BLOCK * BLOCK)
        self._end = self._head
        """Where the hole ends."""
        self.size = 0
        """Bytes at the last check."""

    def trim(self) -> int:
        """Keep the head and tail within the limit; return by how many bytes the file grew since the last call."""
        size = os.fstat(self._file).st_size
        grown, self.size = size - self.size, size
        if size > self._limit:
            end = (size - self._limit + self._head) // BLOCK * BLOCK
            if end > self._end:
                self._cut(end, size)
        return grown

    def _cut(self, end: int, size: int) -> None:
        """Extend the hole up to `end`. If the file system supports no holes, drop the tail and start it again."""
        if _libc.fallocate(self._file, _PUNCH_HOLE, self._end, end - self._end) == 0:
            self._end = end
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._head)
            os.write(self._file, left_out(size - self._head))
            self.size = os.fstat(self._file).st_size


def left_out(count: int) -> bytes:
    """Return the line that replaces missing output."""
    return b"\n[... %d bytes left out ...]\n" % count
