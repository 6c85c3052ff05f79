"""Samples of runtimes of similar jobs: their number and their total."""

from typing import Final, TypeAlias

from msgspec import Struct

from spillover.model.job import Shape

WINDOW: Final = 64
"""The least number of recent runtimes that count fully; older ones are halved again and again."""

About: TypeAlias = tuple[str, str, str, Shape | None]
"""What the jobs have in common: kind of sample, user, name, shape; empty or None means any."""


class Sample(Struct, array_like=True, gc=False):
    """Runtimes of similar jobs, as sums."""

    key: str
    """Unique, for checkpoints."""
    about: About
    count: int = 0
    total: int = 0
    """Sum of runtimes in nanoseconds."""
    used: int = 0
    """When it last learned, as a count of `Facts.learned`."""
    bins: list[int] = []
    """How many ran how long compared with what was expected: see `spread`. Empty if nothing is known."""

    @property
    def mean(self) -> int:
        """Mean runtime in nanoseconds."""
        return self.total // self.count

    def halve(self) -> None:
        """Halve the weight of everything learned so far."""
        self.count //= 2
        self.total //= 2
