"""Types of arguments that several commands take; a wrong one is refused with what to write instead."""

from argparse import ArgumentTypeError
from difflib import get_close_matches

from spillover.cli.shown import STATES
from spillover.model.units import SECOND, UnitError, parse_duration


def seconds(text: str) -> float:
    """`90s`, `10m`, `1h30m` or `2d`, as seconds."""
    try:
        return parse_duration(text) / SECOND
    except UnitError as error:
        raise ArgumentTypeError(str(error)) from None


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
