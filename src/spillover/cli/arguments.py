"""Parses argument types that several commands share; an error names the accepted form."""

from argparse import ArgumentTypeError
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches

from spillover.cli.printing.shown import STATES
from spillover.model.units import SECOND, UnitError, parse_duration, parse_time

_OF_SLURM = {
    **dict.fromkeys(("PENDING", "PD"), "queued,held"),
    "R": "running",
    **dict.fromkeys(("COMPLETED", "CD"), "succeeded"),
    "CA": "cancelled",
    "F": "failed",
    **dict.fromkeys(("TIMEOUT", "TO"), "timed_out"),
}
"""What others write for our states."""


def seconds(text: str) -> float:
    """Parse a duration such as `90s`, `10m`, `1h30m` or `2d` into seconds."""
    try:
        return parse_duration(text) / SECOND
    except UnitError as error:
        raise ArgumentTypeError(str(error)) from None


def since(text: str) -> datetime:
    """Parse an age (`2d`), a day in UTC (`2027-01-31`) or a time with its zone."""
    with suppress(UnitError):
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text) / SECOND)
    with suppress(ValueError):
        day = date.fromisoformat(text) if len(text) == len("2027-01-31") else None
        if day is not None:
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
    try:
        parse_time(text)
    except UnitError:
        hint = "write an age such as 2d, a day such as 2027-01-31, or 2027-01-31T18:00:00Z"
        raise ArgumentTypeError(f"{text!r} is not a time; {hint}") from None
    return datetime.fromisoformat(text)


def count(text: str) -> int:
    """Parse a whole number of at least 1."""
    return _whole(text, 1)


def index(text: str) -> int:
    """Parse a whole number of at least 0."""
    return _whole(text, 0)


def state(text: str) -> str:
    """Parse the state of a job, in upper or lower case."""
    name = text.upper().replace("-", "_")
    if name in STATES:
        return name
    near = get_close_matches(name, STATES, n=1)
    hint = (
        f"did you mean {_OF_SLURM.get(name) or near[0]}?"
        if near or name in _OF_SLURM
        else f"expected one of {', '.join(STATES)}"
    )
    raise ArgumentTypeError(f"{text!r} is not a state; {hint}")


def states(text: str) -> str:
    """Parse one state or several, separated by commas."""
    return ",".join(dict.fromkeys(state(each.strip()) for each in text.split(",")))


def _whole(text: str, least: int) -> int:
    """Parse a whole number of at least `least`."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)
