"""What was seen of something: how often, how long, and how much it varied. Whole numbers only, the same on every machine.

Logarithms are to the base of 2, in UNIT-ths. They are within a hundredth of the true ones, which is far less than runtimes vary.
"""

from math import isqrt
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.model.job import Shape

UNIT: Final = 1024
"""What logarithms are counted in."""
WINDOW: Final = 64
"""How many of the last are remembered at the least; what is older counts half, again and again."""
_BEND: Final = 352
"""log2(1 + x) is near x + 0.344 x (1 - x), for x from 0 to 1; in UNIT-ths."""

About: TypeAlias = tuple[str, str, str, Shape | None]
"""What a sample is about: a word that says what is counted, a user, a name, a shape; empty or None for all of them."""


class Sample(Struct, array_like=True, gc=False):
    """Values that were seen, as sums."""

    key: str
    """Unique, for checkpoints."""
    about: About
    count: int = 0
    total: int = 0
    """Sum of the values."""
    logs: int = 0
    """Sum of their logarithms."""
    squares: int = 0
    """Sum of the squares of their logarithms."""
    used: int = 0
    """When it last learned, as `Facts.learned` counts."""

    @property
    def mean(self) -> int:
        """Of the values."""
        return self.total // self.count

    @property
    def log(self) -> int:
        """Mean of the logarithms: the value that half of all are below, if they vary by factors."""
        return self.logs // self.count

    @property
    def spread(self) -> int:
        """Standard deviation of the logarithms."""
        return isqrt(max(0, self.count * self.squares - self.logs * self.logs)) // self.count

    def halve(self) -> None:
        """Let all that was seen count half."""
        self.count //= 2
        self.total //= 2
        self.logs //= 2
        self.squares //= 2


def log2_of(value: int) -> int:
    """Logarithm of a whole number from 1."""
    whole = value.bit_length() - 1
    part = (value << 10 >> whole) - UNIT
    return (whole << 10) + part + (part * (UNIT - part) * _BEND >> 20)


def stretched(value: int, log: int) -> int:
    """A value times the power of 2 that a logarithm stands for."""
    whole, part = log >> 10, log & (UNIT - 1)
    scaled = value * (UNIT + part - (part * (UNIT - part) * _BEND >> 20))
    return scaled << whole >> 10 if whole >= 0 else scaled >> (10 - whole)
