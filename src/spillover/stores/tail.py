"""Reading the journal page by page: a reader holds neither a transaction nor all of history in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from spillover.ports.journal import Moved, Stored
from spillover.stores.rows import BatchRow, decode_events

PAGE_BYTES: Final = 4 << 20
"""How much is read at once: enough to be fast, little enough for many readers."""
PAGE_ROWS: Final = 1000
TURN: Final = 1000
"""Events that are read before others get their turn: a page may have a hundred thousand."""


async def read_tail(
    page: Callable[[int, int, int], Awaitable[Sequence[BatchRow]]], after: int, end: int, limit: int | None
) -> AsyncIterator[Stored]:
    """Events after a revision up to `end`, at most `limit`.

    `page(due, end, rows)` returns batches in order, from the one that holds `due` or else the oldest one after it, up to the one
    that holds `end`, and at most so many.
    """
    left = end - after if limit is None else limit
    due = after + 1
    begun = False
    while due <= end and left > 0:
        rows = await page(due, end, min(PAGE_ROWS, left))
        if not rows and not begun:
            return  # all that was asked for is forgotten
        if not begun:
            due = max(due, rows[0][0])
            begun = True
        for first, last, at, _, body in rows:
            if first > due:
                break
            events = decode_events(body)
            upto = min(last, end, due + left - 1)
            for revision in range(due, upto + 1):
                yield Stored(revision=revision, at=at, event=events[revision - first])
                if revision % TURN == 0:
                    await asyncio.sleep(0)
            left -= upto + 1 - due
            due = upto + 1
        if not rows or rows[0][0] > due:
            raise Moved(f"events from {due} on were forgotten while they were read; load again")
