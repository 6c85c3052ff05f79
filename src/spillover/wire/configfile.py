"""spill.yaml, version 1, as people write it.

Only form is said here; what it means, and which names are known, is checked in `config`. Descriptions go into the JSON schema.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity

ChoiceDoc: TypeAlias = str | dict[str, dict[str, Any] | None]
"""`name`, or `{name: {option: value}}`."""


class PolicyDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Which policy decides what: a name, or {name: {option: value}}."""

    order: Annotated[
        ChoiceDoc | None, Meta(description="Who comes first, as fifo, priority, fair_share.")
    ] = None
    backfill: Annotated[
        ChoiceDoc | None, Meta(description="Who may pass one that does not fit: strict, out_of_order, easy.")
    ] = None
    place: Annotated[
        ChoiceDoc | None, Meta(description="Which machine: first_fit, best_fit, worst_fit, spread.")
    ] = None
    route: Annotated[
        ChoiceDoc | None,
        Meta(
            description="Whose queue takes a prefetched lease: least_loaded, round_robin, power_of_two, biased."
        ),
    ] = None
    wait: Annotated[
        ChoiceDoc | None,
        Meta(description="How long a job waits before it is rented for, as zero, constant, compute."),
    ] = None
    depth: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="How many kinds of jobs a cycle tries when room was gained."),
    ] = 1000
    unknown_runtime: Annotated[
        Quantity, Meta(description="Expected of a job that states neither estimate nor walltime.")
    ] = "1h"
    slow_after: Annotated[
        Quantity, Meta(description="A policy of your own that takes longer in one step is disabled.")
    ] = "250ms"


class LocalDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent that the server starts on its own machine."""

    name: Annotated[str, Meta(description="Unlike any other agent's.")]
    cpu: Annotated[Quantity, Meta(description="CPUs that it has to give.")]
    memory: Annotated[Quantity | None, Meta(description="Memory to give; default: all of this machine.")] = (
        None
    )
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="GPUs that it has to give.")] = 0
    queue: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        Meta(description="Jobs that it takes beyond those it runs; default: its own choice."),
    ] = None
    offers: Annotated[
        list[str], Meta(max_length=100, description="Words that jobs may need, such as gpu:a100.")
    ] = field(default_factory=list)
    labels: Annotated[dict[str, str], Meta(max_length=100, description="Words of your own.")] = field(
        default_factory=dict
    )
    engine: Annotated[
        str | None, Meta(description="Runs containers; default: podman or docker, whichever is there.")
    ] = None
    engine_options: Annotated[
        list[str], Meta(max_length=100, description="Given to the engine with every container.")
    ] = field(default_factory=list)


class NodeClassDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of machine that is rented whole."""

    hour: Annotated[Quantity, Meta(description="What an hour of one costs.")]
    cpu: Annotated[Quantity, Meta(description="CPUs of one.")]
    memory: Annotated[Quantity | None, Meta(description="Memory of one; default: it does not matter.")] = None
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="GPUs of one.")] = 0
    name: Annotated[str, Meta(description="What it is called, such as g5.xlarge.")] = "node"


class PriceDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What an hour costs, in the currency: of each resource, or of whole machines."""

    cpu_hour: Annotated[Quantity, Meta(description="Of one CPU.")] = 0
    memory_gib_hour: Annotated[Quantity, Meta(description="Of one GiB of memory.")] = 0
    gpu_hour: Annotated[Quantity, Meta(description="Of one GPU.")] = 0
    node: Annotated[
        NodeClassDoc | None,
        Meta(description="Machines that are paid for whole, in place of the three prices above."),
    ] = None
    egress_gb: Annotated[
        Quantity, Meta(description="Of each GB of a job's `data`, which leaves the cluster at its end.")
    ] = 0


class BillingDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How use is rounded before it is priced."""

    step: Annotated[Quantity, Meta(description="Every started step is paid.")] = "1s"
    minimum: Annotated[Quantity, Meta(description="Paid at the least.")] = "0s"


class KubernetesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How a Kubernetes cluster is reached, and how what runs there is dealt with."""

    kubeconfig: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="File; default: KUBECONFIG, else ~/.kube/config."),
    ] = None
    context: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="Of that file; default: its current one.")
    ] = None
    in_cluster: Annotated[
        bool, Meta(description="Whether the server runs there and uses its pod's service account.")
    ] = False
    namespace: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Where Jobs are made; default: that of the context, else default."),
    ] = None
    image: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="For jobs that are commands; default: such jobs do not run there."),
    ] = None
    bind_within: Annotated[
        Quantity, Meta(description="After that a job that no node takes goes back to the queue.")
    ] = "30s"
    start_within: Annotated[
        Quantity, Meta(description="After that a job fails whose image or volumes cannot be had.")
    ] = "10m"
    shun_for: Annotated[
        Quantity, Meta(description="For that long a job that went back is not tried there again.")
    ] = "5m"
    keep: Annotated[Quantity, Meta(description="How long Jobs are left there that have ended.")] = "10m"
    failed_after: Annotated[
        Quantity, Meta(description="Without an answer for that long the cluster has failed.")
    ] = "2m"


class MostDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that our jobs use of a cluster at a time."""

    jobs: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None, Meta(description="Jobs; default: any number.")
    ] = None
    cpu: Annotated[Quantity | None, Meta(description="CPUs; default: all that it has.")] = None
    memory: Annotated[Quantity | None, Meta(description="Memory; likewise.")] = None
    gpu: Annotated[Annotated[int, Meta(ge=1, le=1_000_000)] | None, Meta(description="GPUs; likewise.")] = (
        None
    )


class LocalAgentsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What a cluster of kind agents says beside what all clusters do."""

    local: Annotated[
        list[LocalDoc], Meta(max_length=1000, description="Agents that are started on this machine.")
    ] = field(default_factory=list)


class ClusterDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Somewhere jobs run. Only what all kinds have in common: `clusters/kinds.py` adds what each kind takes."""

    name: Annotated[str, Meta(description="Unlike any other cluster's.")]
    kind: Annotated[str, Meta(description="Who runs the jobs.")] = "agents"
    role: Annotated[Literal["owned", "rented"], Meta(description="There anyway, or paid for by use.")] = (
        "owned"
    )
    price: Annotated[PriceDoc, Meta(description="What use of it costs.")] = PriceDoc()
    billing: Annotated[BillingDoc, Meta(description="How use of it is rounded.")] = BillingDoc()
    startup: Annotated[
        Quantity, Meta(description="Between renting a machine and running on it; not billed.")
    ] = "0s"
    region: Annotated[str, Meta(max_length=63, description="Where it is; jobs may ask for it.")] = ""
    labels: Annotated[
        dict[str, str], Meta(max_length=100, description="Words of your own; jobs may ask for them.")
    ] = field(default_factory=dict)
    limits: Annotated[MostDoc, Meta(description="The most that our jobs use of it at a time.")] = MostDoc()


class BudgetDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that renting may cost somebody in a period of the UTC calendar."""

    per: Annotated[
        Literal["day", "week", "month", "year", "ever"],
        Meta(description="When it begins anew; weeks begin on Monday."),
    ]
    limit: Annotated[Quantity, Meta(description="In the currency.")]
    project: Annotated[
        str | None,
        Meta(description='Whose; "*" is every project that has no entry of its own, each by itself.'),
    ] = None
    user: Annotated[str | None, Meta(description="Likewise for a user, in place of a project.")] = None


class AgentsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for all agents."""

    lost_after: Annotated[
        Quantity, Meta(description="How long a started task outlives an unreachable server.")
    ] = "5m"
    on_shutdown: Annotated[
        Literal["stop", "keep"], Meta(description="What becomes of local tasks when the server stops.")
    ] = "stop"
    heartbeat: Annotated[
        Quantity | None, Meta(description="Between two heartbeats; default: by the number of agents.")
    ] = None
    forget_after: Annotated[
        Quantity, Meta(description="How long an agent is lost before it leaves the list by itself.")
    ] = "7d"
    ahead: Annotated[
        Quantity, Meta(description="How much work an agent is given beyond what it has room for.")
    ] = "100ms"
    stealing: Annotated[
        bool, Meta(description="Whether idle agents take over what busy ones have not begun.")
    ] = True
    keep_output: Annotated[bool, Meta(description="Whether the server keeps a copy of what tasks wrote.")] = (
        False
    )
    output_limit: Annotated[
        Quantity, Meta(description="The most that local agents keep of each stream of a task.")
    ] = "64Mi"
    isolation: Annotated[
        Literal["auto", "cgroup", "cgroup-v1", "cgroup-v2", "watch", "none"],
        Meta(description="How local agents keep tasks within what they asked for."),
    ] = "auto"


class TlsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that let the server speak TLS, PEM; `spill cert init` makes them."""

    cert: Annotated[
        str, Meta(min_length=1, description="Its certificate, with those between it and the authority.")
    ]
    key: Annotated[str, Meta(min_length=1, description="The key of that certificate.")]
    ca: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="The authority, for commands and agents on this machine; default: known everywhere."
        ),
    ] = None


class RetentionDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How long ended things are kept."""

    jobs: Annotated[Quantity, Meta(description="Jobs in the archive.")] = "90d"
    logs: Annotated[Quantity, Meta(description="Output of tasks.")] = "14d"
    events: Annotated[Quantity, Meta(description="The journal's history.")] = "7d"


class ClockDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the clock of the server's machine is believed."""

    jump: Annotated[
        Quantity, Meta(description="The furthest that it may jump ahead while the server runs.")
    ] = "1h"
    away: Annotated[
        Quantity, Meta(description="The longest that it may say no server ran, when one starts.")
    ] = "30d"


class BlobsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of files the server keeps, in the folder `blobs` of its data."""

    max_file: Annotated[Quantity, Meta(description="The largest file.")] = "10Gi"
    max_total: Annotated[
        Quantity | None, Meta(description="All files together; default: as much as the disk takes.")
    ] = None


class FilesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of files one job may have."""

    max_inputs: Annotated[Quantity, Meta(description="All inputs of a job together.")] = "1Gi"
    max_outputs: Annotated[Quantity, Meta(description="All outputs of a task together.")] = "1Gi"


class RateDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How many in a second, and how many at once."""

    rate: Annotated[float, Meta(ge=0.001, le=1_000_000, description="Jobs a second, in the long run.")]
    burst: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Jobs that may come at once after a pause.")
    ] = 1000


class LimitsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How much the server takes; what is more is refused, with when to ask again."""

    body: Annotated[Quantity, Meta(description="The largest request.")] = "64Mi"
    queued: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(description="Jobs that wait, members of arrays counted one by one; null is any number."),
    ] = 1_000_000
    queued_per_project: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(description="Likewise of each project; default: any number."),
    ] = None
    submissions_per_second: Annotated[
        RateDoc | None, Meta(description="Jobs that one token may submit, an array as one; default: any.")
    ] = None
    connections: Annotated[int, Meta(ge=10, le=1_000_000, description="Connections over HTTP at a time.")] = (
        2_000
    )
    head_time: Annotated[
        Quantity, Meta(description="Time until the head of a request over HTTP is complete, TLS included.")
    ] = "10s"


class ConfigDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A server."""

    apiVersion: Literal["spillover/v1"]  # noqa: N815 - as Kubernetes spells it
    kind: Literal["Config"]
    data: Annotated[str, Meta(min_length=1, description="Folder of everything that the server keeps.")] = (
        "./spill-data"
    )
    store: Annotated[str, Meta(description="sqlite, memory or postgresql://...")] = "sqlite"
    http: Annotated[str, Meta(description="HOST:PORT of the API; port 0 picks a free one.")] = (
        "127.0.0.1:7070"
    )
    grpc: Annotated[str, Meta(description="HOST:PORT for agents; port 0 picks a free one.")] = (
        "127.0.0.1:7071"
    )
    tls: Annotated[TlsDoc | None, Meta(description="Needed beyond loopback; default: no TLS.")] = None
    hosts: Annotated[
        list[str],
        Meta(max_length=100, description="Names that it answers to beside those of its certificate."),
    ] = field(default_factory=list)
    currency: Annotated[str, Meta(description="Three letters, such as USD.")] = "USD"
    policy: Annotated[PolicyDoc, Meta(description="Which policy decides what.")] = PolicyDoc()
    clusters: Annotated[
        Annotated[list[ClusterDoc], Meta(max_length=1000)] | None,
        Meta(description="In the order they are tried; default: this machine."),
    ] = None
    budgets: Annotated[
        list[BudgetDoc], Meta(max_length=10_000, description="The most that renting may cost, by period.")
    ] = field(default_factory=list)
    agents: Annotated[AgentsDoc, Meta(description="What holds for all agents.")] = AgentsDoc()
    retention: Annotated[RetentionDoc, Meta(description="How long ended things are kept.")] = RetentionDoc()
    clock: Annotated[ClockDoc, Meta(description="How far the machine's clock is believed.")] = ClockDoc()
    blobs: Annotated[BlobsDoc, Meta(description="How much of files the server keeps.")] = BlobsDoc()
    files: Annotated[FilesDoc, Meta(description="How much of files one job may have.")] = FilesDoc()
    limits: Annotated[LimitsDoc, Meta(description="How much the server takes.")] = LimitsDoc()
