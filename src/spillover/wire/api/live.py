"""Bodies of the live stream that open pages follow, and of the last hours as lines."""

from msgspec import Struct, field

from spillover.wire.api.jobs import Time
from spillover.wire.api.pools import PoolSummary
from spillover.wire.api.server import BudgetView, ServerView


class Amounts(Struct, frozen=True):
    """Amounts of resources."""

    cpu: float
    memory: int
    """Bytes."""
    gpu: int


class LiveCounts(Struct, frozen=True):
    """The jobs of one project that have not ended, by state; members of arrays count one by one."""

    project: str
    held: int
    queued: int
    placed: int
    running: int


class LiveCluster(Struct, frozen=True):
    """A cluster, with the sums over its ready machines."""

    name: str
    kind: str
    role: str
    """`owned` or `rented`."""
    state: str
    machines: int
    """Ready machines."""
    capacity: Amounts
    used: Amounts
    """What our jobs use."""
    foreign: Amounts
    """What others use."""
    why: str | None
    """What is wrong with it; null if nothing is."""


class LiveOverview(Struct, frozen=True):
    """The message `overview`: what the server does now."""

    at: Time
    """The server's time."""
    server: ServerView
    projects: list[LiveCounts]
    """At most 100, those with the most jobs; those of one project for its tokens."""
    projects_in_all: int
    jobs: LiveCounts
    """All of them together; its `project` is empty."""
    clusters: list[LiveCluster]
    ended_a_minute: int
    """Jobs that ended in the last minute."""
    cost_an_hour: float
    """Cost per hour of all capacity that is rented now."""
    waited_s: float | None
    """How long jobs that were placed in the last 15 minutes had waited, on average; null if there were none."""
    budgets: list[BudgetView]
    pools: list[PoolSummary]
    set_aside: int
    """Work that failed unexpectedly and is tried again."""


class LiveTask(Struct, frozen=True):
    """A job on a machine."""

    id: str
    name: str
    user: str
    state: str


class LiveMachine(Struct, frozen=True):
    """A machine of a cluster, or one that a pool is renting."""

    cluster: str
    name: str
    state: str
    """As of agents, nodes and rented machines: `ready`, `draining`, `lost`, `booting` ..."""
    capacity: Amounts
    used: Amounts
    foreign: Amounts
    tasks: int
    """Tasks that it runs."""
    ahead: int
    """Tasks that it prefetched."""
    jobs: list[LiveTask]
    """The first few of these; a token of one project sees only those of its project."""


class LiveMachines(Struct, frozen=True):
    """The message `machines`: all of them, or those that changed since the last message."""

    full: bool
    machines: list[LiveMachine]
    gone: list[str] = field(default_factory=list)
    """Machines that are there no longer, as CLUSTER/NAME."""


class LiveJobs(Struct, frozen=True):
    """The message `jobs`: which jobs changed since the last message."""

    revision: int
    jobs: list[str]
    """At most 200."""
    more: bool
    """Whether there are more than these."""


class LivePools(Struct, frozen=True):
    """The message `pools`: machines of pools changed, so that `/v1/pools` has news."""

    revision: int


class LiveProblem(Struct, frozen=True):
    """The message `problem`: the server cannot show its state now."""

    message: str


class SeriesCluster(Struct, frozen=True):
    """What one cluster had and used, one value for each time; null while it was not there."""

    name: str
    role: str
    cpus: list[float | None]
    """Capacity of its ready machines."""
    used_cpus: list[float | None]
    gpus: list[int | None]
    used_gpus: list[int | None]


class Series(Struct, frozen=True):
    """The last hours as lines."""

    step_s: int
    """Seconds between two values."""
    at: list[Time]
    """When each value was taken. Nothing was taken while no server ran."""
    queued: list[int]
    """Jobs that waited; members of arrays count one by one."""
    running: list[int]
    clusters: list[SeriesCluster]
    cost_an_hour: list[float] | None
    """Cost per hour of all capacity that was rented, in the configured currency; null for a token of one project."""
    spent: list[float] | None
    """What rented capacity had cost by then, from the first of these times on; null for a token of one project."""
