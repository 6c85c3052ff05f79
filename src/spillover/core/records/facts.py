"""The part of the state that is not about single jobs or machines."""

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from spillover.core.learned.sharing import Sharing
from spillover.core.learned.tally import Tally
from spillover.model.budget import Budget
from spillover.model.cluster import ClusterSpec
from spillover.model.policy import PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.units import SECOND


class Facts(Struct, array_like=True):
    """Single values that checkpoints store as one record."""

    epoch: int = 0
    now: int = 0
    """Time of the last step; never decreases."""
    jumped: int = 0
    """Nanoseconds so far in which the server could not schedule."""
    numbered: int = 0
    """Number of jobs submitted so far."""
    archived: int = 0
    """Number of jobs archived so far."""
    incarnations: int = 0
    """The highest incarnation so far. Nodes of external clusters also take a number when they join."""
    cycles: int = 0
    """Number of cycles that decided something."""
    clusters: tuple[ClusterSpec, ...] = ()
    policies: PolicySet = PolicySet()
    tally: Tally = field(default_factory=Tally)
    budgets: tuple[Budget, ...] = ()
    overruns: int = 0
    """Number of attempts so far that cost more than their holds."""
    learned: int = 0
    """Number of ended jobs from which runtimes were learned."""
    sampled: int = 0
    """Number of samples of runtimes created so far."""
    sharing: Sharing | None = None
    """How usage of projects is measured; None if the order policy does not need it."""
    sums: tuple[str, ...] = ()
    """The tally in a checkpoint, hexadecimal because integers there have at most 64 bits; empty in the state."""
    ahead: int = SECOND // 10
    """How much work a node prefetches, in nanoseconds: what it runs while a message travels."""
    turns: int = 0
    """Number of prefetched leases so far."""

    identity: str = ""
    """The label of objects on external clusters; empty until first needed."""
    rounds: int = 0
    """How many times all waits were reset, because policies or clusters changed."""
    machines: int = 0
    """The number of the last machine ordered: above those that a server ordered after the backup that this state is from."""
    queues: tuple[QueueSpec, ...] = ()
    least_seq: int = 0
    """The least `seq` of a new lease: above those that a server granted after the backup that this state is from."""

    @property
    def kept(self) -> "Facts":
        """The same values in the form of a checkpoint."""
        return replace(self, tally=Tally(), sums=tuple([f"{each:x}" for each in astuple(self.tally)]))
