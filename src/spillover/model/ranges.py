"""Arithmetic on the index ranges of an array. Ranges are sorted and do not overlap."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from spillover.model.job import Range

Ranges = tuple[Range, ...]


def size(ranges: Ranges) -> int:
    """Return the number of indexes."""
    return sum(len(part) for part in ranges)


def indexes(ranges: Ranges) -> Iterator[int]:
    """Yield all indexes, lowest first."""
    for part in ranges:
        yield from range(part.first, part.last + 1)


def contains(ranges: Ranges, index: int) -> bool:
    """Return whether an index is among them."""
    at = _place(ranges, index)
    return at >= 0 and index <= ranges[at].last


def _place(ranges: Ranges, index: int) -> int:
    """Return the position of the last range that begins at an index or before it; -1 if none does."""
    return bisect_right(ranges, index, key=_first) - 1


def _first(part: Range) -> int:
    return part.first


def without(ranges: Ranges, index: int) -> Ranges:
    """Return the ranges without one index."""
    if ranges and ranges[0].first == index:  # the usual case: members are placed in order
        first = ranges[0]
        return (Range(index + 1, first.last), *ranges[1:]) if first.last > index else ranges[1:]
    at = _place(ranges, index)
    if at < 0 or index > (part := ranges[at]).last:
        return ranges
    before = (Range(part.first, index - 1),) if part.first < index else ()
    behind = (Range(index + 1, part.last),) if index < part.last else ()
    return (*ranges[:at], *before, *behind, *ranges[at + 1 :])


def union(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the indexes of both."""
    if len(others) != 1:
        return merged((*ranges, *others)) if ranges else others
    # The usual case: one member more. The others are not looked at, because there may be many.
    part = others[0]
    start = _place(ranges, part.first - 1)
    if start < 0 or ranges[start].last < part.first - 1:
        start += 1
    end = _place(ranges, part.last + 1) + 1
    if start >= end:
        return (*ranges[:start], part, *ranges[start:])
    joined = Range(min(part.first, ranges[start].first), max(part.last, ranges[end - 1].last))
    return (*ranges[:start], joined, *ranges[end:])


def outside(ranges: Ranges, others: Iterable[Ranges]) -> Ranges:
    """Return the indexes that are in none of the others."""
    for each in others:
        ranges = minus(ranges, each)
    return ranges


def common(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the indexes that are in both."""
    if len(others) == 1 and others[0].first == others[0].last:
        return others if contains(ranges, others[0].first) else ()
    return minus(ranges, minus(ranges, others))


def minus(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the ranges without the indexes of others."""
    if len(others) == 1 and others[0].first == others[0].last:
        return without(ranges, others[0].first)
    kept: list[Range] = []
    at = 0
    for part in ranges:
        while at < len(others) and others[at].last < part.first:
            at += 1
        first, next_at = part.first, at
        while next_at < len(others) and others[next_at].first <= part.last:
            if first < others[next_at].first:
                kept.append(Range(first, others[next_at].first - 1))
            first = others[next_at].last + 1
            next_at += 1
        if first <= part.last:
            kept.append(part if first == part.first else Range(first, part.last))
    return tuple(kept)


def last(ranges: Ranges, count: int) -> Ranges:
    """Return the highest `count` indexes."""
    kept: list[Range] = []
    for part in reversed(ranges):
        if count <= 0:
            break
        kept.append(part if len(part) <= count else Range(part.last - count + 1, part.last))
        count -= len(part)
    return tuple(reversed(kept))


def merged(parts: Iterable[Range]) -> Ranges:
    """Sort ranges and join those that touch."""
    joined: list[Range] = []
    for part in sorted(parts, key=lambda each: each.first):
        if joined and part.first <= joined[-1].last + 1:
            joined[-1] = Range(joined[-1].first, max(joined[-1].last, part.last))
        else:
            joined.append(part)
    return tuple(joined)


def nth(ranges: Ranges, count: int) -> int:
    """Return the index that has exactly `count` lower ones before it."""
    for part in ranges:
        if count < len(part):
            return part.first + count
        count -= len(part)
    raise IndexError(count)
