"""Reads SQLite's write-ahead log by its file format, to detect damage in the middle of it.

SQLite reads a log up to the first frame with a wrong checksum, as after a power failure, and reports nothing. Later
frames are treated as if they were never committed. Here every commit is synced before the next one begins. So a commit
after a damaged frame was acknowledged once, and is lost.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">8I")
"""Magic, version, page size, sequence, two salts, two checksums."""
_FRAME: Final = struct.Struct(">6I")
"""Page, pages of the file after a commit or 0, two salts, two checksums."""
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""Magic numbers, with the byte order of the checksums."""
_MASK: Final = 0xFFFFFFFF


def lost_commits(log: Path, going_on: Callable[[], None] = lambda: None) -> int:
    """Count the commits after a damaged frame in a log that has no writer; usually 0."""
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return 0
        magic, _, page, _, *salts, first, second = _HEADER.unpack(head)
        order = _MAGIC.get(magic)
        if order is None or not 512 <= page <= 65536:
            return 0
        if _checksum(order, head[:24], (0, 0)) != (first, second):
            return 0  # the header is invalid, so SQLite starts a new log
        sums, damaged, lost = (first, second), False, 0
        while len(frame := file.read(_FRAME.size + page)) == _FRAME.size + page:
            going_on()
            _, commits, *its_salts, one, two = _FRAME.unpack_from(frame)
            if its_salts != salts:
                break  # left from before the log was restarted
            if not damaged:
                sums = _checksum(order, frame[_FRAME.size :], _checksum(order, frame[:8], sums))
                damaged = sums != (one, two)
            elif commits:
                lost += 1
        return lost


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    numbers = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for left, right in zip(numbers, numbers, strict=True):
        one = (one + left + two) & _MASK
        two = (two + right + one) & _MASK
    return one, two
