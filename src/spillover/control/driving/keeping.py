"""Output of attempts on external clusters, kept here before it is gone there."""

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
    """Keeps output as agents do: a blob with what was written, and one that lists it."""

    def __init__(self, blobs: Blobs, limit: int) -> None:
        self._blobs = blobs
        self._limit = limit
        """Bytes of one stream; of what is longer, both ends are kept."""

    async def keep(self, driver: Driver, lease: Lease) -> str:
        """Keep what an attempt wrote; returns the blob that lists it. Raises what the driver or the store does."""
        written = await _bounded(driver.output(lease, 0, 0, follow=False), self._limit)
        stream = await self._put(written)
        # Both streams of a pod are one, which is the first; nothing is in the other.
        files = [File(KEPT_STREAMS[0], stream, len(written)), File(KEPT_STREAMS[1], await self._put(b""), 0)]
        return await self._put(msgspec.json.encode(files))

    async def _put(self, data: bytes) -> str:
        digest = digest_of(data)
        await self._blobs.put(digest, one_piece(data))
        return digest


async def _bounded(pieces: AsyncGenerator[bytes, None], limit: int) -> bytes:
    """A stream, or as much of both of its ends as the limit lets be kept."""
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
