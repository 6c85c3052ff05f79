"""Samples of the runtimes of jobs that have something in common: the last ones, so that recent jobs count."""

from typing import Final, TypeAlias

from msgspec import Struct

from spillover.model.job import Shape

WINDOW: Final = 20
"""Runtimes that a sample keeps. Older ones say less about the next job, as people change what they run."""

About: TypeAlias = tuple[str, str, str, Shape | None]
"""What the jobs have in common: kind of sample, user, name with digests of what they run or walltime, shape; empty or
None means any.
"""


class Sample(Struct, array_like=True, gc=False):
    """The last runtimes of jobs that have something in common."""

    key: str
    """Unique, for checkpoints."""
    about: About
    count: int = 0
    """How many jobs it learned from; of a histogram, how many it holds."""
    total: int = 0
    """Sum of runtimes in nanoseconds in a checkpoint of release 0.4 or older, of `count` jobs; else 0."""
    used: int = 0
    """When it last learned, as a count of `Facts.learned`."""
    bins: list[int] = []
    """How many ran how long compared with what was expected: see `spread`. Empty if nothing is known."""
    runs: list[int] = []
    """The last runtimes in nanoseconds, oldest first; at most WINDOW."""
    kinds: int = 0
    """From how many different commands it learned, of a program under a name; else 0."""

    def known(self, most: int) -> list[int]:
        """Return the last runtimes; of an older release, that kept a sum, the mean as if at most so many had run."""
        return [self.total // self.count] * min(self.count, most) if self.total else self.runs
