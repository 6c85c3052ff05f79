"""Arithmetic on the index ranges of an array, which stay sorted and apart."""

from collections.abc import Iterable, Iterator

from spillover.model.job import Range

Ranges = tuple[Range, ...]


def size(ranges: Ranges) -> int:
    """How many indexes there are."""
    return sum(len(part) for part in ranges)


def indexes(ranges: Ranges) -> Iterator[int]:
    """All indexes, lowest first."""
    for part in ranges:
        yield from range(part.first, part.last + 1)


def contains(ranges: Ranges, index: int) -> bool:
    """Whether an index is among them."""
    return any(part.first <= index <= part.last for part in ranges)


def without(ranges: Ranges, index: int) -> Ranges:
    """The same, less one index."""
    if ranges and ranges[0].first == index:  # what a queue takes first
        first = ranges[0]
        return (Range(index + 1, first.last), *ranges[1:]) if first.last > index else ranges[1:]
    return minus(ranges, (Range(index, index),))


def minus(ranges: Ranges, others: Ranges) -> Ranges:
    """The same, less the indexes of others."""
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
    """The highest `count` indexes."""
    kept: list[Range] = []
    for part in reversed(ranges):
        if count <= 0:
            break
        kept.append(part if len(part) <= count else Range(part.last - count + 1, part.last))
        count -= len(part)
    return tuple(reversed(kept))


def merged(parts: Iterable[Range]) -> Ranges:
    """Ranges in any order, sorted and joined where they touch."""
    joined: list[Range] = []
    for part in sorted(parts, key=lambda each: each.first):
        if joined and part.first <= joined[-1].last + 1:
            joined[-1] = Range(joined[-1].first, max(joined[-1].last, part.last))
        else:
            joined.append(part)
    return tuple(joined)


def nth(ranges: Ranges, count: int) -> int:
    """The index that `count` lower ones come before."""
    for part in ranges:
        if count < len(part):
            return part.first + count
        count -= len(part)
    raise IndexError(count)
