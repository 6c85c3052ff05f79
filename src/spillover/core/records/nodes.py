"""Records of machines."""

from msgspec import Struct, field

from spillover.model.cluster import Taint
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, TaskKey, job_of_task, node_key
from spillover.model.inside import Granted, Inside
from spillover.model.resources import Resources


class Node(Struct, array_like=True):
    """A machine with an agent, or a node of an external cluster."""

    cluster: ClusterName
    name: NodeName
    incarnation: int
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    """How many leases it prefetches."""
    status: str = "ready"
    """As in the tables of `transitions`, for agents or for nodes of external clusters."""
    used: Resources = Resources()
    holding: dict[TaskKey, Resources] = field(default_factory=dict)
    """Tasks with resources reserved for them here."""
    ahead: dict[TaskKey, Resources] = field(default_factory=dict)
    """Tasks with prefetched leases, in the order in which they get resources."""
    pace: int = 0
    """Mean runtime of its recent tasks in nanoseconds; 0 before the first one has ended."""
    number: int = 0
    """Order of joining. Nodes are tried in this order."""
    token: str = ""
    """Id of the token that it registered with; empty for the server's own."""
    turn: int = 0
    """Number of its last prefetched lease, counted over all nodes; 0 if it had none."""
    drained: str = ""
    """The person who drained it, until it is resumed; usually empty."""
    taken: int = 0
    """Number of leases that it has stolen so far."""
    given: int = 0
    """Number of leases that others have stolen from it so far."""
    foreign: Resources | None = None
    """What tasks of others use there, as last seen; None for an agent."""
    tasks: int = -1
    """How many of our tasks it takes at a time; -1 is no limit."""
    taints: tuple[Taint, ...] = ()
    more: int = 0
    """Tasks beyond one for each job, in checkpoints of release 0.4 or older, where jobs held resources; now 0."""
    missed: int | None = None
    """Since when an agent is lost, in steady time; None if it is not, or if an old journal did not record it."""
    alone: bool = False
    """Whether one job has it for itself, so that no other may start there."""
    inside: Inside | None = None
    """Its sockets, cores, GPUs and links; None if it reported none."""
    granted: dict[TaskKey, Granted] = field(default_factory=dict)
    """Tasks that have cores or GPUs of their own, by name."""
    gangs: bool = True
    """Whether it can run tasks of gangs; agents before 0.5 cannot."""
    reason: str = ""
    """Why a person drained it; empty if they gave no reason, or nobody did."""
    since: int = 0
    """When an agent entered its status, nanoseconds UTC; 0 if an old journal did not record it."""

    @property
    def key(self) -> NodeKey:
        """Unique over all clusters."""
        return node_key(self.cluster, self.name)

    @property
    def is_agent(self) -> bool:
        """Whether one of our agents runs there."""
        return self.foreign is None

    @property
    def places(self) -> int | None:
        """How many more of our tasks it takes, negative if there are too many; None is no limit."""
        return None if self.tasks < 0 else self.tasks - len(self.holding)

    @property
    def held(self) -> tuple[TaskKey, ...]:
        """All tasks leased to it, with resources or prefetched."""
        return (*self.holding, *self.ahead)

    @property
    def jobs(self) -> dict[JobId, None]:
        """The jobs of those tasks, each once."""
        return {job_of_task(key): None for held in (self.holding, self.ahead) for key in held}
