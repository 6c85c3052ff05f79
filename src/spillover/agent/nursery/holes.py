"""Output that is bounded while it grows: its middle is punched out of the file.

A task writes to a file that is opened for appending, and the file keeps its length, so the task notices nothing and pays nothing,
and what follows stays where it is. A reader finds the hole with SEEK_HOLE and says how much is missing: there is no other record.
"""

import contextlib
import ctypes
import os
from typing import Final

_PUNCH_HOLE: Final = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
LEAST_LIMIT: Final = 1 << 20
"""Bytes that are kept of a stream, at the least."""
BLOCK: Final = 1 << 16
"""Bytes: holes begin and end at multiples of it, which is one of the block size of any file system."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class BoundedFile:
    """A stream of one task, and how much of it is gone."""

    __slots__ = ("_end", "_file", "_head", "_limit", "size")

    def __init__(self, file: int, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._head = max(BLOCK, limit // 2 // BLOCK * BLOCK)
        self._end = self._head
        """Where the hole ends."""
        self.size = 0
        """Bytes when it was last looked at."""

    def trim(self) -> int:
        """Keep it within its limit, head and tail; the bytes that it grew since the last look."""
        size = os.fstat(self._file).st_size
        grown, self.size = size - self.size, size
        if size > self._limit:
            end = (size - self._limit + self._head) // BLOCK * BLOCK
            if end > self._end:
                self._cut(end, size)
        return grown

    def _cut(self, end: int, size: int) -> None:
        """Punch the hole up to here; where the file system has no holes, begin the tail anew."""
        if _libc.fallocate(self._file, _PUNCH_HOLE, self._end, end - self._end) == 0:
            self._end = end
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._head)
            os.write(self._file, left_out(size - self._head))
            self.size = os.fstat(self._file).st_size


def left_out(count: int) -> bytes:
    """The line that stands for what is gone."""
    return b"\n[... %d bytes left out ...]\n" % count
