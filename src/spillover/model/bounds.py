"""Bounds for numbers and texts from outside: reports of agents, Kubernetes objects, answers of policies."""

import re
from typing import Final

from spillover.model.units import DAY, FOREVER, MONEY

MOST_RAN: Final = 3650 * DAY
"""Longest runtime that a report may state, in nanoseconds: that of the longest walltime."""
MOST_AMOUNT: Final = 2**62
"""For one resource of one machine, and for its usage."""
MOST_COST: Final = 10**9 * MONEY
"""Millionths, for one attempt."""
MOST_TEXT: Final = 500
"""Characters of an agent's message about a task."""
MOST_EXIT_CODE: Final = 2**31 - 1
MOST_SIGNAL: Final = 127

_UNFIT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that cannot be stored, or that control a terminal; tab and newline are allowed."""


def bounded(number: int, most: int = FOREVER, least: int = 0) -> int:
    """Clamp a number to the bounds."""
    return least if number < least else min(number, most)


def plain(text: str, most: int = MOST_TEXT) -> str:
    r"""Make a text safe for every store and terminal: cut it to `most` characters, with `\ufffd` for unsafe ones."""
    text = text[:most]
    return text if text.isprintable() else _UNFIT.sub("\ufffd", text)


def is_plain(text: str, most: int) -> bool:
    """Return whether a text is already plain and short enough."""
    return len(text) <= most and (text.isprintable() or _UNFIT.search(text) is None)
