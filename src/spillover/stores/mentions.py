"""The index of events by job, as rows that SQLite and PostgreSQL share.

A row for each event would cost as much as the event. So the index is written a span of events at a time, some while after them: its
entries, sorted by the mark of the job, are cut into rows by the first bits of the mark. Whoever looks for a job reads its rows of
all spans, which lie side by side.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from spillover.ports.journal import Mentions, Moved

BUCKETS: Final = 64
"""Rows that a span is cut into."""
_SHIFT: Final = 64 - BUCKETS.bit_length() + 1
_REVISION: Final = (1 << 32) - 1

MentionRow: TypeAlias = tuple[int, int, int, bytes]
"""Bucket, first revision, last revision, entries."""


def bucket_of(mark: int) -> int:
    """Where the entries of a job are."""
    return mark << 32 >> _SHIFT


def mention_rows(mentions: Mentions) -> Iterator[MentionRow]:
    """A span as rows; none for a bucket without entries."""
    entries = mentions.entries
    start = 0
    for bucket in range(BUCKETS):
        end = bisect_left(entries, (bucket + 1) << _SHIFT, start)
        if end > start:
            yield bucket, mentions.after + 1, mentions.upto, _packed(array("Q", entries[start:end]))
        start = end


def revisions(rows: Iterable[tuple[int, bytes]], mark: int, after: int) -> list[int]:
    """Revisions past `after` that rows (first revision, entries) of its bucket have for a mark, in order."""
    found: list[int] = []
    for first, body in rows:
        entries = _unpacked(body)
        start = bisect_left(entries, mark << 32)
        end = bisect_left(entries, (mark + 1) << 32, start)
        found += [first - 1 + (entry & _REVISION) for entry in entries[start:end]]
    return sorted({revision for revision in found if revision > after})


def check_indexed(indexed: int, mentions: Mentions, last: int) -> None:
    """Raise Moved unless a span follows what is indexed, and is of events that are there."""
    if mentions.after != indexed or mentions.upto > last:
        raise Moved(
            f"events are indexed up to {indexed}, of {last}: not {mentions.after + 1} to {mentions.upto}"
        )


def _packed(entries: "array[int]") -> bytes:
    if sys.byteorder == "big":
        entries.byteswap()
    return entries.tobytes()


def _unpacked(body: bytes) -> "array[int]":
    entries = array("Q", body)
    if sys.byteorder == "big":
        entries.byteswap()
    return entries
