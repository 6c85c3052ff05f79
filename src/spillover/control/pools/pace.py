"""Limits the calls to a provider: so many at a time, and one at a time with growing pauses while they fail.

A provider whose whole API fails thus gets a bounded number of calls, however many machines are wanted or to be destroyed.
"""

from typing import Final

from msgspec import Struct

from spillover.model.backoff import pause_after
from spillover.model.units import HOUR, SECOND

LONGEST_ASKED: Final = HOUR
"""The longest wait that a provider may ask for, in nanoseconds."""


class Pace(Struct):
    """How often one kind of call may be made. Times are on the monotonic clock."""

    most: int
    """The most calls at a time."""
    flying: int = 0
    """Calls without an answer so far."""
    failures: int = 0
    """Failures since the last success, those of calls at the same time counted once."""
    after: int = 0
    """Before this time, no call is made."""
    why: str = ""
    """Why the last call failed; empty if it did not."""

    def room(self, monotonic: int) -> int:
        """Return how many calls may be made now. After a failure, one call tries whether they work again."""
        if monotonic < self.after:
            return 0
        return max(0, (1 if self.failures else self.most) - self.flying)

    def began(self) -> None:
        """Count a call."""
        self.flying += 1

    def worked(self) -> None:
        """Count an answer, whatever it says."""
        self.flying -= 1
        self.failures, self.after, self.why = 0, 0, ""

    def failed(self, why: str, monotonic: int, asked: float = 0.0) -> None:
        """Count a call without a useful answer; the provider may have asked to wait some seconds."""
        self.flying -= 1
        self.why = why
        if monotonic >= self.after:  # otherwise it was made together with one that failed before
            self.failures += 1
            self.after = monotonic + pause_after(self.failures)
        wait = min(LONGEST_ASKED, int(min(max(0.0, asked), LONGEST_ASKED / SECOND) * SECOND))
        self.after = max(self.after, monotonic + wait)

    def withdrawn(self) -> None:
        """Forget a call that was not made after all."""
        self.flying -= 1
