"""Converts between the quantities that people write and the integers of the code.

Time is nanoseconds UTC, CPU is thousandths, memory is bytes, money is millionths of the currency.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MONEY: Final = 1_000_000
"""Millionths in one unit of the currency."""

FOREVER: Final = 2**63 - 1
"""A time that never comes: the largest integer that every store can hold."""

_BINARY = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?(?:[eE]\+?\d{1,2})?)([KMGTPE]i|[kKMGTPE]|)B?", re.ASCII)
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d|w)", re.ASCII)
_DURATION_UNIT = {
    "ns": 1,
    "us": 1000,
    "ms": 10**6,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": DAY,
    "w": 7 * DAY,
}
_MONEY = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_MOST_DIGITS: Final = 40
"""Longest quantity that is parsed; no useful number is longer."""


class UnitError(ValueError):
    """The text is not a quantity of this kind. The message says what to write."""


@lru_cache(maxsize=4096)
def parse_cpu(text: str) -> int:
    """Parse `2`, `1.5` or `500m` as thousandths of a CPU."""
    match = _CPU.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    if match is None:
        raise UnitError(f"{_shown(text)} is not a number of CPUs; write 2, 1.5 or 500m")
    value = Decimal(match[1]) * (1 if match[2] else 1000)
    if value != int(value):
        raise UnitError(f"{_shown(text)} is finer than a thousandth of a CPU")
    return int(value)


@lru_cache(maxsize=4096)
def parse_memory(text: str) -> int:
    """Parse `2Gi`, `2G` or `1048576` as bytes; round up to a whole byte."""
    match = _MEMORY.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    if match is None:
        raise UnitError(
            f"{_shown(text)} is not an amount of memory; write 512Mi, 2Gi, 2G or a number of bytes"
        )
    unit = _BINARY[match[2]] if match[2] in _BINARY else _DECIMAL[match[2].removesuffix("i")]
    return _whole(Decimal(match[1]) * unit)


@lru_cache(maxsize=4096)
def parse_duration(text: str) -> int:
    """Parse `90s`, `10m`, `1h30m` or `2d` as nanoseconds."""
    total, at = Decimal(0), 0
    while at < len(text) <= _MOST_DIGITS and (part := _DURATION_PART.match(text, at)):
        total += Decimal(part[1]) * _DURATION_UNIT[part[2]]
        at = part.end()
    if not text or at != len(text):
        raise UnitError(f"{_shown(text)} is not a duration; write 90s, 10m, 1h30m or 2d")
    return int(total)


def parse_money(text: str) -> int:
    """Parse `5.00` as millionths of the currency; round up to a whole millionth."""
    if len(text) > _MOST_DIGITS or _MONEY.fullmatch(text) is None:
        raise UnitError(f"{_shown(text)} is not an amount of money; write a number such as 5.00")
    return _whole(Decimal(text) * MONEY)


def parse_time(text: str) -> int:
    """Parse an RFC 3339 time with a zone as nanoseconds UTC, exact to a microsecond."""
    try:
        written = len(text) <= _MOST_DIGITS and _TIME.fullmatch(text) is not None
        when = datetime.fromisoformat(text.upper()) if written else None
    except ValueError:  # such as a 13th month
        when = None
    if when is None:
        raise UnitError(f"{_shown(text)} is not a time with a zone; write 2027-01-31T18:00:00Z")
    time = time_of(when)
    if not 0 <= time < FOREVER:
        raise UnitError(f"{_shown(text)} is not between the years 1970 and 2262")
    return time


def time_of(when: datetime) -> int:
    """Convert a time with a zone to nanoseconds UTC."""
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def format_time(nanoseconds: int) -> str:
    """Format nanoseconds UTC as RFC 3339 with microseconds."""
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def format_moment(nanoseconds: int) -> str:
    """Format nanoseconds UTC to the second, for a sentence."""
    return f"{format_time(nanoseconds)[:19].replace('T', ' ')} UTC"


def format_duration(nanoseconds: int) -> str:
    """Format a duration in its two largest units."""
    if nanoseconds >= FOREVER:
        return "forever"
    if 0 < nanoseconds < SECOND // 10:
        return f"{nanoseconds / 10**6:.1f}".removesuffix(".0") + "ms"
    if nanoseconds < 10 * SECOND:
        return f"{nanoseconds / SECOND:.1f}s" if nanoseconds % SECOND else f"{nanoseconds // SECOND}s"
    seconds = (nanoseconds + SECOND // 2) // SECOND
    parts: list[str] = []
    for letter, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{letter}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts)


def so_many(count: int, what: str = "job") -> str:
    """Format a number of things, such as `2 jobs`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def format_memory(size: int) -> str:
    """Format bytes in the largest binary unit, with at most one decimal."""
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if size >= _BINARY[unit]:
            return f"{size / _BINARY[unit]:.1f}".removesuffix(".0") + unit
    return str(size)


def format_cpu(milli: int) -> str:
    """Format thousandths of a CPU as CPUs."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def money_digits(*amounts: int) -> int:
    """Return how many digits show all of these millionths: two, or four if one of them is small."""
    return 2 if all(amount == 0 or abs(amount) >= MONEY for amount in amounts) else 4


def format_money(millionths: int, currency: str = "", digits: int = 0) -> str:
    """Format millionths as an amount with so many digits; 0 is two, or four if it is small."""
    amount = millionths / MONEY
    digits = digits or money_digits(millionths)
    return f"{amount:.{digits}f}" + (f" {currency}" if currency else "")


def write_duration(nanoseconds: int) -> str:
    """Write a duration that `parse_duration` reads back exactly."""
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, nanoseconds = divmod(nanoseconds, _DURATION_UNIT[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def write_memory(size: int) -> str:
    """Write bytes that `parse_memory` reads back exactly."""
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if size and size % _BINARY[unit] == 0:
            return f"{size // _BINARY[unit]}{unit}"
    return str(size)


def _whole(value: Decimal) -> int:
    """Round up to an integer."""
    return int(value.to_integral_value(ROUND_CEILING))


def _shown(text: str) -> str:
    """Quote what was written, shortened so that an error stays one line."""
    return repr(text if len(text) <= _MOST_DIGITS else text[: _MOST_DIGITS - 1] + "…")
