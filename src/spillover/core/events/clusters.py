"""Events of clusters, and of the agents and nodes in them."""

from msgspec import Struct, field

from spillover.core.events.base import Event
from spillover.model.cluster import ClusterHealth, ClusterSpec, Leave, Taint
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.units import format_duration


class ClustersConfigured(Event, frozen=True, tag="clusters_configured"):
    """The clusters of this server, in the order they are tried."""

    clusters: tuple[ClusterSpec, ...]

    def __str__(self) -> str:
        return "clusters: " + ", ".join(f"{spec.name} ({spec.role})" for spec in self.clusters)


class ClusterAdded(Event, frozen=True, tag="cluster_added"):
    """A cluster was added while the server runs; it is tried after the others."""

    spec: ClusterSpec
    """What deciding knows of it."""
    at: int
    who: str
    form: str = ""
    """Its entry of spill.yaml as JSON, if the configuration does not name it; else empty."""
    anew: bool = False
    """Whether everybody who waits is given a new wait: it is the first that is rented, or the only one that somebody asks for."""

    def __str__(self) -> str:
        return f"cluster {self.spec.name} ({self.spec.kind}, {self.spec.role}) was added by {self.who}"


class ClusterUpdated(Event, frozen=True, tag="cluster_updated"):
    """A cluster is configured otherwise. What is placed there pays what it was placed for."""

    spec: ClusterSpec
    """What deciding knows of it."""
    at: int
    who: str
    form: str = ""
    """As of `cluster_added`."""
    anew: bool = False
    """Likewise."""

    def __str__(self) -> str:
        return f"cluster {self.spec.name} is configured otherwise, by {self.who}"


class ClusterOpened(Event, frozen=True, tag="cluster_opened"):
    """The server has opened a cluster that was added: it watches it, or takes its agents."""

    cluster: ClusterName
    at: int

    def __str__(self) -> str:
        return f"cluster {self.cluster} is open"


class ClusterDraining(Event, frozen=True, tag="cluster_draining"):
    """A cluster is given nothing more; what runs there goes on."""

    cluster: ClusterName
    at: int
    who: str
    leaving: Leave | None = None
    """What becomes of its jobs, if it is being removed; null if it is only drained."""
    form: str = ""
    """Its entry of spill.yaml as JSON, if it is being removed because the configuration does not name it any more."""

    def __str__(self) -> str:
        leaving = f", to be removed ({self.leaving})" if self.leaving is not None else ""
        return f"cluster {self.cluster} was drained by {self.who}{leaving}"


class ClusterResumed(Event, frozen=True, tag="cluster_resumed"):
    """A cluster that was drained, or was being removed, may be given work again."""

    cluster: ClusterName
    at: int
    who: str

    def __str__(self) -> str:
        return f"cluster {self.cluster} was resumed by {self.who}"


class ClusterRemoved(Event, frozen=True, tag="cluster_removed"):
    """Nothing of ours is left on a cluster that was to be removed: it is gone."""

    cluster: ClusterName
    at: int
    anew: bool = False
    """Whether everybody who waits is given a new wait, as it was the last that is rented."""

    def __str__(self) -> str:
        return f"cluster {self.cluster} is gone"


class AgentRegistered(Event, frozen=True, tag="agent_registered"):
    """An agent is connected and may be given work."""

    cluster: ClusterName
    node: NodeName
    at: int
    incarnation: int
    capacity: Resources
    offers: tuple[str, ...]
    """Words, sorted."""
    labels: dict[str, str]
    queue: int
    """How many leases it takes beyond those that its capacity runs."""
    token: str = ""
    """Id of the token that it showed; empty for the server's own."""

    def __str__(self) -> str:
        return f"agent {self.cluster}/{self.node} registered with {self.capacity}"


class AgentDraining(Event, frozen=True, tag="agent_draining"):
    """An agent finishes what it has and is given nothing more."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str = ""
    """Who asked for it, which holds until somebody resumes it; empty if the agent was told to stop, which ends when it registers."""

    def __str__(self) -> str:
        told = f"agent {self.cluster}/{self.node} is draining"
        return told + (f", drained by {self.who}" if self.who else "")


class AgentResumed(Event, frozen=True, tag="agent_resumed"):
    """An agent that somebody drained may be given work again."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str

    def __str__(self) -> str:
        return f"agent {self.cluster}/{self.node} was resumed by {self.who}"


class AgentLost(Event, frozen=True, tag="agent_lost"):
    """An agent has not been heard from for too long, or said good-bye."""

    cluster: ClusterName
    node: NodeName
    at: int

    def __str__(self) -> str:
        return f"agent {self.cluster}/{self.node} is lost"


class AgentForgotten(Event, frozen=True, tag="agent_forgotten"):
    """An agent that is not there and holds nothing is struck off the list."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str

    def __str__(self) -> str:
        return f"agent {self.cluster}/{self.node} was forgotten by {self.who}"


class AgentsConfigured(Event, frozen=True, tag="agents_configured"):
    """How much work agents prefetch."""

    ahead: int
    """Nanoseconds."""

    def __str__(self) -> str:
        return f"agents prefetch work for {format_duration(self.ahead)}"


class SeenNode(Struct, frozen=True, array_like=True, gc=False):
    """One node of a cluster, as it was seen."""

    name: NodeName
    capacity: Resources
    """What tasks may use of it."""
    foreign: Resources
    """What is used by tasks that are none of ours."""
    tasks: int = -1
    """How many of our tasks it takes at a time; -1 is any number."""
    offers: tuple[str, ...] = ()
    """Words, sorted."""
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    """Whether it may be given tasks: it answers, and nobody has cordoned it."""


class NodeUse(Struct, frozen=True, array_like=True, gc=False):
    """What of a node others use, of which all else is as it was."""

    name: NodeName
    foreign: Resources
    tasks: int
    """As of `SeenNode`."""


class NodesSeen(Event, frozen=True, tag="nodes_seen"):
    """Nodes of a cluster are there, are not what they were, or are gone."""

    cluster: ClusterName
    at: int
    nodes: tuple[SeenNode, ...]
    """Those that are new, or not what they were: name, capacity, foreign, tasks, offers, labels, taints, ready."""
    used: tuple[NodeUse, ...] = ()
    """Those where nothing changed but what others use: name, foreign, tasks; any that was not seen since the server started is ready."""
    same: tuple[NodeName, ...] = ()
    """Those that are as the book says, were not seen since the server started, and are ready."""
    gone: tuple[NodeName, ...] = ()
    """Those that are not there any more; one that our tasks are on is kept in the book until they are not."""

    def __str__(self) -> str:
        counts = (
            (len(self.nodes), "new or not what they were"),
            (len(self.used), "used otherwise"),
            (len(self.same), "as before"),
            (len(self.gone), "gone"),
        )
        return f"nodes of {self.cluster}: " + ", ".join(f"{count} {how}" for count, how in counts if count)


class ClusterChanged(Event, frozen=True, tag="cluster_changed"):
    """A cluster answers, or does not any more."""

    cluster: ClusterName
    at: int
    health: ClusterHealth
    why: str
    """For people; empty if it is ready."""

    def __str__(self) -> str:
        return f"cluster {self.cluster} is {self.health}" + (f": {self.why}" if self.why else "")
