"""How the use of projects is measured, and the clock that it is measured by."""

from math import isqrt
from typing import Final

from msgspec import Struct

from spillover.model.job import Shape

STEPS: Final = 64
"""Of one half life."""
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


class Sharing(Struct, array_like=True, gc=False):
    """Use is being measured."""

    measure: Measure
    since: int
    """When its clock shows 0, nanoseconds UTC."""
    last: int
    """When something started or ended last, nanoseconds UTC."""


class Using(Struct, array_like=True, gc=False):
    """One project."""

    project: str
    rate: int = 0
    """What its placed jobs hold, in thousandths of a CPU."""
    spent: int = 0
    """What it has used, less what its placed jobs had used if they had been there since the clock showed 0."""


def grown(sharing: Sharing, at: int) -> int:
    """What the clock shows at a moment."""
    length = sharing.measure.half_life // STEPS
    step, rest = divmod(max(0, at - sharing.since), length)
    half_lives, step = divmod(step, STEPS)
    whole = _BEFORE[STEPS] * ((1 << half_lives) - 1) + (_BEFORE[step] << half_lives)
    return whole * length + (_SPEEDS[step] << half_lives) * rest
