"""Machines, as the book keeps them."""

from msgspec import Struct, field

from spillover.model.cluster import Taint
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, TaskKey, job_of_task, node_key
from spillover.model.resources import Resources


class Node(Struct, array_like=True):
    """One machine, with its agent or of an external cluster, and what our book says of it."""

    cluster: ClusterName
    name: NodeName
    incarnation: int
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    """How many leases it prefetches."""
    status: str = "ready"
    """As in the tables of `transitions`: that of agents, or that of nodes of external clusters."""
    used: Resources = Resources()
    holding: dict[TaskKey, Resources] = field(default_factory=dict)
    """Tasks that have their room."""
    ahead: dict[TaskKey, Resources] = field(default_factory=dict)
    """Tasks whose leases are prefetched, in the order in which they get room."""
    pace: int = 0
    """Mean nanoseconds that its recent tasks ran; 0 while none has ended."""
    number: int = 0
    """Order of joining: nodes are looked at in this order."""
    token: str = ""
    """Id of the token that it registered with; empty for the server's own."""
    turn: int = 0
    """Of all prefetched leases, which was its last; 0 if none was."""
    drained: str = ""
    """Who drained it, for as long as nobody resumes it; empty as a rule."""
    taken: int = 0
    """Leases that it took over from others, so far."""
    given: int = 0
    """Leases that others took over from it, so far."""
    foreign: Resources | None = None
    """What tasks use there that are none of ours, as it was seen; None for an agent."""
    tasks: int = -1
    """How many of our tasks it takes at a time; -1 is any number."""
    taints: tuple[Taint, ...] = ()
    more: int = 0
    """Tasks on it beyond one for each job, in a checkpoint of release 0.4 or before, where jobs held room; 0 ever since."""
    missed: int | None = None
    """Steady time since which an agent is lost; None while it is not, and for one of a journal that did not say."""

    @property
    def key(self) -> NodeKey:
        """Unique over all clusters."""
        return node_key(self.cluster, self.name)

    @property
    def is_agent(self) -> bool:
        """Whether an agent of ours runs there."""
        return self.foreign is None

    @property
    def places(self) -> int | None:
        """How many more of our tasks it takes, below 0 if there are too many; None is any number."""
        return None if self.tasks < 0 else self.tasks - len(self.holding)

    @property
    def held(self) -> tuple[TaskKey, ...]:
        """All tasks that were leased to it: those that have their room, and those ahead of it."""
        return (*self.holding, *self.ahead)

    @property
    def jobs(self) -> dict[JobId, None]:
        """The jobs of those tasks, each once."""
        return {job_of_task(key): None for held in (self.holding, self.ahead) for key in held}
