"""Types of arguments that several commands take; a wrong one is refused with what to write instead."""

from argparse import ArgumentTypeError
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches

from spillover.cli.shown import STATES
from spillover.model.units import SECOND, UnitError, parse_duration, parse_time


def seconds(text: str) -> float:
    """`90s`, `10m`, `1h30m` or `2d`, as seconds."""
    try:
        return parse_duration(text) / SECOND
    except UnitError as error:
        raise ArgumentTypeError(str(error)) from None


def since(text: str) -> datetime:
    """How long ago (`2d`), a day (`2027-01-31`, which begins in UTC) or a time with its zone, as a time."""
    with suppress(UnitError):
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text) / SECOND)
    with suppress(ValueError):
        day = date.fromisoformat(text) if len(text) == len("2027-01-31") else None
        if day is not None:
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
    try:
        parse_time(text)
    except UnitError:
        hint = "write how long ago, as 2d, a day as 2027-01-31, or 2027-01-31T18:00:00Z"
        raise ArgumentTypeError(f"{text!r} is not a time; {hint}") from None
    return datetime.fromisoformat(text)


def count(text: str) -> int:
    """A whole number from 1."""
    return _whole(text, 1)


def index(text: str) -> int:
    """A whole number from 0."""
    return _whole(text, 0)


def state(text: str) -> str:
    """The state of a job, in either case."""
    name = text.upper().replace("-", "_")
    if name in STATES:
        return name
    near = get_close_matches(name, STATES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(STATES)}"
    raise ArgumentTypeError(f"{text!r} is not a state; {hint}")


def _whole(text: str, least: int) -> int:
    """A whole number that is not too small."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least):
        raise ArgumentTypeError(f"{text!r} is not a whole number from {least}")
    return int(text)
