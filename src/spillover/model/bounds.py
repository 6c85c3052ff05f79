"""How large the numbers and texts may be that come from outside: an agent's report, an object of Kubernetes, a policy's answer."""

import re
from typing import Final

from spillover.model.units import DAY, FOREVER, MONEY

MOST_RAN: Final = 3650 * DAY
"""Nanoseconds that a task may be said to have run: as long as the longest walltime that a job may ask for."""
MOST_AMOUNT: Final = 2**62
"""Of one resource of one machine, and of what is used of it."""
MOST_COST: Final = 10**9 * MONEY
"""Millionths of one attempt."""
MOST_TEXT: Final = 500
"""Characters of what an agent says about a task."""
MOST_EXIT_CODE: Final = 2**31 - 1
MOST_SIGNAL: Final = 127

_UNFIT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What cannot be stored, or would steer a terminal: control characters but tab and newline, and halves of surrogate pairs."""


def bounded(number: int, most: int = FOREVER, least: int = 0) -> int:
    """A number, or the nearest one that is not out of bounds."""
    return least if number < least else min(number, most)


def plain(text: str, most: int = MOST_TEXT) -> str:
    """A text that every store and terminal takes: cut to so many characters, with `\ufffd` for each that is not fit to be shown."""
    text = text[:most]
    return text if text.isprintable() else _UNFIT.sub("\ufffd", text)


def is_plain(text: str, most: int) -> bool:
    """Whether a text is one already."""
    return len(text) <= most and (text.isprintable() or _UNFIT.search(text) is None)
