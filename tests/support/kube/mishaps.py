"""What goes wrong on the way to an API server: drawn from a seed, question by question. No I/O: see `proxy`."""

import random
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct


class Mishap(StrEnum):
    """Something that happens to one question, or to one watch."""

    CONFLICT = "conflict"
    """409, and nothing was done."""
    TOO_MANY = "too_many"
    """429 with a time after which to ask again, and nothing was done."""
    BROKEN = "broken"
    """500, and nothing was done."""
    DENIED = "denied"
    """500, although what was asked for was done."""
    HUNG_UP = "hung_up"
    """What was asked for was done, and the connection broke before that was told."""
    SLOW = "slow"
    """The answer, or everything that comes over a watch, is late."""
    CUT = "cut"
    """A watch breaks off, in the middle of a line if it can."""
    TOO_OLD = "too_old"
    """A watch is told that it cannot go on from where it was: 410."""


class Asked(StrEnum):
    """What kind a question is of."""

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
"""What can happen to which."""
SOONEST: Final = 0.2
"""Seconds that a mishap lets pass at the least."""


class Weather(Struct, frozen=True):
    """How often something goes wrong, as a share of all questions of a kind."""

    reads: float = 0.0
    writes: float = 0.0
    watches: float = 0.0
    longest: float = 3.0
    """Seconds that something is late at the most, or that a watch lasts until it is broken off."""

    def share(self, asked: Asked) -> float:
        """Of one kind."""
        return {Asked.READ: self.reads, Asked.WRITE: self.writes, Asked.WATCH: self.watches}[asked]


class Draw(Struct, frozen=True):
    """What happens to a question."""

    mishap: Mishap
    after: float
    """Seconds: how late it is, or when it happens."""


class Mishaps:
    """Says of each question what happens to it.

    The same seed says the same of the same question asked for the same time, in whatever order different ones come.
    """

    def __init__(self, seed: int) -> None:
        self.weather = Weather()
        self.happened: Counter[Mishap] = Counter()
        self._seed = seed
        self._asked: Counter[str] = Counter()

    def draw(self, asked: Asked, question: str) -> Draw | None:
        """What happens to a question; None if it goes well."""
        self._asked[question] += 1
        dice = random.Random(f"{self._seed} {question} {self._asked[question]}")
        if dice.random() >= self.weather.share(asked):
            return None
        drawn = Draw(dice.choice(POSSIBLE[asked]), dice.uniform(SOONEST, self.weather.longest))
        self.happened[drawn.mishap] += 1
        return drawn
