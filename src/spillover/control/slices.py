"""Long sequences in slices: what takes a second for a million jobs must not hold up everybody else for that long."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

SLICE: Final = 5_000
"""Jobs that are looked at before others get their turn: some milliseconds."""


async def slices(items: Sequence[T], size: int = SLICE) -> AsyncIterator[Sequence[T]]:
    """All items in their order, some at a time; others get their turn after each."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
        await asyncio.sleep(0)
