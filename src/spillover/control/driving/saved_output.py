"""Saves the output of attempts on external clusters before it is deleted there."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from spillover.core.events import Lease
from spillover.model.files import File, kept_stream
from spillover.ports.blobs import Blobs, digest_of, one_piece
from spillover.ports.cluster import OutputGone
from spillover.ports.driver import Driver

GAP: Final = b"\n... %d bytes were left out here ...\n"


MOST_TASKS: Final = 1000
"""Tasks of a gang whose output is saved."""
LEAST: Final = 64 * 2**10
"""Bytes that are saved of each task in any case."""
AT_ONCE: Final = 8
"""Tasks whose output is read at the same time."""
OTHERS_WITHIN: Final = 60.0
"""Seconds to save the output of all tasks but the first; the end of the gang waits for it."""


class OutputArchive:
    """Saves output as agents do: one blob for each stream, and one that lists them."""

    def __init__(self, blobs: Blobs, limit: int) -> None:
        self._blobs = blobs
        self._limit = limit
        """Most bytes of one stream; a longer one keeps its start and end. All tasks of a gang but the first share as much."""

    async def keep(self, driver: Driver, lease: Lease, tasks: int = 1) -> str:
        """Save the output of an attempt; return the digest of its list. Raises errors of the driver and the store.

        If only that of some tasks can be had, it saves that.
        """
        gone: OutputGone | None = None
        files: list[File] = []
        try:
            files += await self._task(driver, lease, 0, self._limit)
        except OutputGone as error:
            gone = error
        if tasks > 1:
            files += await self._others(driver, lease, min(tasks, MOST_TASKS))
        if not files and gone is not None:
            raise gone
        return await self._put(msgspec.json.encode(files))

    async def _others(self, driver: Driver, lease: Lease, tasks: int) -> list[File]:
        """Save the output of all tasks but the first, as far as it can be had in time."""
        limit = max(LEAST, self._limit // (tasks - 1))
        found: dict[int, list[File]] = {}
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(task: int) -> None:
            async with turns:
                with contextlib.suppress(OutputGone):
                    found[task] = await self._task(driver, lease, task, limit)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OTHERS_WITHIN), asyncio.TaskGroup() as group:
                for task in range(1, tasks):
                    group.create_task(one(task))
        return [file for task in sorted(found) for file in found[task]]

    async def _task(self, driver: Driver, lease: Lease, task: int, limit: int) -> list[File]:
        """Save the output of one task."""
        written = await _bounded(driver.output(lease, task, 0, follow=False), limit)
        # A pod has one stream for both outputs; it counts as the first, and the second is empty.
        return [
            File(kept_stream(task, stderr=False), await self._put(written), len(written)),
            File(kept_stream(task, stderr=True), await self._put(b""), 0),
        ]

    async def _put(self, data: bytes) -> str:
        digest = digest_of(data)
        await self._blobs.put(digest, one_piece(data))
        return digest


async def _bounded(pieces: AsyncGenerator[bytes, None], limit: int) -> bytes:
    """Return a whole stream, or its start and end if it is longer than the limit."""
    head, tail, left_out = bytearray(), bytearray(), 0
    async with aclosing(pieces):
        async for piece in pieces:
            fits = max(0, limit // 2 - len(head))
            head += piece[:fits]
            tail += piece[fits:]
            if (excess := len(tail) - limit // 2) > 0:
                left_out += excess
                del tail[:excess]
    return bytes(head) + (GAP % left_out if left_out else b"") + bytes(tail)
