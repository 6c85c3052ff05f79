"""Reads the journal and its checkpoint in pages, so that a reader holds no transaction and little memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from spillover.ports.journal import Damaged, Moved, Record, Stored
from spillover.stores.rows import BatchRow, decode_events

PAGE_BYTES: Final = 4 << 20
"""Bytes of a page. Large enough to be fast, small enough for many readers."""
PAGE_ROWS: Final = 1000
PAGE_RECORDS: Final = 1000
"""Records of a page. A server decodes them in a few milliseconds, and then runs other work."""
TURN: Final = 1000
"""Events to read before the event loop runs other work. A page may have a hundred thousand."""


async def read_tail(
    page: Callable[[int, int, int], Awaitable[Sequence[BatchRow]]], after: int, end: int, limit: int | None
) -> AsyncIterator[Stored]:
    """Yield events after a revision up to `end`, at most `limit`.

    `page(due, end, rows)` returns at most `rows` batches in order, up to the one that holds `end`. It starts with the
    batch that holds `due`, or else with the oldest one after it.
    """
    left = end - after if limit is None else limit
    due = after + 1
    begun = False
    while due <= end and left > 0:
        rows = await page(due, end, min(PAGE_ROWS, left))
        if not rows and not begun:
            return  # all requested events were compacted
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
            raise Moved(f"events from {due} on were deleted while they were read; load again")


async def read_records(
    page: Callable[[str, str, int], Awaitable[tuple[int, Sequence[Record]]]], checkpoint: int
) -> AsyncIterator[Sequence[Record]]:
    """Yield all records of a checkpoint.

    `page(kind, key, rows)` returns, in one consistent view, the current checkpoint and at most `rows` records after
    that kind and key, in order.
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
