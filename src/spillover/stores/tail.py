"""Reading the journal and its checkpoint page by page: a reader holds neither a transaction nor all of them in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from spillover.ports.journal import Damaged, Moved, Record, Stored
from spillover.stores.rows import BatchRow, decode_events

PAGE_BYTES: Final = 4 << 20
"""How much is read at once: enough to be fast, little enough for many readers."""
PAGE_ROWS: Final = 1000
PAGE_RECORDS: Final = 1000
"""A server decodes so many in a few milliseconds, and lets others have a turn then."""
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
            try:
                events = decode_events(body)
            except msgspec.DecodeError as error:
                raise Damaged(f"the batch of events {first} to {last}", str(error)) from error
            if len(events) != last + 1 - first:
                raise Damaged(f"the batch of events {first} to {last}", f"it has {len(events)}")
            upto = min(last, end, due + left - 1)
            for revision in range(due, upto + 1):
                yield Stored(revision=revision, at=at, event=events[revision - first])
                if revision % TURN == 0:
                    await asyncio.sleep(0)
            left -= upto + 1 - due
            due = upto + 1
        if not rows or rows[0][0] > due:
            raise Moved(f"events from {due} on were forgotten while they were read; load again")


async def read_records(
    page: Callable[[str, str, int], Awaitable[tuple[int, Sequence[Record]]]], checkpoint: int
) -> AsyncIterator[Sequence[Record]]:
    """All records of a checkpoint.

    `page(kind, key, rows)` returns in one view of the data which checkpoint they are of, and at most so many records behind that
    kind and key, in their order.
    """
    kind = key = ""
    while True:
        of, records = await page(kind, key, PAGE_RECORDS)
        if of != checkpoint:
            raise Moved(f"checkpoint {checkpoint} was replaced by {of} while it was read; load again")
        if records:
            yield records
            kind, key, _ = records[-1]
        if len(records) < PAGE_RECORDS:
            return
