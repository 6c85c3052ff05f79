"""Machines, as the book keeps them."""

from msgspec import Struct, field

from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources


class Node(Struct, array_like=True):
    """One machine with its agent, and what our book says of it."""

    cluster: ClusterName
    name: NodeName
    incarnation: int
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    """How many leases it takes ahead of room."""
    status: str = "ready"
    """As in the agent table of `transitions`."""
    used: Resources = Resources()
    holding: dict[JobId, Resources] = field(default_factory=dict)
    """Leases that have their room."""
    ahead: dict[JobId, Resources] = field(default_factory=dict)
    """Leases handed out ahead of room, in the order in which they get it."""
    pace: int = 0
    """Mean nanoseconds that its recent tasks ran; 0 while none has ended."""
    number: int = 0
    """Order of joining: nodes are looked at in this order."""
    token: str = ""
    """Id of the token that it registered with; empty for the server's own."""
    turn: int = 0
    """Of all leases that were handed out ahead of room, which was its last; 0 if none was."""
    drained: str = ""
    """Who drained it, for as long as nobody resumes it; empty as a rule."""
    taken: int = 0
    """Leases that it took over from others, so far."""
    given: int = 0
    """Leases that others took over from it, so far."""

    @property
    def key(self) -> str:
        """Unique over all clusters."""
        return f"{self.cluster}/{self.name}"
