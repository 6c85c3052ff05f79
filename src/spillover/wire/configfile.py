"""The format of spill.yaml, version 1.

This module defines the fields and their types. `config` checks values and names. Descriptions go into the JSON Schema.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from spillover.wire.accessfile import AccessDoc
from spillover.wire.jobfile import Quantity
from spillover.wire.notificationfile import NotificationsDoc
from spillover.wire.queuefile import QueueDoc

ChoiceDoc: TypeAlias = str | dict[str, dict[str, Any] | None]
"""`name`, or `{name: {option: value}}`."""


class PolicyDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of each axis: a name, or {name: {option: value}}."""

    order: Annotated[
        ChoiceDoc | None, Meta(description="Order of the queue, such as fifo, priority or fair_share.")
    ] = None
    backfill: Annotated[
        ChoiceDoc | None,
        Meta(
            description="Which jobs may start before a job that does not fit: strict, out_of_order, easy, hybrid or "
            "conservative."
        ),
    ] = None
    place: Annotated[
        ChoiceDoc | None,
        Meta(
            description="Which machine a job gets: first_fit (or first), best_fit, worst_fit, spread, pack, locality, low or high."
        ),
    ] = None
    route: Annotated[
        ChoiceDoc | None,
        Meta(
            description="Which agent gets a prefetched lease: least_loaded, round_robin, power_of_two or biased."
        ),
    ] = None
    wait: Annotated[
        ChoiceDoc | None,
        Meta(
            description="How long a job waits before it may use rented capacity, such as zero, constant or compute."
        ),
    ] = None
    depth: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="How many lanes a cycle tries after capacity became free.",
        ),
    ] = 1000
    unknown_runtime: Annotated[
        Quantity, Meta(description="Expected runtime of a job that has neither an estimate nor a walltime.")
    ] = "1h"
    slow_after: Annotated[
        Quantity, Meta(description="The server disables a custom policy whose step takes longer than this.")
    ] = "250ms"


class LocalDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent that the server starts on its own machine."""

    name: Annotated[str, Meta(description="Unique among agents.")]
    cpu: Annotated[Quantity, Meta(description="CPUs that its tasks may use.")]
    memory: Annotated[
        Quantity | None, Meta(description="Memory that its tasks may use; default: all of this machine.")
    ] = None
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="GPUs that its tasks may use.")] = 0
    queue: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        Meta(description="Most prefetched jobs; default: the agent chooses."),
    ] = None
    offers: Annotated[
        list[str],
        Meta(max_length=100, description="Words that jobs can need, such as gpu:a100."),
    ] = field(default_factory=list)
    labels: Annotated[dict[str, str], Meta(max_length=100, description="Labels shown with the agent.")] = (
        field(default_factory=dict)
    )
    sockets: Annotated[
        Annotated[int, Meta(ge=0, le=64)] | Literal["auto"] | None,
        Meta(
            description="Equal sockets that its CPUs and GPUs are in; `auto`: as the kernel shows, the default for a single agent; 0: none."
        ),
    ] = None
    gpu_link: Annotated[
        str | None,
        Meta(
            description="With a number of sockets: the link that all GPUs of a socket have, such as nvlink."
        ),
    ] = None
    engine: Annotated[
        str | None,
        Meta(description="Program that runs containers; default: podman or docker, whichever is installed."),
    ] = None
    engine_options: Annotated[
        list[str], Meta(max_length=100, description="Options passed to the engine for every container.")
    ] = field(default_factory=list)
    environments: Annotated[
        dict[str, Annotated[str, Meta(min_length=1)]],
        Meta(
            max_length=100,
            description="Python environments that jobs can name: the folders of virtual environments, or interpreters.",
        ),
    ] = field(default_factory=dict)


class NodeClassDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A machine type that is rented whole."""

    hour: Annotated[Quantity, Meta(description="Price of one machine for an hour.")]
    cpu: Annotated[Quantity, Meta(description="CPUs of one machine.")]
    memory: Annotated[Quantity | None, Meta(description="Memory of one machine; default: not checked.")] = (
        None
    )
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="GPUs of one machine.")] = 0
    name: Annotated[str, Meta(description="Name of the machine type, such as g5.xlarge.")] = "node"


class PriceDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices in the configured currency, either for each resource or for whole machines."""

    cpu_hour: Annotated[Quantity, Meta(description="Price of one CPU for an hour.")] = 0
    memory_gib_hour: Annotated[Quantity, Meta(description="Price of one GiB of memory for an hour.")] = 0
    gpu_hour: Annotated[Quantity, Meta(description="Price of one GPU for an hour.")] = 0
    node: Annotated[
        NodeClassDoc | None,
        Meta(description="The machine type, if machines are rented whole; replaces the three prices above."),
    ] = None
    egress_gb: Annotated[
        Quantity,
        Meta(
            description="Price of each GB of a job's `data`, transferred out of the cluster when the job ends."
        ),
    ] = 0


class BillingDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How usage is rounded before it is billed."""

    step: Annotated[Quantity, Meta(description="Usage is rounded up to a multiple of this.")] = "1s"
    minimum: Annotated[Quantity, Meta(description="Shortest usage that is billed.")] = "0s"


class KubernetesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How the server connects to a Kubernetes cluster, and its timeouts for Jobs there."""

    kubeconfig: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Path of the kubeconfig file; default: KUBECONFIG, else ~/.kube/config."),
    ] = None
    context: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Context in that file; default: the current one."),
    ] = None
    in_cluster: Annotated[
        bool, Meta(description="Whether the server runs in this cluster and uses its pod's service account.")
    ] = False
    namespace: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Namespace in which Jobs are created; default: that of the context, else default."),
    ] = None
    image: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Image for jobs without a container; default: such jobs do not run on this cluster."
        ),
    ] = None
    service: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="A headless Service in that namespace, by which pods of a job find its first pod; default: none."
        ),
    ] = None
    bind_within: Annotated[
        Quantity, Meta(description="A job that no node accepts within this time goes back to the queue.")
    ] = "30s"
    start_within: Annotated[
        Quantity, Meta(description="A job fails if its image or volumes are not available within this time.")
    ] = "10m"
    prepare_within: Annotated[
        Quantity,
        Meta(
            description="A job with several pods goes back to the queue if not all of them run within this time."
        ),
    ] = "10m"
    backoff: Annotated[
        Quantity | None,
        Meta(
            description="How long a job that went back to the queue is not tried on this cluster again; default 5m."
        ),
    ] = None
    shun_for: Annotated[Quantity | None, Meta(description="The old name of `backoff`.")] = None
    keep: Annotated[Quantity, Meta(description="How long finished Jobs are kept on the cluster.")] = "10m"
    failed_after: Annotated[
        Quantity, Meta(description="The cluster counts as failed after this time without an answer.")
    ] = "2m"


class MostDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that jobs of this server use of a cluster at a time."""

    jobs: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None, Meta(description="Most jobs; default: unlimited.")
    ] = None
    cpu: Annotated[Quantity | None, Meta(description="Most CPUs; default: all.")] = None
    memory: Annotated[Quantity | None, Meta(description="Most memory; default: all.")] = None
    gpu: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None, Meta(description="Most GPUs; default: all.")
    ] = None


class LocalAgentsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields that only clusters of kind agents have."""

    local: Annotated[
        list[LocalDoc], Meta(max_length=1000, description="Agents that the server starts on this machine.")
    ] = field(default_factory=list)
    graph: Annotated[
        str | None,
        Meta(
            description="File in JSON Graph Format with the levels of the cluster and the inside of its nodes."
        ),
    ] = None


class OfferDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A type of machine that can be rented."""

    type: Annotated[
        str,
        Meta(
            min_length=1, max_length=100, description="The provider's name of the type, such as m7i.xlarge."
        ),
    ]
    cpu: Annotated[Quantity, Meta(description="CPUs that tasks may use of one machine.")]
    memory: Annotated[Quantity, Meta(description="Memory that tasks may use of one machine.")]
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="GPUs of one machine.")] = 0
    hour: Annotated[
        Quantity | None, Meta(description="Price of one machine for an hour; every offer needs one.")
    ] = None
    spot: Annotated[
        bool, Meta(description="Whether it is cheaper and the provider may take it back at any time.")
    ] = False
    zones: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]],
        Meta(max_length=100, description="Zones in which it is rented; default: the provider chooses."),
    ] = field(default_factory=list)
    family: Annotated[
        str, Meta(max_length=100, description="Types that share a quota; default: the type has its own.")
    ] = ""
    offers: Annotated[
        list[str], Meta(max_length=100, description="Words that jobs can need, such as gpu:a100.")
    ] = field(default_factory=list)
    labels: Annotated[dict[str, str], Meta(max_length=100, description="Labels of its agents.")] = field(
        default_factory=dict
    )
    nodes: Annotated[
        int | Annotated[str, Meta(pattern=r"^[0-9]{1,6}(\.\.[0-9]{1,6})?$")] | None,
        Meta(
            description="For whole clusters: how many of these machines one may have, such as 1..10; default: it is a machine."
        ),
    ] = None
    cluster_hour: Annotated[
        Quantity | None, Meta(description="Price of a whole cluster for an hour, besides its nodes.")
    ] = None


class PoolBudgetDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that the machines of a pool may cost in a period of the UTC calendar."""

    per: Annotated[
        Literal["day", "week", "month", "year", "ever"],
        Meta(description="Period after which the budget starts over; weeks start on Monday."),
    ]
    limit: Annotated[Quantity, Meta(description="Amount in the configured currency.")]


class PoolDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Machines that the server rents when jobs need them, and gives back."""

    provider: Annotated[
        ChoiceDoc,
        Meta(description="Who rents them out: a name, or {name: {option: value}}, such as process or aws."),
    ]
    offers: Annotated[
        list[OfferDoc], Meta(max_length=1000, description="Machines that can be rented; the cheapest first.")
    ] = field(default_factory=list)
    billing: Annotated[
        BillingDoc | None,
        Meta(description="How the time of a machine is rounded; default: as the cluster's."),
    ] = None
    min: Annotated[int, Meta(ge=0, le=100_000, description="Machines that are always there.")] = 0
    max: Annotated[int, Meta(ge=1, le=100_000, description="Most machines at a time.")] = 1
    boot: Annotated[
        Quantity, Meta(description="Expected time from order to ready, until the server has seen some boots.")
    ] = "90s"
    join_within: Annotated[
        Quantity, Meta(description="A machine whose agent has not joined after this time is given back.")
    ] = "10m"
    idle: Annotated[
        Quantity,
        Meta(
            description="How long an empty machine stays; auto: to the end of what is paid, or one boot time."
        ),
    ] = "auto"
    budget: Annotated[
        PoolBudgetDoc | None, Meta(description="The most that all its machines may cost; default: unlimited.")
    ] = None
    rate: Annotated[
        int, Meta(ge=0, le=100_000, description="Most machines ordered in a minute; 0: unlimited.")
    ] = 0
    alone_for: Annotated[
        Quantity,
        Meta(description="A machine without server and tasks for this time turns itself off; 0: never."),
    ] = "30m"


class ClusterDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster that runs jobs. These fields are common to all kinds; `clusters/kinds.py` adds those of each kind."""

    name: Annotated[str, Meta(description="Unique among clusters.")]
    kind: Annotated[str, Meta(description="Kind of cluster, such as agents or kubernetes.")] = "agents"
    role: Annotated[
        Literal["owned", "rented"], Meta(description="Owned (no price) or rented (billed by usage).")
    ] = "owned"
    price: Annotated[PriceDoc, Meta(description="Prices of a rented cluster.")] = PriceDoc()
    billing: Annotated[BillingDoc, Meta(description="How usage is rounded.")] = BillingDoc()
    startup: Annotated[
        Quantity, Meta(description="Time between renting a machine and starting jobs on it; not billed.")
    ] = "0s"
    region: Annotated[
        str, Meta(max_length=63, description="Region of the cluster; jobs can ask for it with `where`.")
    ] = ""
    labels: Annotated[
        dict[str, str], Meta(max_length=100, description="Labels that jobs can ask for with `where`.")
    ] = field(default_factory=dict)
    limits: Annotated[MostDoc, Meta(description="The most that jobs of this server use at a time.")] = (
        MostDoc()
    )
    levels: Annotated[
        list[str | dict[str, str]],
        Meta(
            max_length=8,
            description="Levels above nodes, the highest first: labels of nodes, such as rack, or {name: label}.",
        ),
    ] = field(default_factory=list)
    pool: Annotated[
        PoolDoc | None,
        Meta(description="Machines that are rented when jobs need them; only with role: rented."),
    ] = None


class BudgetDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that a project or user may spend on rented capacity in a period of the UTC calendar."""

    per: Annotated[
        Literal["day", "week", "month", "year", "ever"],
        Meta(description="Period after which the budget starts over; weeks start on Monday."),
    ]
    limit: Annotated[Quantity, Meta(description="Amount in the configured currency.")]
    project: Annotated[
        str | None,
        Meta(
            description='The project; "*" gives every project without an entry of its own a separate budget.'
        ),
    ] = None
    user: Annotated[
        str | None, Meta(description='The user, instead of a project; "*" works as for projects.')
    ] = None


class AgentsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of all agents."""

    address: Annotated[
        Annotated[str, Meta(min_length=1, max_length=260)] | None,
        Meta(
            description="HOST or HOST:PORT at which rented machines reach this server; default: as grpc says."
        ),
    ] = None
    lost_after: Annotated[
        Quantity, Meta(description="How long a started task keeps running while the server is unreachable.")
    ] = "5m"
    on_shutdown: Annotated[
        Literal["stop", "keep"], Meta(description="What happens to local tasks when the server stops.")
    ] = "stop"
    heartbeat: Annotated[
        Quantity | None,
        Meta(description="Interval between heartbeats; default: depends on the number of agents."),
    ] = None
    forget_after: Annotated[
        Quantity, Meta(description="How long an agent is lost before the server removes it.")
    ] = "7d"
    prepare_within: Annotated[
        Quantity, Meta(description="How long the agents of a gang may take to prepare its tasks.")
    ] = "10m"
    ahead: Annotated[Quantity, Meta(description="How much work an agent prefetches, in time.")] = "100ms"
    stealing: Annotated[
        bool, Meta(description="Whether idle agents take over tasks that busy agents have not started.")
    ] = True
    keep_output: Annotated[bool, Meta(description="Whether the server keeps a copy of task output.")] = False
    output_limit: Annotated[
        Quantity, Meta(description="The most output that local agents keep of each stream of a task.")
    ] = "64Mi"
    isolation: Annotated[
        Literal["auto", "cgroup", "cgroup-v1", "cgroup-v2", "watch", "none"],
        Meta(description="How local agents enforce the resources of tasks."),
    ] = "auto"


class TlsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """PEM files for TLS; `spill cert init` creates them."""

    cert: Annotated[
        str,
        Meta(min_length=1, description="Certificate of the server, followed by intermediate certificates."),
    ]
    key: Annotated[str, Meta(min_length=1, description="Private key of the certificate.")]
    ca: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="CA certificate, for commands and agents on this machine; default: the system's CAs."
        ),
    ] = None


class RetentionDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the server keeps data of the past."""

    jobs: Annotated[Quantity, Meta(description="Finished jobs, in the archive.")] = "90d"
    logs: Annotated[Quantity, Meta(description="Task output.")] = "14d"
    events: Annotated[Quantity, Meta(description="Events in the journal.")] = "7d"
    audit: Annotated[Quantity, Meta(description="What people did, in the audit.")] = "365d"


class ClockDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the server trusts the clock of its machine."""

    jump: Annotated[
        Quantity, Meta(description="The largest jump ahead that the server follows while it runs.")
    ] = "1h"
    away: Annotated[
        Quantity, Meta(description="The longest downtime that the server accepts when it starts.")
    ] = "30d"


class BlobsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How many bytes of files the server stores, in the folder `blobs` of its data."""

    max_file: Annotated[Quantity, Meta(description="Largest size of a file.")] = "10Gi"
    max_total: Annotated[
        Quantity | None, Meta(description="Largest size of all files together; default: limited by the disk.")
    ] = None


class FilesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How many bytes of files a job may have."""

    max_inputs: Annotated[Quantity, Meta(description="Largest size of all inputs of a job together.")] = "1Gi"
    max_outputs: Annotated[Quantity, Meta(description="Largest size of all outputs of a task together.")] = (
        "1Gi"
    )
    max_state: Annotated[
        Quantity, Meta(description="Largest size of the folder of a task that outlives attempts.")
    ] = "1Gi"


class RateDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A rate limit with a burst."""

    rate: Annotated[float, Meta(ge=0.001, le=1_000_000, description="Jobs per second, on average.")]
    burst: Annotated[int, Meta(ge=1, le=10_000_000, description="Jobs accepted at once after a pause.")] = (
        1000
    )


class LimitsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How much the server accepts. It refuses more, and says when to retry."""

    body: Annotated[Quantity, Meta(description="Largest size of a request body.")] = "64Mi"
    queued: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(description="Most queued jobs; each member of an array counts; null: unlimited."),
    ] = 1_000_000
    queued_per_project: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(description="Most queued jobs of each project; default: unlimited."),
    ] = None
    submissions_per_second: Annotated[
        RateDoc | None,
        Meta(description="Rate limit of each token; an array counts as one job; default: unlimited."),
    ] = None
    connections: Annotated[int, Meta(ge=10, le=1_000_000, description="Most HTTP connections at a time.")] = (
        2_000
    )
    head_time: Annotated[
        Quantity, Meta(description="Timeout for the headers of an HTTP request, including the TLS handshake.")
    ] = "10s"
    too_large: Annotated[
        Literal["refuse", "wait"],
        Meta(description="A job that no cluster can ever hold is refused, or waits for larger clusters."),
    ] = "refuse"


class SecretsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the server has the key that encrypts secrets."""

    key_file: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="File with one key or several, the first for writing; default: the credential spillover-secrets-key of systemd, else secrets.key in the data folder."
        ),
    ] = None


class TelemetryDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the server sends traces of jobs, in OTLP."""

    endpoint: Annotated[
        str | None,
        Meta(
            description="URL of a receiver of OTLP over HTTP, to which /v1/traces is added; default: what the variables of OpenTelemetry say, else no traces."
        ),
    ] = None
    headers: Annotated[
        dict[str, str], Meta(max_length=100, description="Headers of requests to it, such as authorization.")
    ] = field(default_factory=dict)
    ca: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="File with the authority of its certificate; default: those of the system."),
    ] = None
    sample: Annotated[
        float, Meta(ge=0, le=1, description="Share of the traces to send, of those that no submitter began.")
    ] = 1.0
    service: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        Meta(description="service.name of the traces; default: OTEL_SERVICE_NAME, else spillover."),
    ] = None


class ConfigDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a server."""

    apiVersion: Literal["spillover/v1"]  # noqa: N815 - as Kubernetes spells it
    kind: Literal["Config"]
    data: Annotated[str, Meta(min_length=1, description="Folder in which the server keeps its data.")] = (
        "./spill-data"
    )
    store: Annotated[
        str, Meta(description="Where the journal is stored: sqlite, memory or postgresql://...")
    ] = "sqlite"
    http: Annotated[str, Meta(description="HOST:PORT of the HTTP API; port 0 picks a free port.")] = (
        "127.0.0.1:7070"
    )
    grpc: Annotated[str, Meta(description="HOST:PORT for agents; port 0 picks a free port.")] = (
        "127.0.0.1:7071"
    )
    tls: Annotated[
        TlsDoc | None, Meta(description="Required for addresses other than loopback; default: no TLS.")
    ] = None
    hosts: Annotated[
        list[str],
        Meta(
            max_length=100,
            description="Host names the server accepts in addition to those of its certificate.",
        ),
    ] = field(default_factory=list)
    currency: Annotated[str, Meta(description="Currency of prices: three capital letters, such as USD.")] = (
        "USD"
    )
    policy: Annotated[PolicyDoc, Meta(description="Scheduling policies.")] = PolicyDoc()
    clusters: Annotated[
        Annotated[list[ClusterDoc], Meta(max_length=1000)] | None,
        Meta(description="Clusters, in the order in which they are tried; default: this machine."),
    ] = None
    budgets: Annotated[
        list[BudgetDoc],
        Meta(max_length=10_000, description="Limits on the cost of rented capacity, by period."),
    ] = field(default_factory=list)
    queues: Annotated[
        list[QueueDoc],
        Meta(
            max_length=1000,
            description="Named queues that jobs are submitted to; default: any name is only a label.",
        ),
    ] = field(default_factory=list)
    agents: Annotated[AgentsDoc, Meta(description="Settings of all agents.")] = AgentsDoc()
    retention: Annotated[RetentionDoc, Meta(description="How long the server keeps data of the past.")] = (
        RetentionDoc()
    )
    clock: Annotated[ClockDoc, Meta(description="How far the server trusts the clock of its machine.")] = (
        ClockDoc()
    )
    blobs: Annotated[BlobsDoc, Meta(description="How many bytes of files the server stores.")] = BlobsDoc()
    files: Annotated[FilesDoc, Meta(description="How many bytes of files a job may have.")] = FilesDoc()
    limits: Annotated[LimitsDoc, Meta(description="How much the server accepts.")] = LimitsDoc()
    access: Annotated[AccessDoc, Meta(description="Who may change whose jobs, and how people sign in.")] = (
        AccessDoc()
    )
    secrets: Annotated[
        SecretsDoc, Meta(description="Where the server has the key that encrypts secrets.")
    ] = SecretsDoc()
    telemetry: Annotated[TelemetryDoc, Meta(description="Where traces of jobs go.")] = TelemetryDoc()
    notifications: Annotated[
        NotificationsDoc, Meta(description="How the server tells people and programs what happens.")
    ] = NotificationsDoc()
