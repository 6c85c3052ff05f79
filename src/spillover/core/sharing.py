"""How the use of projects is measured, and the clock that it is measured by."""

from math import isqrt
from typing import Final

from msgspec import Struct

from spillover.model.job import Shape

STEPS: Final = 64
"""Of one half life."""
LONG: Final = 128
"""Half lives after which the clock is set back."""
KEPT: Final = 64
"""Half lives that stay on it then: what is older counts nothing."""
FAR: Final = 4096
"""Half lives after which nothing is left of what was used before, however much it was."""
_ONE: Final = 2**20
"""How fast the clock runs in its first step."""


def _speeds() -> tuple[int, ...]:
    """How fast the clock runs in each step of its first half life: from _ONE to twice that, by the same factor each time."""
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
"""What the clock shows at the beginning of each step of its first half life, for steps of length 1."""


class Measure(Struct, frozen=True, array_like=True, gc=False):
    """How use is measured, as the policy in the book says."""

    half_life: int
    """Nanoseconds."""
    gpu_weight: int
    """Thousandths of a CPU that one GPU counts as."""

    def size(self, shape: Shape) -> int:
        """What a job holds, in thousandths of a CPU; memory does not count."""
        total = shape.total
        return total.cpu + total.gpu * self.gpu_weight


class Using(Struct, array_like=True, gc=False):
    """One project."""

    project: str
    rate: int = 0
    """What its placed jobs hold, in thousandths of a CPU."""
    spent: int = 0
    """What it has used, less what its placed jobs had used if they had been there since the clock showed 0."""

    @property
    def kept(self) -> "KeptUsing":
        """As a checkpoint keeps it."""
        return KeptUsing(self.project, self.rate, f"{self.spent:x}")


class KeptUsing(Struct, frozen=True, array_like=True, gc=False):
    """A project in a checkpoint, whose numbers have 64 bits at the most."""

    project: str
    rate: int
    spent: str
    """Hexadecimal."""

    @property
    def using(self) -> Using:
        """As it was."""
        return Using(self.project, self.rate, int(self.spent, 16))


class Sharing(Struct, array_like=True, gc=False):
    """Use is being measured."""

    measure: Measure
    since: int
    """When its clock shows 0, nanoseconds UTC."""
    last: int
    """When something started or ended last, nanoseconds UTC."""

    def grown(self, at: int) -> int:
        """What the clock shows at a moment."""
        length = self.measure.half_life // STEPS
        step, rest = divmod(max(0, at - self.since), length)
        half_lives, step = divmod(step, STEPS)
        whole = _BEFORE[STEPS] * ((1 << half_lives) - 1) + (_BEFORE[step] << half_lives)
        return whole * length + (_SPEEDS[step] << half_lives) * rest

    def old(self, at: int) -> int:
        """Half lives by which the clock is to be set back at a moment, so that its numbers stay small; 0 for a while."""
        half_lives = (at - self.since) // self._half_life
        return half_lives - KEPT if half_lives > LONG else 0

    def set_back(self, half_lives: int) -> "Sharing":
        """The same, with a clock that shows 0 so much later."""
        return Sharing(self.measure, self.since + half_lives * self._half_life, self.last)

    def carried(self, using: Using, half_lives: int) -> int:
        """What is spent of a project by a clock that is set back so far: all that was used is divided alike."""
        if half_lives > FAR:
            return using.rate * _BEFORE[STEPS] * (self.measure.half_life // STEPS)
        return (
            using.rate * self.grown(self.since + half_lives * self._half_life) + using.spent
        ) >> half_lives

    @property
    def _half_life(self) -> int:
        """In whole steps."""
        return self.measure.half_life // STEPS * STEPS
