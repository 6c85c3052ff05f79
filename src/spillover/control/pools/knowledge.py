"""What a server knows about one machine besides the state: which calls were made for it, and what listings showed."""

from typing import Final

from msgspec import Struct

from spillover.model.backoff import pause_after
from spillover.model.units import MINUTE, SECOND

TRIES: Final = 4
"""How often an order is sent that is not answered. After that, only listings tell whether the machine exists."""
ASK_AGAIN: Final = 30 * SECOND
"""Nanoseconds until a machine is destroyed again that still runs; twice as long after each further time."""
LONGEST_AGAIN: Final = 5 * MINUTE


class Knowledge(Struct):
    """Of one machine. Times are on the monotonic clock."""

    sure: bool
    """Whether it surely does not exist, because nobody asked for it."""
    asking: bool = False
    """Whether an order is under way."""
    tries: int = 0
    """Orders without an answer."""
    again: int = 0
    """When the order may be sent again."""
    answered: int = -1
    """When the last order was answered. A listing that began before proves nothing; -1 if this server sent none."""
    seen: bool = False
    """Whether a listing showed it."""
    missed: int | None = None
    """When the first whole listing began that did not show it; None if the last one did."""
    ending: bool = False
    """Whether it is being destroyed."""
    destroyed: int | None = None
    """When the provider last said that it destroys it; None if it never did."""
    ends: int = 0
    """How often it was destroyed, or that was refused."""
    end_after: int = 0
    """When it may be destroyed again."""

    @property
    def is_given_up(self) -> bool:
        """Whether its order is not repeated any more."""
        return not self.sure and self.tries >= TRIES

    def ended(self, why: str | None, monotonic: int) -> None:
        """Record that it was destroyed, or why it was not."""
        self.ending = False
        self.ends += 1
        if why is None:
            self.destroyed = monotonic
            self.end_after = monotonic + min(LONGEST_AGAIN, ASK_AGAIN << min(self.ends - 1, 10))
        else:
            self.end_after = monotonic + pause_after(self.ends)
