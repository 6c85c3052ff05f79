"""Bodies about clusters, agents and reserved capacity, and about the configuration that names clusters."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from spillover.wire.api.jobs import Time


class DomainView(Struct, frozen=True):
    """A NUMA node of a machine."""

    socket: int
    """The number of its socket."""
    cpus: list[str]
    """Its CPUs as lists such as `0-15`, one for each thread of a core: the first of each list make the first core."""
    gpus: list[str]
    """Ids of the GPUs near it."""
    memory: int = 0
    """Bytes; 0 if unknown."""


class LinkView(Struct, frozen=True):
    """GPUs all of which are linked with each other."""

    kind: str
    """Such as `nvlink`."""
    gpus: list[str]
    """Their ids."""


class InsideView(Struct, frozen=True):
    """What a machine has inside, and what of it tasks have for themselves."""

    domains: list[DomainView]
    gpus: list[str]
    """Ids of all GPUs."""
    links: list[LinkView]
    used_cpus: str = ""
    """CPUs that tasks have for themselves, such as `0-7,16`."""
    used_gpus: list[str] = field(default_factory=list)
    """Ids of GPUs that tasks have."""


class RentedView(Struct, frozen=True):
    """The rented machine of an agent."""

    type: str
    zone: str
    spot: bool
    state: str
    """`ready`, `draining` or `ending`, or another state of a machine while it is not settled."""
    hour: float
    """Price of an hour."""


class AgentView(Struct, frozen=True):
    """One agent."""

    name: str
    cluster: str
    state: str
    """`ready`, `draining`, `lost`, or `unobserved` if it has not registered since this server started."""
    capacity: dict[str, float]
    used: dict[str, float]
    running: int
    leased: int
    """Leases that it holds, including running ones."""
    offers: list[str]
    labels: dict[str, str]
    heartbeat_at: Time | None
    """Time of the last heartbeat; null if there was none since this server started."""
    ahead: int = 0
    """How many of its leases are prefetched."""
    load: float | None = None
    """Processes that run or wait for a CPU on its machine, as last reported; null if not since this server started."""
    stolen_in: int = 0
    """Number of leases that it took over from other agents."""
    stolen_out: int = 0
    """Number of leases that other agents took over from it."""
    drained_by: str | None = None
    """Who drained it; null if nobody did, or it was resumed."""
    inside: InsideView | None = None
    """Sockets, cores, GPUs and links of its machine; null if it reports none."""
    machine: RentedView | None = None
    """Its machine, if a pool rented it; null for others."""
    drain_reason: str | None = None
    """Why it was drained, as that person said; null if they gave no reason, or nobody drained it."""
    since: Time | None = None
    """When it entered its state; null if that was not recorded."""
    version: str | None = None
    """Release of the agent; null if not known since this server started."""


class NodeView(Struct, frozen=True):
    """One node of an external cluster, as last seen."""

    name: str
    cluster: str
    state: str
    """`ready`, `closed` (it does not answer, or takes no new tasks), `unobserved` since this server started, or `gone`."""
    capacity: dict[str, float]
    """What tasks may use."""
    used: dict[str, float]
    """Used by our jobs."""
    foreign: dict[str, float]
    """Used by others."""
    leased: int
    """Tasks of our jobs that are there."""
    offers: list[str]
    labels: dict[str, str]


class AgentTask(Struct, frozen=True):
    """A task that an agent holds."""

    job: str
    rank: int
    name: str
    user: str
    project: str
    state: str
    """State of its job; PLACED until it starts."""
    ahead: bool
    """Whether it is prefetched: it holds no resources until others end."""
    resources: dict[str, float]
    """What it holds there: cpu (CPUs), memory (bytes) and gpu."""
    started_at: Time | None
    cpus: str | None = None
    """CPUs that it has for itself; null if it shares those that no task has for itself."""
    gpus: list[str] = field(default_factory=list)
    """Ids of its GPUs, if they are given by name."""


class AgentDetail(AgentView, frozen=True):
    """One agent with what runs there."""

    tasks: list[AgentTask] = field(default_factory=list)
    """At most 1,000; a token of one project sees only the tasks of its project."""
    tasks_in_all: int = 0
    token: str | None = None
    """Id of the token that it registered with; null if that was the server's own."""


class AgentAction(Struct, frozen=True, forbid_unknown_fields=True):
    """An action on agents."""

    act: Literal["drain", "resume", "forget"]
    """`drain`: start no more tasks there; `resume`: start tasks again; `forget`: remove a lost agent."""
    agents: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    """Names, or CLUSTER/NAME where clusters have agents of the same name."""
    reason: Annotated[str, Meta(max_length=500)] = ""
    """With `drain`: why, for people. Draining again with another reason changes it."""


class AgentNames(Struct, frozen=True):
    """Agents that the action changed."""

    agents: list[str]
    """Each as CLUSTER/NAME."""


JobsThere: TypeAlias = Literal["finish", "move", "cancel"]

"""What to do with jobs on a removed cluster: let them end, requeue them, or cancel them."""


class ClusterRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to add."""

    cluster: dict[str, Any]
    """An entry of `clusters`, as in spill.yaml."""
    check: bool = True
    """Whether to refuse a cluster that is not reachable now."""


class ClusterAction(Struct, frozen=True, forbid_unknown_fields=True):
    """An action on clusters."""

    act: Literal["drain", "resume", "remove"]
    """`drain`: start no more jobs there; `resume`: start jobs again; `remove`: drain and remove it."""
    clusters: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    jobs: JobsThere = "finish"
    """With `remove`: what to do with jobs there."""


class ClusterNames(Struct, frozen=True):
    """Clusters that the action changed."""

    clusters: list[str]


class ConfigRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to reload the configuration."""

    dry_run: bool = False
    """Whether to only report what would change."""
    jobs: JobsThere = "finish"
    """What to do with jobs on clusters that the file no longer has."""


class ConfigChange(Struct, frozen=True):
    """One difference between the configuration file and the running server."""

    what: str
    """`cluster NAME`, `policy`, `budgets`, or the name of a setting."""
    change: str
    """`added`, `changed`, `removed`, `kept` (though not in the file), or `restart` (needs one)."""
    text: str


class ConfigOutcome(Struct, frozen=True):
    """What reloading the configuration changed, or would change."""

    changes: list[ConfigChange]
    done: bool
    """False for a dry run."""


class ClusterView(Struct, frozen=True):
    """One cluster."""

    name: str
    kind: str
    role: str
    state: str
    agents: int
    """How many agents, or nodes of an external cluster, are ready."""
    capacity: dict[str, float]
    used: dict[str, float]
    """Used by our jobs."""
    running: int
    price: dict[str, float]
    """Price of one hour of a CPU, a GiB and a GPU; if set, also of a `node` and of a GB of egress."""
    startup_s: float = 0.0
    """Seconds between renting a machine and starting jobs on it."""
    billing: dict[str, float] = field(default_factory=dict)
    """`step_s` and `minimum_s`: how usage is rounded before it is priced."""
    node: dict[str, float] | None = None
    """Resources of a machine that is rented whole; null if each resource has its price."""
    gangs: bool = False
    """Whether it runs jobs with several tasks."""
    foreign: dict[str, float] = field(default_factory=dict)
    """Used by others, as far as known; empty for agents."""
    why: str | None = None
    """What is wrong, as an error message; null if nothing is."""
    since: Time | None = None
    """When it entered this state; null if it is not watched."""
    region: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    life: str = "ready"
    """`requested`, `connecting`, `ready`, `draining` or `unreachable`."""
    configured: bool = True
    """Whether the configuration names it. If not, it was added at run time, or is being removed."""
    added_by: str | None = None
    """Who added it at run time; null if it came from the configuration."""
    drained_by: str | None = None
    """Who drained it; null if nobody did."""
    leaving: str | None = None
    """While it is being removed, what happens to its jobs: `finish`, `move` or `cancel`; else null."""
    levels: dict[str, str] = field(default_factory=dict)
    """Its levels above nodes, the highest first, each with the label of nodes that names it."""


class AgentsAddress(Struct, frozen=True):
    """The address that agents connect to."""

    host: str | None
    """Null for the host of this request."""
    port: int
    cluster: str | None = None
    """Cluster to join by default: that of the token, or the only one; null if there are several."""
    clusters: list[str] = field(default_factory=list)
    """All clusters that agents may join with this token."""


class ReservationView(Struct, frozen=True):
    """Capacity that is kept for a while: for a waiting job, for people, or for maintenance."""

    kind: str
    """`backfill`: the scheduler keeps it for a waiting job; `advance`: a person reserved it for a project;
    `maintenance`: a person reserved it, and no job starts there.
    """
    name: str
    """The name of the job, or of the reservation."""
    job: str | None
    """The waiting job, or the array of which a member waits; null for other kinds."""
    project: str | None
    """The project that may use it; null if none may."""
    cluster: str
    nodes: list[str]
    """Each node once. Until the start, the scheduler may choose other nodes for a waiting job."""
    start: Time
    end: Time | None
    """Expected end; null if it is not known."""
    by: str | None = None
    """The person who reserved it; null if it is for a waiting job."""
    missing: list[str] = []
    """Those of its nodes that have left, or accept no work now."""
    running: list[str] = []
    """Jobs of others that run there although it has begun; they are left to end."""


class ReservationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes to reserve. Set one of `nodes`, `names` and `all`, and either `project` or `maintenance`."""

    start: Annotated[str, Meta(min_length=1, max_length=100)]
    """RFC 3339 with a time zone, `now`, or from now on such as `+2h`."""
    length: Annotated[str, Meta(min_length=1, max_length=100)]
    """Such as 2h or 1h30m."""
    nodes: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """How many nodes; the scheduler chooses them."""
    names: Annotated[list[str], Meta(max_length=100_000)] = []
    """Which nodes."""
    all: bool = False
    """All nodes that the cluster has now."""
    project: str | None = None
    """The project whose jobs may run there."""
    maintenance: bool = False
    """No job starts there."""
    cluster: str | None = None
    """Default: the first cluster that has such nodes."""
    within: str | None = None
    """Level, such as rack: all nodes are in one rack."""
    needs: Annotated[list[str], Meta(max_length=100)] = []
    """Words that each node must offer."""
    name: str | None = None
    """Default: the project and the start."""
    ignore_jobs: bool = False
    """Reserve nodes even if jobs may still run there at the start. They are left to end."""
    dry_run: bool = False
    """Only tell which nodes would be reserved."""


class ReservationRef(Struct, frozen=True, forbid_unknown_fields=True):
    """An advance reservation, by its name."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
