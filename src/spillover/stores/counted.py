"""Wraps a store of blobs to count its content, transfers and refusals."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Container, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from spillover.ports.blobs import Blobs, NoSpace, TooLarge

REFUSALS: Final = {TooLarge: "too_large", NoSpace: "no_room"}
"""Errors of refused uploads, and the names under which they are counted."""


class CountedBlobs:
    """A store of blobs, with counters since it was opened."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.stock: tuple[int, int] | None = None
        """Number of blobs and their total bytes at the last change; None until counted."""
        self.taken = 0
        """Bytes received, including those that were not stored."""
        self.given = 0
        """Bytes read."""
        self.refused: Counter[str] = Counter()
        """Number of refused uploads, by the names above."""

    async def put(self, digest: str, pieces: AsyncIterator[bytes], project: str | None = None) -> bool:
        """See Blobs."""
        try:
            fresh = await self._blobs.put(digest, self._coming(pieces), project)
        except tuple(REFUSALS) as error:
            self.refused[REFUSALS[type(error)]] += 1
            raise
        if fresh:
            await self.used()
        return fresh

    async def get(self, digest: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """See Blobs."""
        async with aclosing(self._blobs.get(digest, offset)) as pieces:
            async for piece in pieces:
                self.given += len(piece)
                yield piece

    async def sizes(self, digests: Sequence[str], project: str | None = None) -> dict[str, int]:
        """See Blobs."""
        return await self._blobs.sizes(digests, project)

    async def give(self, digests: Iterable[str], project: str) -> None:
        """See Blobs."""
        await self._blobs.give(digests, project)

    async def keep(self, digests: Iterable[str], until: int) -> None:
        """See Blobs."""
        await self._blobs.keep(digests, until)

    async def forget(self, but: Container[str], now: int) -> int:
        """See Blobs."""
        dropped = await self._blobs.forget(but, now)
        await self.used()
        return dropped

    async def used(self) -> tuple[int, int]:
        """See Blobs."""
        self.stock = await self._blobs.used()
        return self.stock

    async def _coming(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces, and count their bytes."""
        async for piece in pieces:
            self.taken += len(piece)
            yield piece
