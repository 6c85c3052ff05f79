"""A server's configuration, after it was read and checked."""

from enum import StrEnum
from ipaddress import ip_address
from typing import Self

from msgspec import Struct, field

from spillover.control.clock import ClockBounds
from spillover.model.budget import Budget
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName
from spillover.model.policy import PolicySet
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.ports.blobs import GIB, BlobBounds


class OnShutdown(StrEnum):
    """What becomes of tasks on local agents when the server stops."""

    STOP = "stop"
    KEEP = "keep"


class Address(Struct, frozen=True):
    """Where a server listens."""

    host: str
    """An IP address, or `localhost`."""
    port: int
    """0 picks a free one."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, port: int) -> Self:
        """The same host with the port that was picked."""
        return type(self)(self.host, port)

    @property
    def is_loopback(self) -> bool:
        """Whether nobody else can reach it."""
        return self.host == "localhost" or ip_address(self.host).is_loopback

    @property
    def is_any(self) -> bool:
        """Whether it stands for all addresses of the machine."""
        return self.host != "localhost" and ip_address(self.host).is_unspecified


class Tls(Struct, frozen=True):
    """Files for TLS; relative ones are seen from where the server starts."""

    cert: str
    key: str
    ca: str | None = None
    """None if the authority is known everywhere."""


class RetentionConfig(Struct, frozen=True):
    """How long ended things are kept, in nanoseconds."""

    jobs: int = 90 * DAY
    logs: int = 14 * DAY
    events: int = 7 * DAY


class RateConfig(Struct, frozen=True):
    """Jobs a second in the long run, and at once."""

    rate: float
    burst: int


class LimitsConfig(Struct, frozen=True):
    """How much the server takes."""

    body: int = 64 * 2**20
    """Bytes of a request."""
    queued: int | None = 1_000_000
    """Jobs that wait, members of arrays counted one by one; None is any number."""
    queued_per_project: int | None = None
    submissions: RateConfig | None = None
    """Of one token; None is any number."""
    connections: int = 2_000
    """Over HTTP, at a time."""
    head_time: int = 10 * SECOND
    """Nanoseconds until the head of a request over HTTP is complete."""


class Config(Struct, frozen=True):
    """Everything that a server is told before it starts."""

    clusters: tuple[ClusterSpec, ...]
    """In the order they are tried."""
    forms: dict[ClusterName, Struct] = field(default_factory=dict)
    """What each cluster says in the form of its kind."""
    entries: dict[ClusterName, str] = field(default_factory=dict)
    """The entry of each cluster in spill.yaml, as JSON."""
    data: str = "./spill-data"
    """Folder; a relative one is seen from where the server starts."""
    store: str = "sqlite"
    """`sqlite`, `memory`, or the address of a PostgreSQL database."""
    http: Address = Address("127.0.0.1", 7070)
    grpc: Address = Address("127.0.0.1", 7071)
    tls: Tls | None = None
    hosts: tuple[str, ...] = ()
    """Names that it answers to, beside those of loopback and of its certificate."""
    currency: str = "USD"
    policies: PolicySet = PolicySet()
    slow_after: int = SECOND // 4
    """Nanoseconds that a policy of an installed package may take in one step before it is disabled."""
    lost_after: int = 5 * MINUTE
    """Nanoseconds that a started task outlives an unreachable server, unless its job says otherwise."""
    heartbeat: int | None = None
    """Nanoseconds between two heartbeats of an agent; None: by the number of agents."""
    forget_after: int = 7 * DAY
    """Nanoseconds, without those in which no server ran, that an agent is lost before it leaves the book by itself."""
    ahead: int = SECOND // 10
    """Nanoseconds of work that an agent is given beyond what it has room for."""
    stealing: bool = True
    """Whether idle agents take over what busy ones have not begun."""
    on_shutdown: OnShutdown = OnShutdown.STOP
    keep_output: bool = False
    """Whether the server keeps a copy of what tasks wrote."""
    output_limit: int = 64 << 20
    """Bytes that local agents keep of each stream of a task."""
    isolation: str = "auto"
    """How local agents keep tasks within what they asked for."""
    retention: RetentionConfig = RetentionConfig()
    clock: ClockBounds = ClockBounds()
    limits: LimitsConfig = LimitsConfig()
    budgets: tuple[Budget, ...] = ()
    blobs: BlobBounds = BlobBounds()
    max_inputs: int = GIB
    """Bytes that all inputs of a job may have."""
    max_outputs: int = GIB
    """Bytes that all outputs of a task may have."""
