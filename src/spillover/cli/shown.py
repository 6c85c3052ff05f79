"""How values look to a person: durations, ages, money, resources."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from spillover.model.units import MONEY, SECOND, format_duration, format_money

NOTHING: Final = "-"
"""Stands where there is no value."""

STYLES: Final = {
    "HELD": "magenta",
    "QUEUED": "yellow",
    "PLACED": "cyan",
    "RUNNING": "bold cyan",
    "SUCCEEDED": "green",
    "FAILED": "bold red",
    "CANCELLED": "bright_black",
    "TIMED_OUT": "red",
}
"""Colour of each state on a terminal."""

_SOURCES: Final = {
    "estimate": "its own estimate",
    "walltime": "its walltime",
    "history": "jobs like it",
    "default": "the default",
}
"""Where an estimate comes from, in words."""

ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"})
STATES: Final = tuple(STYLES)


def duration(seconds: float | None) -> str:
    """Seconds in their two largest units."""
    return NOTHING if seconds is None else format_duration(max(0, round(seconds * 10) * (SECOND // 10)))


def money(amount: float | None, currency: str = "") -> str:
    """An amount of the currency; `currency` is left out where it is clear."""
    return NOTHING if amount is None else format_money(round(amount * MONEY), currency)


def moment(time: str | None) -> datetime | None:
    """An RFC 3339 time of a view."""
    return None if time is None else datetime.fromisoformat(time)


def between(first: str | None, last: str | None) -> float | None:
    """Seconds from one time to another, or to now when the second is still to come."""
    since = moment(first)
    return None if since is None else ((moment(last) or datetime.now(UTC)) - since).total_seconds()


def local(time: str | None) -> str:
    """A time on this machine's clock, to the second, with its zone."""
    when = moment(time)
    return NOTHING if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def expected(seconds: float | None, source: str | None) -> str:
    """How long a job is expected to run, and who says so; nothing when nobody does."""
    told = f" ({_SOURCES[source]})" if source in _SOURCES else ""
    return "" if seconds is None else duration(seconds) + told


def resources(amounts: Mapping[str, float]) -> str:
    """CPUs, memory and GPUs."""
    from spillover.model.resources import Resources  # noqa: PLC0415 - heavy, and neither help nor completion shows any

    return str(
        Resources(
            round(amounts.get("cpu", 0) * 1000), round(amounts.get("memory", 0)), round(amounts.get("gpu", 0))
        )
    )


def number(value: float) -> str:
    """A number without a fraction that says nothing."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
