"""Warns of what a submission asks for and will not get, at the line of the program that submits."""

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spillover.client.errors import NoEffect

_OURS: Final = str(Path(__file__).parent.parent / "")


def warn_of(lines: Iterable[str]) -> None:
    """Warn of each of these lines."""
    level = _level()
    for line in lines:
        warnings.warn(line, NoEffect, stacklevel=level)


def _level() -> int:
    """Return how many calls away the first code is that is not ours, for `stacklevel` of our caller."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - as the warnings module does
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
        level += 1
    return level
