"""Parses Kubernetes quantities into integers, limited to the range from 0 to the most that a machine can have."""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

from spillover.model.bounds import MOST_AMOUNT

MOST_DIGITS: Final = 64
"""Most characters of a quantity."""
_SUFFIX: Final = {
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("num kMGTPE", -3) if suffix != " "},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?", re.ASCII
)


@lru_cache(maxsize=8192)
def whole(text: str) -> int:
    """Parse `2`, `4Gi` or `1e3` as a whole number, rounded up as Kubernetes does."""
    return _up(_value(text))


@lru_cache(maxsize=8192)
def thousandths(text: str) -> int:
    """Parse `2`, `1.5` or `500m` as thousandths, rounded up as Kubernetes does."""
    return _up(_value(text) * 1000)


@lru_cache(maxsize=8192)
def billionths(text: str) -> int:
    """Parse `2`, `500m` or `1234567n` as billionths, rounded up."""
    return _up(_value(text) * 10**9)


def _value(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text) if len(text) <= MOST_DIGITS else None
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a quantity")
    number = Decimal(match[1])
    return number.scaleb(int(match[3])) if match[3] else number * _SUFFIX[match[2] or ""]


def _up(value: Decimal) -> int:
    if value >= MOST_AMOUNT:
        return MOST_AMOUNT
    return max(0, int(value.to_integral_value(ROUND_CEILING)))
