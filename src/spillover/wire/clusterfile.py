"""The form of `clusters` in spill.yaml: what they are, what they cost, and pools of rented machines. `config` checks the values."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity

ChoiceDoc: TypeAlias = str | dict[str, dict[str, Any] | None]
"""`name`, or `{name: {option: value}}`."""


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
