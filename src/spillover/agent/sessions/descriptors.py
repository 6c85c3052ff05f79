"""Reads and writes pipes and terminals from the event loop, one piece at a time, so that whoever is slow is waited for."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

PIECE: Final = 32 << 10
"""Bytes to read at once."""


class Descriptor:
    """A file descriptor that may block."""

    def __init__(self, file: int) -> None:
        os.set_blocking(file, False)
        self.file = file
        self._loop = asyncio.get_running_loop()
        self._finishing = asyncio.Event()

    async def read(self) -> bytes:
        """Return the next piece; empty at the end, or after `finish` when there is nothing now."""
        while True:
            try:
                return os.read(self.file, PIECE)
            except BlockingIOError:
                if self._finishing.is_set():
                    return b""
                await self._until(self._loop.add_reader, self._loop.remove_reader)
            except OSError:  # a terminal that no process has open any more
                return b""

    async def write(self, data: bytes) -> bool:
        """Write all of it; return False if nobody reads any more."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self.file, left) :]
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer)
            except OSError:
                return False
        return True

    def finish(self) -> None:
        """Let readers end when there is nothing to read, as the program has ended and others may keep it open."""
        self._finishing.set()

    def close(self) -> None:
        """Close it."""
        if self.file >= 0:
            self._loop.remove_reader(self.file)
            self._loop.remove_writer(self.file)
            os.close(self.file)
            self.file = -1

    async def _until(self, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        """Wait until it is ready, or readers have to finish."""
        ready = asyncio.Event()
        add(self.file, ready.set)
        waits = [asyncio.create_task(each.wait()) for each in (ready, self._finishing)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self.file >= 0:
                remove(self.file)
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def exited(pid: int) -> None:
    """Return when a child has ended; it stays a zombie."""
    file = os.pidfd_open(pid)
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)
        with contextlib.suppress(OSError):
            os.close(file)
