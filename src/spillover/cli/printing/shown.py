"""Formats values for people: durations, times, money, resources."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spillover.model.units import MONEY, SECOND, format_duration, format_money, money_digits

if TYPE_CHECKING:
    from spillover.wire.api import ExpectedStart

NOTHING: Final = "-"
"""Shown where there is no value."""

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
"""Style of each state on a terminal."""

_SOURCES: Final = {
    "estimate": "its own estimate",
    "walltime": "its walltime",
    "history": "jobs like it",
    "default": "the default",
}
"""Describes the source of an expected runtime."""

ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"})
STATES: Final = tuple(STYLES)


def duration(seconds: float | None) -> str:
    """Format seconds in their two largest units."""
    return NOTHING if seconds is None else format_duration(max(0, round(seconds * 10) * (SECOND // 10)))


def money(amount: float | None, currency: str = "", digits: int = 0) -> str:
    """Format an amount of money; omit `currency` where it is clear, and `digits` where it stands alone."""
    return NOTHING if amount is None else format_money(round(amount * MONEY), currency, digits)


def digits_of(*amounts: float) -> int:
    """Return how many digits amounts get that stand together, such as those of a table."""
    return money_digits(*[round(amount * MONEY) for amount in amounts])


def moment(time: str | None) -> datetime | None:
    """Parse an RFC 3339 time."""
    return None if time is None else datetime.fromisoformat(time)


def between(first: str | None, last: str | None) -> float | None:
    """Return the seconds between two times; up to now if the second is None."""
    since = moment(first)
    return None if since is None else ((moment(last) or datetime.now(UTC)) - since).total_seconds()


def local(time: str | None) -> str:
    """Format a time in the local time zone, to the second."""
    when = moment(time)
    return NOTHING if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def expected(seconds: float | None, source: str | None, because: str | None = None) -> str:
    """Format an expected runtime with its source and the earlier runs that say so; empty if unknown."""
    if seconds is None:
        return ""
    if because is not None and source == "history":
        return f"{duration(seconds)}: {because}"
    told = "; ".join(filter(None, (_SOURCES.get(source or ""), because)))
    return f"{duration(seconds)} ({told})" if told else duration(seconds)


def start_range(start: "ExpectedStart | None") -> str:
    """Format an expected start: when, how far away, and the later time by which it is nearly sure; empty if unknown."""
    if start is None or start.p50 is None:
        return ""
    away = max(0.0, -(between(start.p50, None) or 0.0))
    late = "" if start.p90 is None or start.p90 == start.p50 else f", 90 %: by {local(start.p90)}"
    return f"{local(start.p50)} (in {duration(away)}{late})"


def soon(start: "ExpectedStart | None") -> str:
    """Format how far away an expected start is, from 50 to 90 % of cases."""
    if start is None or start.p50 is None:
        return NOTHING
    first, last = (max(0.0, -(between(each, None) or 0.0)) for each in (start.p50, start.p90 or start.p50))
    return f"in {duration(first)}" if last - first < 1 else f"in {duration(first)}..{duration(last)}"


def resources(amounts: Mapping[str, float]) -> str:
    """Format CPUs, memory and GPUs."""
    from spillover.model.resources import Resources  # noqa: PLC0415 - heavy, and neither help nor completion shows any

    return str(
        Resources(
            round(amounts.get("cpu", 0) * 1000), round(amounts.get("memory", 0)), round(amounts.get("gpu", 0))
        )
    )


def number(value: float) -> str:
    """Format a number without trailing zeros."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
