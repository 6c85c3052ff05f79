"""Bodies about pools: machines that are rented from a provider and given back."""

from typing import Annotated

from msgspec import Meta, Struct, field

from spillover.wire.api.jobs import Time


class MachineView(Struct, frozen=True):
    """A rented machine."""

    id: str
    """Its id, which is also the name of its agent."""
    type: str
    zone: str
    spot: bool
    state: str
    """`wanted`, `booting`, `ready`, `draining`, `ending`, `gone` or `refused`."""
    node: str | None
    """Its agent; null if that is not known now."""
    since: Time
    """When that state began."""
    cost: float
    """What it costs so far, in the configured currency."""
    reason: str
    """Why it is in its state; empty if that is obvious."""
    hour: float
    """Price of an hour."""
    provider_id: str = ""
    """The provider's id; empty until it is known."""
    tasks: int = 0
    """Tasks that it has now."""
    ready_at: Time | None = None
    """When it is expected to be ready; null if it is, or will not be."""
    leaves_at: Time | None = None
    """When it is given back if it stays empty; null while it has tasks."""
    job: str | None = None
    """The first job that it was ordered for; null for machines that are always there."""
    nodes: int | None = None
    """How many nodes a whole cluster is to have; null for a machine."""


class OfferView(Struct, frozen=True):
    """A type of machine in one zone and market, as a pool knows it."""

    type: str
    zone: str
    spot: bool
    hour: float
    """Present price of an hour."""
    cpu: float
    memory: int
    """Bytes."""
    gpu: int
    boot_p50_s: float
    """Seconds in which half of the machines were ready; as configured until enough were seen."""
    boot_p90_s: float
    """The same for nine of ten."""
    closed_until: Time | None = None
    """Until when it is not ordered; null if it is open."""
    reason: str = ""
    """Why it is closed, in the words of the provider; empty if it is open."""
    nodes: int | None = None
    """The most nodes of a whole cluster, of which the above is one; null for a machine."""
    cluster_hour: float | None = None
    """Price of an hour of a whole cluster besides its nodes; null for a machine."""
    offers: list[str] | None = None
    """Words that the last machine of it offers; those configured until one has joined."""
    labels: dict[str, str] | None = None
    """Labels of that machine, or those configured."""


class PoolSummary(Struct, frozen=True):
    """A pool in an overview."""

    cluster: str
    state: str
    """As in `PoolView`."""
    paused: str | None
    """Why it is paused; null if it is not."""
    machines: dict[str, int]
    """Machines that may exist, by state."""
    hour: float
    """What they cost an hour."""


class PoolView(Struct, frozen=True):
    """The pool of a cluster."""

    cluster: str
    provider: str
    state: str
    """`open`, `paused`, or `closed` if the provider refused all offers for now."""
    paused: str | None
    """Why it is paused; null if it is not."""
    machines: list[MachineView]
    """Those that may exist, and the last ones that are gone."""
    offers: list[OfferView]
    min: int
    max: int
    budget_left: float | None = None
    """What its budget leaves in this period, in the configured currency; null without a budget."""
    failed_boots: int = 0
    """Machines in a row that did not join in time."""
    join_within_s: float | None = None
    """Seconds from its order in which a machine must join."""
    idle_s: float | None = None
    """Seconds that an empty machine stays; null: as long as that pays."""
    rate: int = 0
    """The most machines ordered in a minute; 0 is no limit."""
    budget: float | None = None
    """What its machines may cost in a period, in the configured currency; null without a budget."""
    budget_per: str | None = None
    """That period, such as `day`; null without a budget."""


class PlannedView(Struct, frozen=True):
    """What a pool would do now."""

    cluster: str
    action: str
    """`order`, `grow`, `shrink`, `keep`, `drain`, `end` or `hold`."""
    machines: list[str]
    """Ids of machines; for orders, ids that they would get."""
    offer: str = ""
    """Type, zone and market of machines to order; otherwise empty."""
    hour: float = 0.0
    """Price of an hour of all of them together, in the configured currency."""
    reason: str = ""
    jobs: list[str] = field(default_factory=list)
    """The first job of each order; the gang that machines are kept for."""


class MachineCostView(Struct, frozen=True):
    """What the machines of one pool, day, week or month cost, in the configured currency."""

    key: str
    """The cluster of the pool; for a day, its date in UTC, such as 2027-01-31."""
    machines: int
    """Machines that are gone, by the day on which they went, and those that exist, which count for today."""
    paid: float
    """For all of their time, in whole billing steps: the sum of the next four."""
    useful: float
    """Shares of attempts that ended on their own or still run."""
    boot: float
    """Until machines were ready; all of it for machines that never were."""
    idle: float
    """While nothing used them, up to the end of the last billing step."""
    interrupted: float
    """Shares of attempts that the end of their machine interrupted."""
    live: int
    """Those of the machines that exist."""
    so_far: float
    """The part of `paid` for these, if they were gone now."""


class MachineCosts(Struct, frozen=True):
    """What rented machines cost, and for what."""

    by: str
    since: Time | None
    """Counts from the beginning of its day, UTC."""
    currency: str
    rows: list[MachineCostView]
    """Sorted by key."""
    total: MachineCostView


class PoolPause(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool to pause."""

    cluster: Annotated[str, Meta(min_length=1, max_length=63)]
    why: Annotated[str, Meta(max_length=1000)] = ""
    """For people who ask why their jobs wait."""
    end: bool = False
    """Whether to end all machines at once. Their tasks return to the queue."""


class SweepRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Pools to sweep."""

    clusters: Annotated[list[Annotated[str, Meta(max_length=63)]], Meta(max_length=1000)] = field(
        default_factory=list
    )
    """Empty for all pools."""
    dry_run: bool = False
    """Whether to end nothing, and only show what is there."""


class SweptMachine(Struct, frozen=True):
    """A machine at a provider that is ours and not wanted, or that is missing there."""

    id: str
    """The provider's id; empty if it does not list the machine."""
    state: str
    """`unwanted`: it runs and nothing wants it; `stopped`: it does not run but exists; `ending`: it is being ended already;
    `unlisted`: its agent answers, but the provider does not list it, so that it stays."""
    machine: str = ""
    """Our id; empty if it is not known."""
    name: str = ""
    """Its name at the provider; empty if it is not known."""
    made_at: Time | None = None
    reason: str = ""


class SweepView(Struct, frozen=True):
    """What the provider of a pool has that is not wanted."""

    cluster: str
    machines: list[SweptMachine]
    problem: str | None = None
    """Why the provider could not be asked, or answered in part; nothing is ended on the word of a part. Null if all is well."""


class PoolRef(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool."""

    cluster: Annotated[str, Meta(min_length=1, max_length=63)]
