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


class Size(Struct, frozen=True):
    """The nodes of a whole cluster."""

    nodes: int
    drop: tuple[str, ...] = ()
    """Names of nodes that must go."""


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
    answers: bool = False
    """Whether a listing showed that a whole cluster answers."""
    opening: bool = False
    """Whether a whole cluster is being asked how to connect to it."""
    open_after: int = 0
    """When it may be asked again."""
    opens: int = 0
    """How often that failed in a row."""
    size: Size | None = None
    """The nodes that a whole cluster was last told to have; None if that is unknown."""
    sizing: bool = False
    """Whether it is being told."""
    sized: int = 0
    """When it was last told."""
    size_after: int = 0
    """When it may be told again."""
    sizes: int = 0
    """How often that failed in a row."""

    @property
    def is_given_up(self) -> bool:
        """Whether its order is not repeated any more."""
        return not self.sure and self.tries >= TRIES

    def see_size(self, nodes: int | None, began: int) -> None:
        """Take in how many nodes a listing shows a whole cluster to have, if it was told before the listing began."""
        if nodes is None or self.sizing or began <= self.sized:
            return
        if self.size is None or self.size.nodes != nodes:
            self.size = Size(nodes)

    def opened(self, monotonic: int, *, well: bool) -> None:
        """Record whether a whole cluster said how to connect to it."""
        self.opening, self.opens = False, 0 if well else self.opens + 1
        self.open_after = monotonic + (ASK_AGAIN if well else pause_after(self.opens))

    def told(self, size: Size, monotonic: int, *, well: bool) -> None:
        """Record whether a whole cluster was told to have so many nodes."""
        self.sizing, self.sizes = False, 0 if well else self.sizes + 1
        self.sized, self.size = monotonic, size if well else None
        self.size_after = monotonic + (0 if well else pause_after(self.sizes))

    def ended(self, why: str | None, monotonic: int) -> None:
        """Record that it was destroyed, or why it was not."""
        self.ending = False
        self.ends += 1
        if why is None:
            self.destroyed = monotonic
            self.end_after = monotonic + min(LONGEST_AGAIN, ASK_AGAIN << min(self.ends - 1, 10))
        else:
            self.end_after = monotonic + pause_after(self.ends)
