"""`python -m bench.loop_pauses FILE WORDS...`: runs `spill WORDS` and measures the longest pause of its event loop.

The file holds one number, the longest pause in seconds since a reader wrote 0 there. It is shared memory, so that
reading costs the server nothing.
"""

import asyncio
import mmap
import struct
import sys
from pathlib import Path
from typing import Any, Final

from spillover.cli.main import main
from spillover.server import up

LOOK: Final = 0.02
"""Seconds between two looks."""
_FORM: Final = struct.Struct("d")


class Pauses:
    """The number that server and reader share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_FORM.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)

    @property
    def longest(self) -> float:
        """The longest pause in seconds."""
        return float(_FORM.unpack_from(self._shared)[0])

    @longest.setter
    def longest(self, seconds: float) -> None:
        _FORM.pack_into(self._shared, 0, seconds)

    def take(self) -> float:
        """Return the longest pause, and reset it."""
        longest, self.longest = self.longest, 0.0
        return longest

    async def watch(self) -> None:
        """Measure repeatedly how late a sleep ends."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LOOK
            await asyncio.sleep(LOOK)
            self.longest = max(self.longest, clock() - due)


def _watched(pauses: Pauses) -> None:
    """Watch the event loop of each server that this process runs."""
    serve = up._serve  # noqa: SLF001 - nothing public knows when a server's event loop runs

    async def watched(*arguments: Any, **more: Any) -> int:
        watching = asyncio.create_task(pauses.watch())
        try:
            return await serve(*arguments, **more)
        finally:
            watching.cancel()

    up._serve = watched  # noqa: SLF001 - likewise


if __name__ == "__main__":
    _watched(Pauses(Path(sys.argv[1])))
    sys.exit(main(sys.argv[2:]))
