"""Saves the output of attempts on external clusters before it is deleted there."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from spillover.core.events import Lease
from spillover.model.files import KEPT_STREAMS, File
from spillover.ports.blobs import Blobs, digest_of, one_piece
from spillover.ports.driver import Driver

GAP: Final = b"\n... %d bytes were left out here ...\n"


class OutputArchive:
    """Saves output as agents do: one blob for each stream, and one that lists them."""

    def __init__(self, blobs: Blobs, limit: int) -> None:
        self._blobs = blobs
        self._limit = limit
        """Most bytes of one stream; a longer one keeps its start and end."""

    async def keep(self, driver: Driver, lease: Lease) -> str:
        """Save the output of an attempt; return the digest of its list. Raises errors of the driver and the store."""
        written = await _bounded(driver.output(lease, 0, 0, follow=False), self._limit)
        stream = await self._put(written)
        # A pod has one stream for both outputs; it counts as the first, and the second is empty.
        files = [File(KEPT_STREAMS[0], stream, len(written)), File(KEPT_STREAMS[1], await self._put(b""), 0)]
        return await self._put(msgspec.json.encode(files))

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
