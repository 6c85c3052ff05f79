"""Arithmetic on the index ranges of an array. Ranges are sorted and do not overlap."""

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
    return any(part.first <= index <= part.last for part in ranges)


def without(ranges: Ranges, index: int) -> Ranges:
    """Return the ranges without one index."""
    if ranges and ranges[0].first == index:  # the usual case: members are placed in order
        first = ranges[0]
        return (Range(index + 1, first.last), *ranges[1:]) if first.last > index else ranges[1:]
    return minus(ranges, (Range(index, index),))


def minus(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the ranges without the indexes of others."""
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
