"""Parses and formats the indexes of an array, such as `1-10,20,30-40` or `0-90:10`."""

import re
from functools import lru_cache
from typing import Final

from spillover.forms.oneline import Piece, character
from spillover.forms.problems import shown
from spillover.model.job import Range

MOST_MEMBERS: Final = 1_000_000
MOST_INDEX: Final = 10**9
MOST_RANGES: Final = 10_000
"""Every array stores its ranges, so steps and gaps have a lower limit than members."""

SHORT: Final = 100
"""Most characters of a notation whose result is cached."""
_PART = re.compile(r"\s*([0-9]{1,12})(?:\s*-\s*([0-9]{1,12})(?::([0-9]{1,12}))?)?\s*", re.ASCII)


class ArrayError(ValueError):
    """Invalid indexes; the message says why."""


def parse_throttled(text: str) -> tuple[tuple[Range, ...], int]:
    """Parse the ranges of an array, and how many members may be placed at a time; 0 is all."""
    indexes, percent, most = text.partition("%")
    if not percent:
        return parse_array(text), 0
    number = most.strip()
    if not (number.isascii() and number.isdigit() and len(number) <= 12 and 0 < int(number) <= MOST_MEMBERS):
        raise ArrayError(
            f"{shown(most)} is not a number of members at a time; write 1 or more, as in {indexes.strip()}%4"
        )
    return parse_array(indexes), int(number)


def parse_array(text: str) -> tuple[Range, ...]:
    """Parse the ranges of an array: sorted, disjoint, and merged where they touch."""
    # Many jobs have the same notation. Cache few and only short ones, as a long one may have ten thousand ranges.
    return _parse_short(text) if len(text) <= SHORT else _parse(text)


@lru_cache(maxsize=64)
def _parse_short(text: str) -> tuple[Range, ...]:
    return _parse(text)


def _parse(text: str) -> tuple[Range, ...]:
    ranges: list[Range] = []
    for part in Piece(text).split(",", MOST_RANGES):
        try:
            ranges += _parse_part(part.text)
        except ArrayError as error:
            where = None if part.text == text else part.strip().at
            raise ArrayError(f"{error}{character(where)}") from None
        if len(ranges) > MOST_RANGES:
            raise ArrayError(f"has more than {MOST_RANGES:,} ranges; use fewer or larger ranges")
    ranges.sort(key=lambda one: one.first)
    joined = ranges[:1]
    for one in ranges[1:]:
        last = joined[-1]
        if one.first <= last.last:
            raise ArrayError(f"contains index {one.first} twice")
        if one.first == last.last + 1:
            joined[-1] = Range(last.first, one.last)
        else:
            joined.append(one)
    members = sum(len(one) for one in joined)
    if members > MOST_MEMBERS:
        raise ArrayError(f"has {members:,} members; the maximum is {MOST_MEMBERS:,}")
    return tuple(joined)


def format_array(ranges: tuple[Range, ...], throttle: int = 0) -> str:
    """Format ranges, and the most members at a time, so that `parse_throttled` returns the same."""
    indexes = ",".join(
        f"{one.first}-{one.last}" if one.last > one.first else str(one.first) for one in ranges
    )
    return f"{indexes}%{throttle}" if throttle else indexes


def _parse_part(part: str) -> list[Range]:
    """Parse an index, a range, or the single indexes of a range with a step."""
    match = _PART.fullmatch(part)
    if match is None:
        raise ArrayError(f"{shown(part)} is not a range of indexes; write 1-100 or 1-10,20")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    step = int(match[3]) if match[3] else 1
    if last < first:
        raise ArrayError(f"{shown(part)} is in the wrong order; write {last}-{first}")
    if last > MOST_INDEX:
        raise ArrayError(f"index {last} is too large; the maximum is {MOST_INDEX}")
    if step == 0:
        raise ArrayError(f"{shown(part)} has a step of 0; the minimum is 1")
    if step == 1:
        return [Range(first, last)]
    if (last - first) // step >= MOST_RANGES:
        raise ArrayError(f"has more than {MOST_RANGES:,} ranges; use fewer or larger ranges")
    return [Range(index, index) for index in range(first, last + 1, step)]
