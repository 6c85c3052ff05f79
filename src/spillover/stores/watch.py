"""Decides when a silent holder of the lead may be replaced.

A contender never compares its clock with that of another machine. It watches a counter that a live holder keeps
increasing, and measures on its own monotonic clock how long the value has not changed. The holder's term began earlier,
so it ends first.
"""

from collections.abc import Callable


class Watch:
    """Measures how long one contender has seen an unchanged holder."""

    def __init__(self, term: float, monotonic: Callable[[], float]) -> None:
        self._term = term
        self._monotonic = monotonic
        self._seen: tuple[int, int] | None = None
        self._since = 0.0

    def expired(self, epoch: int, renewal: int) -> bool:
        """Record the current values of the store; return whether they have not changed for a full term."""
        now = self._monotonic()
        if self._seen != (epoch, renewal):
            self._seen = (epoch, renewal)
            self._since = now
            return False
        return now - self._since >= self._term
