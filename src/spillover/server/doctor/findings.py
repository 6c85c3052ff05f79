"""What a check found, in words that say what to do about it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

MOST: Final = 3
"""Things of one kind that are named; the rest is counted."""


class Level(StrEnum):
    """Whether somebody has to do something."""

    OK = "ok"
    WARNING = "warning"
    """All works, but somebody should see to it before it does not."""
    PROBLEM = "problem"
    """Something does not work, or is lost."""


class Finding(Struct, frozen=True):
    """One line of the report."""

    level: Level
    check: str
    """What was looked at, in a word or two."""
    found: str
    todo: str = ""
    """What to do about it; empty if all is well."""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, check, found)


def warning(check: str, found: str, todo: str) -> Finding:
    """Somebody should see to it."""
    return Finding(Level.WARNING, check, found, todo)


def problem(check: str, found: str, todo: str) -> Finding:
    """Something does not work, or is lost."""
    return Finding(Level.PROBLEM, check, found, todo)


def some(names: Sequence[str]) -> str:
    """The first few of many names."""
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")


def count(number: int, one: str, many: str = "") -> str:
    """So many of something."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
