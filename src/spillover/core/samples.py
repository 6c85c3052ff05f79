"""What was seen of jobs that are alike: how many there were, and how long they ran."""

from typing import Final, TypeAlias

from msgspec import Struct

from spillover.model.job import Shape

WINDOW: Final = 64
"""How many of the last are remembered at the least; what is older counts half, again and again."""

About: TypeAlias = tuple[str, str, str, Shape | None]
"""What jobs have in common: a word that says what, a user, a name, a shape; empty or None for any."""


class Sample(Struct, array_like=True, gc=False):
    """Runtimes that were seen, as sums."""

    key: str
    """Unique, for checkpoints."""
    about: About
    count: int = 0
    total: int = 0
    """Nanoseconds that they ran together."""
    used: int = 0
    """When it last learned, as `Facts.learned` counts."""

    @property
    def mean(self) -> int:
        """Nanoseconds."""
        return self.total // self.count

    def halve(self) -> None:
        """Let all that was seen count half."""
        self.count //= 2
        self.total //= 2
