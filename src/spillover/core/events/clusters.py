"""Events of clusters, and of their agents and nodes."""

from msgspec import Struct, field

from spillover.core.events.base import Event
from spillover.model.cluster import ClusterHealth, ClusterSpec, Leave, Taint
from spillover.model.ids import ClusterName, NodeName
from spillover.model.inside import Inside
from spillover.model.resources import Resources
from spillover.model.units import format_duration


class ClustersConfigured(Event, frozen=True, tag="clusters_configured"):
    """The clusters of this server, in the order in which they are tried."""

    clusters: tuple[ClusterSpec, ...]

    def __str__(self) -> str:
        return "clusters: " + ", ".join(f"{spec.name} ({spec.role})" for spec in self.clusters)


class ClusterAdded(Event, frozen=True, tag="cluster_added"):
    """A cluster was added to a running server. It is tried after the others."""

    spec: ClusterSpec
    """The part of its configuration that scheduling uses."""
    at: int
    who: str
    form: str = ""
    """Its entry in spill.yaml as JSON; empty if the configuration file has it."""
    anew: bool = False
    """Whether all jobs get new waits: it is the first rented cluster, or the only one that some job asks for."""

    def __str__(self) -> str:
        return f"cluster {self.spec.name} ({self.spec.kind}, {self.spec.role}) was added by {self.who}"


class ClusterUpdated(Event, frozen=True, tag="cluster_updated"):
    """The configuration of a cluster changed. Jobs that are placed there keep their prices."""

    spec: ClusterSpec
    """The part of its configuration that scheduling uses."""
    at: int
    who: str
    form: str = ""
    """As in `cluster_added`."""
    anew: bool = False
    """Whether all jobs get new waits."""

    also_of_server = True

    def __str__(self) -> str:
        return f"cluster {self.spec.name} was reconfigured by {self.who}"


class ClusterOpened(Event, frozen=True, tag="cluster_opened"):
    """The server opened a cluster that was added: it watches the cluster, or accepts its agents."""

    cluster: ClusterName
    at: int

    def __str__(self) -> str:
        return f"cluster {self.cluster} is open"


class ClusterDraining(Event, frozen=True, tag="cluster_draining"):
    """A cluster gets no more work. Its running jobs continue."""

    cluster: ClusterName
    at: int
    who: str
    leaving: Leave | None = None
    """What happens to its jobs, if it is being removed; null if it is only drained."""
    form: str = ""
    """Its entry in spill.yaml as JSON, if it is being removed because it was removed from the configuration file."""

    def __str__(self) -> str:
        leaving = f", to be removed ({self.leaving})" if self.leaving is not None else ""
        return f"cluster {self.cluster} was drained by {self.who}{leaving}"


class ClusterResumed(Event, frozen=True, tag="cluster_resumed"):
    """A cluster that was drained, or was being removed, may get work again."""

    cluster: ClusterName
    at: int
    who: str

    also_of_server = True

    def __str__(self) -> str:
        return f"cluster {self.cluster} was resumed by {self.who}"


class ClusterRemoved(Event, frozen=True, tag="cluster_removed"):
    """A cluster that was being removed has none of our jobs any more, and is gone."""

    cluster: ClusterName
    at: int
    anew: bool = False
    """Whether all jobs get new waits, because it was the last rented cluster."""

    def __str__(self) -> str:
        return f"cluster {self.cluster} was removed"


class AgentRegistered(Event, frozen=True, tag="agent_registered"):
    """An agent connected and may get work."""

    cluster: ClusterName
    node: NodeName
    at: int
    incarnation: int
    capacity: Resources
    offers: tuple[str, ...]
    """Words, sorted."""
    labels: dict[str, str]
    queue: int
    """How many leases it prefetches beyond those that its capacity runs."""
    token: str = ""
    """Id of its token; empty for the server's own token."""
    inside: Inside | None = None
    """Its sockets, cores, GPUs and links: domains (socket, cpus, gpus, memory), gpus, links; null if it reports none."""
    gangs: bool = True
    """Whether it can run tasks of gangs; agents before 0.5 cannot."""

    def __str__(self) -> str:
        return f"agent {self.cluster}/{self.node} registered with {self.capacity}"


class AgentDraining(Event, frozen=True, tag="agent_draining"):
    """An agent finishes its work and gets no more."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str = ""
    """The person who drained it, until it is resumed; empty if the agent is shutting down, until it registers again."""
    reason: str = ""
    """Why, in words of that person; empty if they gave none."""

    also_of_server = True

    def __str__(self) -> str:
        draining = f"agent {self.cluster}/{self.node} is draining"
        return draining + (
            f", drained by {self.who}{f': {self.reason}' if self.reason else ''}" if self.who else ""
        )


class AgentResumed(Event, frozen=True, tag="agent_resumed"):
    """An agent that a person drained may get work again."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str

    def __str__(self) -> str:
        return f"agent {self.cluster}/{self.node} was resumed by {self.who}"


class AgentLost(Event, frozen=True, tag="agent_lost"):
    """An agent sent no heartbeat for too long, or signed off."""

    cluster: ClusterName
    node: NodeName
    at: int
    left: bool = False
    """Whether it signed off, or its rented machine was to end: nobody needs to look after it."""

    def __str__(self) -> str:
        how = "left" if self.left else "is lost"
        return f"agent {self.cluster}/{self.node} {how}"


class AgentForgotten(Event, frozen=True, tag="agent_forgotten"):
    """An agent that was lost or unobserved, and held nothing, was removed."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str

    also_of_server = True

    def __str__(self) -> str:
        return f"agent {self.cluster}/{self.node} was forgotten by {self.who}"


class AgentsConfigured(Event, frozen=True, tag="agents_configured"):
    """How much work agents prefetch."""

    ahead: int
    """Nanoseconds."""
    who: str = ""
    """The person who had the configuration read again; empty if the server read it at its start."""

    def __str__(self) -> str:
        return f"agents prefetch work for {format_duration(self.ahead)}"


class SeenNode(Struct, frozen=True, array_like=True, gc=False):
    """One node of an external cluster, as observed."""

    name: NodeName
    capacity: Resources
    """What tasks may use of it."""
    foreign: Resources
    """What tasks of others use."""
    tasks: int = -1
    """How many of our tasks it takes at a time; -1 is no limit."""
    offers: tuple[str, ...] = ()
    """Words, sorted."""
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    """Whether it may get tasks: it answers, and is not cordoned."""


class NodeUse(Struct, frozen=True, array_like=True, gc=False):
    """A node of which only the usage by others changed."""

    name: NodeName
    foreign: Resources
    tasks: int
    """As in `SeenNode`."""


class NodesSeen(Event, frozen=True, tag="nodes_seen"):
    """Nodes of an external cluster appeared, changed or disappeared."""

    cluster: ClusterName
    at: int
    nodes: tuple[SeenNode, ...]
    """New or changed nodes: name, capacity, foreign, tasks, offers, labels, taints, ready."""
    used: tuple[NodeUse, ...] = ()
    """Nodes of which only the usage by others changed: name, foreign, tasks. Unobserved ones among them are ready."""
    same: tuple[NodeName, ...] = ()
    """Unchanged nodes that were unobserved since the server started, and are ready."""
    gone: tuple[NodeName, ...] = ()
    """Nodes that disappeared. Those with our tasks stay in the state until the tasks have left."""

    def __str__(self) -> str:
        counts = (
            (len(self.nodes), "new or changed"),
            (len(self.used), "with other usage"),
            (len(self.same), "unchanged"),
            (len(self.gone), "gone"),
        )
        return f"nodes of {self.cluster}: " + ", ".join(f"{count} {how}" for count, how in counts if count)


class ClusterChanged(Event, frozen=True, tag="cluster_changed"):
    """The health of an external cluster changed."""

    cluster: ClusterName
    at: int
    health: ClusterHealth
    why: str
    """Reason for people; empty if it is ready."""

    def __str__(self) -> str:
        return f"cluster {self.cluster} is {self.health}" + (f": {self.why}" if self.why else "")
