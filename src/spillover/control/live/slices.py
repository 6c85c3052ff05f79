"""Splits long loops into slices, so that work on a million jobs does not block the event loop."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

SLICE: Final = 5_000
"""Jobs in a slice; takes a few milliseconds."""


async def slices(items: Sequence[T], size: int = SLICE, first: int = 0) -> AsyncIterator[Sequence[T]]:
    """Yield items in order from index `first` on, a slice at a time; other work runs after each."""
    for start in range(first, len(items), size):
        yield items[start : start + size]
        await asyncio.sleep(0)
