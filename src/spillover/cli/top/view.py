"""What a person looks at: which view, how far down, whether it stands still; and what keys do to that."""

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from spillover.wire.api import Overview

VIEWS: Final = ("all", "jobs", "agents")
_KEYS: Final[dict[bytes, str]] = {
    b"q": "quit",
    b"Q": "quit",
    b"\t": "next",
    b"\x1b[Z": "previous",
    b"\x1b[C": "next",
    b"\x1b[D": "previous",
    b"j": "down",
    b"\x1b[B": "down",
    b"k": "up",
    b"\x1b[A": "up",
    b" ": "page down",
    b"\x1b[6~": "page down",
    b"b": "page up",
    b"\x1b[5~": "page up",
    b"g": "top",
    b"\x1b[H": "top",
    b"\x1b[1~": "top",
    b"G": "bottom",
    b"\x1b[F": "bottom",
    b"\x1b[4~": "bottom",
    b"p": "pause",
    b"P": "pause",
    **{str(number).encode(): name for number, name in enumerate(VIEWS, 1)},
}
_PIECES: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
MOST: Final = 1000
"""Rows that are asked for of each list, and so how far one can scroll."""


_STEP: Final = 50


class Away(NamedTuple):
    """The server does not answer."""

    seconds: float
    why: str


class Look(NamedTuple):
    """What is known at one moment."""

    url: str
    seen: "Overview"
    rows: int
    """How many of each list were asked for."""
    away: Away | None = None


class TopView(NamedTuple):
    """Where a person is."""

    shows: str = VIEWS[0]
    offset: int = 0
    """Rows that are above the first one shown."""
    paused: bool = False

    def after(self, key: str, page: int) -> "TopView":
        """Where they are after a key; `page` is how many rows they see."""
        if key in VIEWS:
            return self._replace(shows=key, offset=0)
        at = VIEWS.index(self.shows)
        match key:
            case "next":
                return self._replace(shows=VIEWS[(at + 1) % len(VIEWS)], offset=0)
            case "previous":
                return self._replace(shows=VIEWS[at - 1], offset=0)
            case "pause":
                return self._replace(paused=not self.paused)
            case "top":
                return self._replace(offset=0)
            case "bottom":
                return self._replace(offset=MOST)
            case "down" | "up" | "page down" | "page up":
                step = (page if key.startswith("page") else 1) * (1 if key.endswith("down") else -1)
                return self._replace(offset=min(MOST, max(0, self.offset + step)))
            case _:
                return self


def rows_for(view: TopView, height: int) -> int:
    """Rows of each list to ask for; in steps, so that scrolling does not ask for each row."""
    return min(MOST, -(-(view.offset + height) // _STEP) * _STEP)


def keys_of(typed: bytes) -> list[str]:
    """What was typed, as far as it means something; arrows come as several bytes, in one of two ways."""
    pieces = (piece.replace(b"\x1bO", b"\x1b[") for piece in _PIECES.findall(typed))
    return [_KEYS[piece] for piece in pieces if piece in _KEYS]
