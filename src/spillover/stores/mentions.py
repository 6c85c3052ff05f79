"""Encodes the index of events by job as rows, for SQLite and PostgreSQL.

A row for each event would cost as much as the event. So the index is written some time after the events, a span of
events at a time. The entries of a span are sorted by the mark of the job, and cut into rows (buckets) by the first bits
of the mark. To find a job, a reader loads its bucket of all spans. These rows are adjacent.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from spillover.ports.journal import Mentions, Moved

BUCKETS: Final = 64
"""Number of rows into which a span is cut."""
_SHIFT: Final = 64 - BUCKETS.bit_length() + 1
_REVISION: Final = (1 << 32) - 1

MentionRow: TypeAlias = tuple[int, int, int, bytes]
"""Bucket, first revision, last revision, entries."""


def bucket_of(mark: int) -> int:
    """Return the bucket that holds the entries of a job."""
    return mark << 32 >> _SHIFT


def mention_rows(mentions: Mentions) -> Iterator[MentionRow]:
    """Yield a span as rows, without empty buckets."""
    entries = mentions.entries
    start = 0
    for bucket in range(BUCKETS):
        end = bisect_left(entries, (bucket + 1) << _SHIFT, start)
        if end > start:
            yield bucket, mentions.after + 1, mentions.upto, _packed(array("Q", entries[start:end]))
        start = end


def revisions(rows: Iterable[tuple[int, bytes]], mark: int, after: int) -> list[int]:
    """Return the revisions past `after` of a mark, in order, from rows (first revision, entries) of its bucket."""
    found: list[int] = []
    for first, body in rows:
        entries = _unpacked(body)
        start = bisect_left(entries, mark << 32)
        end = bisect_left(entries, (mark + 1) << 32, start)
        found += [first - 1 + (entry & _REVISION) for entry in entries[start:end]]
    return sorted({revision for revision in found if revision > after})


def check_indexed(indexed: int, mentions: Mentions, last: int) -> None:
    """Raise Moved unless a span continues the index, and the journal has its events."""
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
