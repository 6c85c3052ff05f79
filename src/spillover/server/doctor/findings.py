"""Findings of checks, with what to do about them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

MOST: Final = 3
"""Most things of one kind to name; others are counted."""


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """Everything works, but an operator should act soon."""
    PROBLEM = "problem"
    """Something does not work, or is lost."""


class Finding(Struct, frozen=True):
    """One line of the report."""

    level: Level
    check: str
    """What was checked, in one or two words."""
    found: str
    todo: str = ""
    """What to do about it; empty if nothing."""


def ok(check: str, found: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(Level.OK, check, found)


def warning(check: str, found: str, todo: str) -> Finding:
    """Return a finding that an operator should act on soon."""
    return Finding(Level.WARNING, check, found, todo)


def problem(check: str, found: str, todo: str) -> Finding:
    """Return a finding of something that does not work or is lost."""
    return Finding(Level.PROBLEM, check, found, todo)


def some(names: Sequence[str]) -> str:
    """Return the first few of many names as text."""
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
