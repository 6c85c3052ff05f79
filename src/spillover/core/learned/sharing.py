"""Measures the usage of projects, on a clock that makes old usage decay."""

from math import isqrt
from typing import Final

from msgspec import Struct

from spillover.model.job import Shape

STEPS: Final = 64
"""Steps in one half-life."""
LONG: Final = 128
"""Half-lives after which the clock is set back."""
KEPT: Final = 64
"""Half-lives that then stay on the clock; older usage no longer matters."""
FAR: Final = 4096
"""Half-lives after which nothing is left of earlier usage, however large."""
_ONE: Final = 2**20
"""Speed of the clock in its first step."""


def _speeds() -> tuple[int, ...]:
    """Return the speed of the clock in each step of its first half-life, which rises from _ONE to twice that."""
    scale = 2**80
    root = 2 * scale
    for _ in range(6):  # the 64th root of 2
        root = isqrt(root * scale)
    speeds, speed = [], scale
    for _ in range(STEPS):
        speeds.append(speed * _ONE // scale)
        speed = speed * root // scale
    return tuple(speeds)


_SPEEDS: Final = _speeds()
_BEFORE: Final = tuple(sum(_SPEEDS[:step]) for step in range(STEPS + 1))
"""Reading of the clock at the start of each step of its first half-life, for steps of length 1."""


class Measure(Struct, frozen=True, array_like=True, gc=False):
    """How usage is measured, as the order policy defines it."""

    half_life: int
    """Nanoseconds."""
    gpu_weight: int
    """CPU that one GPU counts as, in thousandths."""

    def size(self, shape: Shape) -> int:
        """Return what a job holds, in thousandths of a CPU; memory does not count."""
        total = shape.total
        return total.cpu + total.gpu * self.gpu_weight


class Using(Struct, array_like=True, gc=False):
    """The usage of one project."""

    project: str
    rate: int = 0
    """What its placed jobs hold, in thousandths of a CPU."""
    spent: int = 0
    """Usage so far, minus what its placed jobs would have used if they had run since the clock showed 0."""

    @property
    def kept(self) -> "KeptUsing":
        """The same in the form of a checkpoint."""
        return KeptUsing(self.project, self.rate, f"{self.spent:x}")


class KeptUsing(Struct, frozen=True, array_like=True, gc=False):
    """The usage of a project in a checkpoint, where integers have at most 64 bits."""

    project: str
    rate: int
    spent: str
    """Hexadecimal."""

    @property
    def using(self) -> Using:
        """The usage in the form of the state."""
        return Using(self.project, self.rate, int(self.spent, 16))


class Sharing(Struct, array_like=True, gc=False):
    """The clock by which usage is measured."""

    measure: Measure
    since: int
    """When the clock showed 0, nanoseconds UTC."""
    last: int
    """The latest start or end of a job, nanoseconds UTC."""

    def grown(self, at: int) -> int:
        """Return the reading of the clock at a time."""
        length = self.measure.half_life // STEPS
        step, rest = divmod(max(0, at - self.since), length)
        half_lives, step = divmod(step, STEPS)
        whole = _BEFORE[STEPS] * ((1 << half_lives) - 1) + (_BEFORE[step] << half_lives)
        return whole * length + (_SPEEDS[step] << half_lives) * rest

    def old(self, at: int) -> int:
        """Return how many half-lives to set the clock back, so that its numbers stay small; usually 0."""
        half_lives = (at - self.since) // self._half_life
        return half_lives - KEPT if half_lives > LONG else 0

    def set_back(self, half_lives: int) -> "Sharing":
        """Return the same clock with its zero moved later by some half-lives."""
        return Sharing(self.measure, self.since + half_lives * self._half_life, self.last)

    def carried(self, using: Using, half_lives: int) -> int:
        """Return `spent` of a project on a clock that is set back: all usage shrinks by the same factor."""
        if half_lives > FAR:
            return using.rate * _BEFORE[STEPS] * (self.measure.half_life // STEPS)
        return (
            using.rate * self.grown(self.since + half_lives * self._half_life) + using.spent
        ) >> half_lives

    @property
    def _half_life(self) -> int:
        """In whole steps."""
        return self.measure.half_life // STEPS * STEPS
