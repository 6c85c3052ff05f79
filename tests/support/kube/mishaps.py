"""Draws faults on the way to an API server from a seed, request by request. No I/O; see `proxy`."""

import random
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct


class Mishap(StrEnum):
    """A fault of one request or watch."""

    CONFLICT = "conflict"
    """409, without effect."""
    TOO_MANY = "too_many"
    """429 with a time to retry after, without effect."""
    BROKEN = "broken"
    """500, without effect."""
    DENIED = "denied"
    """500, although the request took effect."""
    HUNG_UP = "hung_up"
    """The request took effect, but the connection broke before the answer."""
    SLOW = "slow"
    """The answer, or everything on a watch, is late."""
    CUT = "cut"
    """A watch breaks, in the middle of a line if possible."""
    TOO_OLD = "too_old"
    """A watch gets 410: it cannot resume at its version."""


class Asked(StrEnum):
    """The kind of a request."""

    READ = "read"
    WRITE = "write"
    WATCH = "watch"


POSSIBLE: Final[Mapping[Asked, tuple[Mishap, ...]]] = {
    Asked.READ: (Mishap.TOO_MANY, Mishap.BROKEN, Mishap.HUNG_UP, Mishap.SLOW),
    Asked.WRITE: (
        Mishap.CONFLICT,
        Mishap.TOO_MANY,
        Mishap.BROKEN,
        Mishap.DENIED,
        Mishap.HUNG_UP,
        Mishap.SLOW,
    ),
    Asked.WATCH: (Mishap.TOO_MANY, Mishap.BROKEN, Mishap.SLOW, Mishap.CUT, Mishap.TOO_OLD),
}
"""Possible faults of each kind."""
SOONEST: Final = 0.2
"""Shortest delay of a fault, in seconds."""


class Weather(Struct, frozen=True):
    """The share of requests of each kind that have a fault."""

    reads: float = 0.0
    writes: float = 0.0
    watches: float = 0.0
    longest: float = 3.0
    """Longest delay, or longest time until a watch breaks, in seconds."""

    def share(self, asked: Asked) -> float:
        """Return the share for one kind."""
        return {Asked.READ: self.reads, Asked.WRITE: self.writes, Asked.WATCH: self.watches}[asked]


class Draw(Struct, frozen=True):
    """The fault of a request."""

    mishap: Mishap
    after: float
    """Delay in seconds until it happens."""


class Mishaps:
    """Decides for each request which fault it has.

    The result depends only on the seed, the request and its repetition, not on the order of different requests.
    """

    def __init__(self, seed: int) -> None:
        self.weather = Weather()
        self.happened: Counter[Mishap] = Counter()
        self._seed = seed
        self._asked: Counter[str] = Counter()

    def draw(self, asked: Asked, question: str) -> Draw | None:
        """Draw the fault of a request; None if it has none."""
        self._asked[question] += 1
        dice = random.Random(f"{self._seed} {question} {self._asked[question]}")
        if dice.random() >= self.weather.share(asked):
            return None
        drawn = Draw(dice.choice(POSSIBLE[asked]), dice.uniform(SOONEST, self.weather.longest))
        self.happened[drawn.mishap] += 1
        return drawn
