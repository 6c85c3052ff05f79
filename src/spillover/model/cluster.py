"""Clusters and their prices."""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct, field

from spillover.model.bounds import MOST_COST
from spillover.model.ids import ClusterName
from spillover.model.job import Shape
from spillover.model.pools import Pool
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Level
from spillover.model.units import HOUR, SECOND

GB: Final = 10**9
"""Bytes in a GB, the unit of egress prices."""
AGENTS: Final = "agents"
"""The kind of clusters whose nodes run our agents. All other kinds are external."""
WITHOUT: Final = "without."
"""Prefix of an agent's labels that say why it does not offer a word, such as `without.container`."""
WHOLE: Final = 1_000_000
"""A whole machine, in the unit of shares."""
PER_RATE: Final = 1000 * 2**30 * HOUR
"""Divisor that turns `rate_of` times nanoseconds into millionths."""


class Role(StrEnum):
    """Whether capacity costs nothing extra or is paid for by use."""

    OWNED = "owned"
    RENTED = "rented"


# A module global is found several times faster than an enum member. Code that runs for every job uses these.
OWNED: Final = Role.OWNED
RENTED: Final = Role.RENTED


class NodeClass(Struct, frozen=True, gc=False):
    """A kind of machine that is rented whole."""

    name: str
    resources: Resources
    """What one machine has; 0 means that a resource does not matter."""
    hour: int
    """Millionths for an hour of one machine."""

    def count(self, asked: Resources) -> int:
        """Return how many machines a task pays for: whole ones, at least one."""
        have = self.resources
        return max(
            1,
            -(-asked.cpu // have.cpu) if have.cpu else 1,
            -(-asked.memory // have.memory) if have.memory else 1,
            -(-asked.gpu // have.gpu) if have.gpu else 1,
        )

    def share(self, asked: Resources) -> int:
        """Return the part of one machine that a task keeps from others, in millionths: of what it has most."""
        return share_of(self.resources, asked)


class Price(Struct, frozen=True, gc=False, cache_hash=True):
    """Millionths of the currency for an hour of each resource, or of whole machines."""

    cpu_hour: int = 0
    """For one whole CPU."""
    memory_gib_hour: int = 0
    gpu_hour: int = 0
    node: NodeClass | None = None
    """The machine that is rented whole, instead of the prices above; None if those apply."""
    egress_gb: int = 0
    """Millionths for each GB (10^9 bytes) that leaves the cluster."""
    machines: tuple[NodeClass, ...] = ()
    """Machines that are billed as a whole, and of which a task pays its share; empty if the prices above apply."""
    job_hour: int = 0
    """Millionths for an hour of one job, whatever it requests: its shares of machines; 0 if the prices above apply."""


class Billing(Struct, frozen=True, gc=False):
    """How use is rounded before it is priced."""

    step: int = SECOND
    """Nanoseconds; every started step is paid."""
    minimum: int = 0
    """Shortest time paid, in nanoseconds."""


class ClusterHealth(StrEnum):
    """The health of an external cluster. A cluster of agents has none, because each agent has a status."""

    UNOBSERVED = "unobserved"
    """Not observed since the server started."""
    READY = "ready"
    DEGRADED = "degraded"
    """Unreachable at present: its jobs continue, and it gets no new ones."""
    FAILED = "failed"
    """Unreachable for so long that its jobs do as their `on_cluster_failure` says."""
    CLEARING = "clearing"
    """Reachable again after a failure. Unwanted objects are deleted before it gets new jobs."""


class ClusterLife(StrEnum):
    """The lifecycle of a cluster, from its addition to its removal. Only a ready cluster gets work."""

    REQUESTED = "requested"
    """Added, but not opened by the server yet."""
    CONNECTING = "connecting"
    """Open, but not observed since the server started, or being cleared."""
    READY = "ready"
    DRAINING = "draining"
    """Drained by a person, or being removed: its jobs continue, and it gets no new ones."""
    UNREACHABLE = "unreachable"
    """It does not answer."""
    GONE = "gone"
    """Removed from the state."""


class Leave(StrEnum):
    """What happens to jobs on a cluster that is removed."""

    FINISH = "finish"
    """They end there. The cluster is removed after the last one."""
    MOVE = "move"
    """They are stopped and requeued."""
    CANCEL = "cancel"


class Taint(Struct, frozen=True, array_like=True, gc=False):
    """Keeps tasks off a node unless they tolerate it."""

    key: str
    value: str
    effect: str
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`."""


class ClusterSpec(Struct, frozen=True):
    """One cluster as configured."""

    name: ClusterName
    kind: str
    role: Role
    price: Price = Price()
    billing: Billing = Billing()
    gangs: bool = False
    """Whether it runs gangs, with all tasks at once."""
    startup: int = 0
    """Nanoseconds between placement and start on a rented machine. This time is not billed."""
    region: str = ""
    """Its region as configured; empty if not set."""
    labels: dict[str, str] = field(default_factory=dict)
    """Its own labels, which jobs may ask for."""
    runs: tuple[str, ...] | None = None
    """Which kinds of work it supports, of those in the `runs` of a shape; None means all."""
    most: Resources | None = None
    """The most that our jobs may use at a time; 0 of a resource is no limit for it. None is no limit."""
    most_jobs: int | None = None
    """The most of our jobs at a time; None is no limit."""
    levels: tuple[Level, ...] = ()
    """Its levels above nodes, the highest first; empty for a flat cluster."""
    pool: Pool | None = None
    """How it rents its machines, or whole clusters; None if nobody orders anything for it."""
    made_by: ClusterName = ClusterName("")
    """The template that it was made from, and is ended with; empty if it was configured."""

    @property
    def is_template(self) -> bool:
        """Whether it has no nodes of its own: its pool orders whole clusters of its kind."""
        return self.pool is not None and self.kind != AGENTS

    @property
    def external(self) -> bool:
        """Whether it has its own scheduler, so that its state is only known from observations."""
        return self.kind != AGENTS and self.pool is None

    @property
    def level_names(self) -> tuple[str, ...]:
        """All levels that jobs may name, the highest first."""
        return (*[level.name for level in self.levels], NODE)


def share_of(have: Resources, asked: Resources) -> int:
    """Return the largest part of any resource that is requested, in millionths, at most all of it."""
    parts = [
        -(-WHOLE * mine // all_of)
        for mine, all_of in ((asked.cpu, have.cpu), (asked.memory, have.memory), (asked.gpu, have.gpu))
        if all_of
    ]
    return min(WHOLE, max(parts, default=WHOLE))


def billed(billing: Billing, ran: int) -> int:
    """Return the nanoseconds that are billed for a runtime."""
    if ran <= 0:
        return billing.minimum
    step = billing.step
    if step > 1:
        ran = -(-ran // step) * step
    return max(billing.minimum, ran)


def rate_of(price: Price, resources: Resources) -> int:
    """Return the cost rate of a task in PER_RATE-ths of a millionth per nanosecond: an integer, so nothing is rounded."""
    if price.node is not None:
        return price.node.count(resources) * price.node.hour * 1000 * 2**30
    if price.machines:
        return min(
            [_share_rate(each, resources) for each in price.machines if _holds(each, resources)], default=0
        )
    return (
        resources.cpu * price.cpu_hour * 2**30
        + resources.memory * price.memory_gib_hour * 1000
        + resources.gpu * price.gpu_hour * 1000 * 2**30
    )


def _holds(machine: NodeClass, resources: Resources) -> bool:
    """Return whether a task fits on an empty machine."""
    return resources.fits(machine.resources)


def _share_rate(machine: NodeClass, resources: Resources) -> int:
    """Return what the share of a task costs, in the unit of `rate_of`, rounded up."""
    return -(-machine.share(resources) * machine.hour * 1000 * 2**30 // WHOLE)


def pool_price(pool: Pool, egress_gb: int = 0) -> Price:
    """Return the price of a pool: tasks pay their share of its machines."""
    machines = tuple([NodeClass(each.key, each.resources, each.hour) for each in pool.offers])
    return Price(egress_gb=egress_gb, machines=machines)


def dearest(price: Price, shape: Shape) -> Price:
    """Return the price if each task gets the dearest machine that it fits on, which caps must hold."""
    if not price.machines:
        return price
    rate = 0
    for _, part in shape.parts:
        found = [_share_rate(each, part.resources) for each in price.machines if _holds(each, part.resources)]
        rate += max(found, default=0) * part.tasks
    return Price(egress_gb=price.egress_gb, job_hour=-(-rate // (1000 * 2**30)))


@lru_cache(maxsize=8192)
def rate_of_job(price: Price, shape: Shape) -> int:
    """Return the cost rate of all tasks of a job together, in the unit of `rate_of`."""
    if price.job_hour:
        return price.job_hour * 1000 * 2**30
    return sum([rate_of(price, part.resources) * part.tasks for _, part in shape.parts])


def egress_cost(price: Price, data: int) -> int:
    """Return the cost of bytes that leave a cluster, in millionths, rounded up."""
    return -(-data * price.egress_gb // GB)


def cost_of_job(spec: ClusterSpec, shape: Shape, ran: int, data: int = 0) -> int:
    """Return the cost of an attempt with all tasks, in millionths, rounded up; `data` bytes leave the cluster."""
    rate = rate_of_job(spec.price, shape)
    cost = -(-rate * billed(spec.billing, ran) // PER_RATE) if rate else 0
    if data:
        cost += egress_cost(spec.price, data)
    return cost if cost < MOST_COST else MOST_COST  # noqa: FURB136 - much faster than min(), for every job
