"""What the book says once, of no job or machine."""

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from spillover.core.sharing import Sharing
from spillover.core.tally import Tally
from spillover.model.budget import Budget
from spillover.model.cluster import ClusterSpec
from spillover.model.policy import PolicySet
from spillover.model.units import SECOND


class Facts(Struct, array_like=True):
    """Single facts that are checkpointed as one record."""

    epoch: int = 0
    now: int = 0
    """Time of the last step; never decreases."""
    jumped: int = 0
    """Nanoseconds in which nothing could be decided, so far."""
    numbered: int = 0
    """Jobs submitted so far."""
    archived: int = 0
    """Jobs archived so far."""
    incarnations: int = 0
    """Registrations of agents so far, or more: nodes of external clusters take a number when they join, too."""
    cycles: int = 0
    """Cycles that decided something."""
    clusters: tuple[ClusterSpec, ...] = ()
    policies: PolicySet = PolicySet()
    tally: Tally = field(default_factory=Tally)
    budgets: tuple[Budget, ...] = ()
    overruns: int = 0
    """Attempts that cost more than was held for them, so far."""
    learned: int = 0
    """Ended jobs whose runtimes were learned from, so far."""
    sampled: int = 0
    """Samples of runtimes that were begun, so far."""
    sharing: Sharing | None = None
    """How the use of projects is measured; None while no order asks for it."""
    sums: tuple[str, ...] = ()
    """The tally in a checkpoint, hexadecimal, as its numbers have 64 bits at the most; empty in the book."""
    ahead: int = SECOND // 10
    """Nanoseconds of work that a node prefetches: what it does while a message travels."""
    turns: int = 0
    """Prefetched leases, so far."""

    identity: str = ""
    """What this book is known by elsewhere; empty while nobody asked."""
    rounds: int = 0
    """How often all waits were given anew so far, because policies or clusters changed."""

    @property
    def kept(self) -> "Facts":
        """As a checkpoint keeps it."""
        return replace(self, tally=Tally(), sums=tuple([f"{each:x}" for each in astuple(self.tally)]))
