"""When a silent holder may be replaced.

A contender never compares its clock with another machine's: it looks at a counter that a living holder keeps raising, and measures
on its own monotonic clock how long it saw the same value. The holder's term began before that, so it is over first.
"""

from collections.abc import Callable


class Watch:
    """How long one contender has seen an unchanged holder."""

    def __init__(self, term: float, monotonic: Callable[[], float]) -> None:
        self._term = term
        self._monotonic = monotonic
        self._seen: tuple[int, int] | None = None
        self._since = 0.0

    def expired(self, epoch: int, renewal: int) -> bool:
        """Take note of what the store says now; whether it has said so for a full term."""
        now = self._monotonic()
        if self._seen != (epoch, renewal):
            self._seen = (epoch, renewal)
            self._since = now
            return False
        return now - self._since >= self._term
