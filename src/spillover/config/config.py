"""The checked configuration of a server."""

from enum import StrEnum
from ipaddress import ip_address
from typing import Final, Self

from msgspec import Struct, field

from spillover.control.live.clock import ClockBounds
from spillover.model.access import Access
from spillover.model.budget import Budget
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName
from spillover.model.notifications import Notifications
from spillover.model.policy import PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.ports.blobs import GIB, BlobBounds


class OnShutdown(StrEnum):
    """What happens to tasks on local agents when the server stops."""

    STOP = "stop"
    KEEP = "keep"


class ClusterSource(StrEnum):
    """Where the clusters of a server are configured."""

    FILE = "file"
    OPTIONS = "options"
    """`spill up --cluster`."""
    DEFAULT = "default"
    """Not configured: the server uses this machine."""


class Address(Struct, frozen=True):
    """An address on which a server listens."""

    host: str
    """An IP address, or `localhost`."""
    port: int
    """0 picks a free port."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, port: int) -> Self:
        """Return the same host with the port that was picked."""
        return type(self)(self.host, port)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or ip_address(self.host).is_loopback

    @property
    def is_any(self) -> bool:
        """Whether it stands for all addresses of the machine."""
        return self.host != "localhost" and ip_address(self.host).is_unspecified


class Tls(Struct, frozen=True):
    """Files for TLS; paths are relative to the server's working directory."""

    cert: str
    key: str
    ca: str | None = None
    """None if the system trusts the CA."""


class RetentionConfig(Struct, frozen=True):
    """How long to keep past data, in nanoseconds."""

    jobs: int = 90 * DAY
    logs: int = 14 * DAY
    events: int = 7 * DAY
    audit: int = 365 * DAY


class RateConfig(Struct, frozen=True):
    """A rate limit: jobs per second on average, and at once."""

    rate: float
    burst: int


class LimitsConfig(Struct, frozen=True):
    """How much the server accepts."""

    body: int = 64 * 2**20
    """Most bytes of a request."""
    queued: int | None = 1_000_000
    """Most waiting jobs, counting each member of arrays; None for no limit."""
    queued_per_project: int | None = None
    submissions: RateConfig | None = None
    """For each token; None for no limit."""
    connections: int = 2_000
    """Most HTTP connections at a time."""
    head_time: int = 10 * SECOND
    """Nanoseconds for the headers of an HTTP request to arrive."""
    too_large: str = "refuse"
    """What happens to jobs that no cluster can ever hold: `refuse`, or `wait` for larger clusters."""


class TelemetryConfig(Struct, frozen=True):
    """Where traces of jobs go."""

    endpoint: str | None = None
    """URL of the receiver, without `/v1/traces`; None leaves it to the variables of OpenTelemetry."""
    headers: dict[str, str] = field(default_factory=dict)
    ca: str | None = None
    """File with the authority of its certificate; None for those of the system."""
    sample: float = 1.0
    """The share of traces to export."""
    service: str | None = None
    """None leaves it to the variables of OpenTelemetry."""


DEFAULT_HTTP: Final = Address("127.0.0.1", 7070)
DEFAULT_GRPC: Final = Address("127.0.0.1", 7071)


class Config(Struct, frozen=True):
    """The configuration of a server."""

    clusters: tuple[ClusterSpec, ...]
    """In the order in which they are tried."""
    forms: dict[ClusterName, Struct] = field(default_factory=dict)
    """Settings of each cluster in the form of its kind."""
    entries: dict[ClusterName, str] = field(default_factory=dict)
    """The entry of each cluster in spill.yaml, as JSON."""
    providers: dict[ClusterName, Struct] = field(default_factory=dict)
    """For each cluster with a pool, the options of its provider, in the form of the provider."""
    clusters_from: ClusterSource = ClusterSource.FILE
    data: str = "./spill-data"
    """Folder; relative to the server's working directory."""
    store: str = "sqlite"
    """`sqlite`, `memory`, or the URL of a PostgreSQL database."""
    http: Address = DEFAULT_HTTP
    grpc: Address = DEFAULT_GRPC
    tls: Tls | None = None
    hosts: tuple[str, ...] = ()
    """Host names that it accepts, besides loopback names and those of its certificate."""
    currency: str = "USD"
    policies: PolicySet = PolicySet()
    slow_after: int = SECOND // 4
    """Nanoseconds that a custom policy may take in one step before the server disables it."""
    address: tuple[str, int] | None = None
    """Host and port at which rented machines reach the server, port 0 for that of `grpc`; None to derive both from that."""
    lost_after: int = 5 * MINUTE
    """Nanoseconds that a started task keeps running while the server is unreachable, unless its job says otherwise."""
    heartbeat: int | None = None
    """Nanoseconds between heartbeats of an agent; None to derive it from the number of agents."""
    forget_after: int = 7 * DAY
    """Nanoseconds for which an agent is lost before the server removes it; time without a server does not count."""
    prepare_within: int = 10 * MINUTE
    """Nanoseconds in which all agents of a gang must prepare its tasks; else it returns to the queue."""
    ahead: int = SECOND // 10
    """Nanoseconds of work that an agent prefetches."""
    stealing: bool = True
    """Whether idle agents take over tasks that busy agents have not started."""
    on_shutdown: OnShutdown = OnShutdown.STOP
    keep_output: bool = False
    """Whether the server keeps a copy of task output."""
    output_limit: int = 64 << 20
    """Bytes that local agents keep of each stream of a task."""
    isolation: str = "auto"
    """How local agents enforce the resources of tasks."""
    retention: RetentionConfig = RetentionConfig()
    clock: ClockBounds = ClockBounds()
    limits: LimitsConfig = LimitsConfig()
    access: Access = Access()
    secrets_key: str | None = None
    """File with the keys that encrypt secrets; None for that of systemd, or one in the data folder."""
    telemetry: TelemetryConfig = TelemetryConfig()
    budgets: tuple[Budget, ...] = ()
    queues: tuple[QueueSpec, ...] = ()
    blobs: BlobBounds = BlobBounds()
    notifications: Notifications = Notifications()
    """How messages are sent, and who gets which."""
    max_inputs: int = GIB
    """Most bytes of all inputs of a job."""
    max_outputs: int = GIB
    """Most bytes of all outputs of a task."""
    max_state: int = GIB
    """Most bytes of the folder of a task that outlives attempts."""
