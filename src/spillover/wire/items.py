"""Stores pickled functions and items in blobs. Workers read them, so this uses the standard library only."""

import mmap
import struct
from typing import Final

MAGIC: Final = b"spillover-function 1 "
"""Start of a pickled function; the Python version that pickled it and a newline follow."""
MARK: Final = "spillover.client.earlier", "earlier"
"""The name by which pickled arguments refer to what an earlier call returned, with its place in `values`."""
_COUNT = struct.Struct("<Q")


def pack_items(items: list[bytes]) -> bytes:
    """Pack items into one file, so that a reader can load each without the others."""
    offsets, at = [], _COUNT.size * (len(items) + 2)
    for item in items:
        offsets.append(at)
        at += len(item)
    offsets.append(at)
    return b"".join([_COUNT.pack(len(items)), struct.pack(f"<{len(offsets)}Q", *offsets), *items])


class Items:
    """A file of packed items."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:  # noqa: PTH123 - workers do without pathlib
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.count: int = _COUNT.unpack_from(self._map)[0]

    def __getitem__(self, at: int) -> bytes:
        if not 0 <= at < self.count:
            raise IndexError(f"there are {self.count} items, and none for index {at}")
        first, end = struct.unpack_from("<2Q", self._map, _COUNT.size * (at + 1))
        return self._map[first:end]
