"""The format of spill.yaml, version 1.

This module defines the fields and their types. `config` checks values and names. Descriptions go into the JSON Schema.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from spillover.wire.accessfile import AccessDoc
from spillover.wire.clusterfile import ChoiceDoc, ClusterDoc
from spillover.wire.jobfile import Quantity
from spillover.wire.notificationfile import NotificationsDoc
from spillover.wire.queuefile import QueueDoc


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
    size: Annotated[
        ChoiceDoc | None,
        Meta(description="With how many tasks a gang of elastic size starts: largest, smallest or share."),
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
