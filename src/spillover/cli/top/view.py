"""Holds what the user looks at (view, offset, paused or not), and what keys change of it."""

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
"""Rows to request of each list, which also limits scrolling."""


_STEP: Final = 50


class Away(NamedTuple):
    """The server does not answer."""

    seconds: float
    why: str


class Look(NamedTuple):
    """The latest answer of the server."""

    url: str
    seen: "Overview"
    rows: int
    """Rows requested of each list."""
    away: Away | None = None


class TopView(NamedTuple):
    """The position of the user."""

    shows: str = VIEWS[0]
    offset: int = 0
    """Rows above the first visible one."""
    paused: bool = False

    def after(self, key: str, page: int) -> "TopView":
        """Return the position after a key; `page` is the number of visible rows."""
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
    """Return how many rows of each list to request; in steps, so that not every scroll needs a request."""
    return min(MOST, -(-(view.offset + height) // _STEP) * _STEP)


def keys_of(typed: bytes) -> list[str]:
    """Translate typed bytes into keys and ignore the rest; arrow keys arrive in one of two encodings."""
    pieces = (piece.replace(b"\x1bO", b"\x1b[") for piece in _PIECES.findall(typed))
    return [_KEYS[piece] for piece in pieces if piece in _KEYS]
