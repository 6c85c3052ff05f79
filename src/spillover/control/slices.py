"""Long sequences in slices: what takes a second for a million jobs must not hold up everybody else for that long."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

SLICE: Final = 5_000
"""Jobs that are looked at before others get their turn: some milliseconds."""


async def slices(items: Sequence[T], size: int = SLICE, first: int = 0) -> AsyncIterator[Sequence[T]]:
    """All items from the first on in their order, some at a time; others get their turn after each."""
    for start in range(first, len(items), size):
        yield items[start : start + size]
        await asyncio.sleep(0)
