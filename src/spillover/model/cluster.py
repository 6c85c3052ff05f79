"""Clusters and what they cost."""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct, field

from spillover.model.bounds import MOST_COST
from spillover.model.ids import ClusterName
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import HOUR, SECOND

GB: Final = 10**9
"""Bytes that egress is priced by."""
AGENTS: Final = "agents"
"""The kind of clusters whose nodes run an agent of ours; all others are external."""
WITHOUT: Final = "without."
"""What an agent's label begins with that says why it does not offer a word, as `without.container`."""
PER_RATE: Final = 1000 * 2**30 * HOUR
"""What `rate_of`, times nanoseconds, is divided by to get millionths."""


class Role(StrEnum):
    """Whether capacity is there anyway or paid for by use."""

    OWNED = "owned"
    RENTED = "rented"


# A name of a module is found several times as fast as a member of an enumeration: what is asked for every job uses these.
OWNED: Final = Role.OWNED
RENTED: Final = Role.RENTED


class NodeClass(Struct, frozen=True, gc=False):
    """A kind of machine that is rented whole."""

    name: str
    resources: Resources
    """What one of them has; 0 of a resource says nothing about it."""
    hour: int
    """Millionths for an hour of one."""

    def count(self, asked: Resources) -> int:
        """How many a task pays for: whole ones, and one at the least."""
        have = self.resources
        return max(
            1,
            -(-asked.cpu // have.cpu) if have.cpu else 1,
            -(-asked.memory // have.memory) if have.memory else 1,
            -(-asked.gpu // have.gpu) if have.gpu else 1,
        )


class Price(Struct, frozen=True, gc=False, cache_hash=True):
    """Millionths of the currency for an hour of each resource, or of whole machines."""

    cpu_hour: int = 0
    """Of one whole CPU."""
    memory_gib_hour: int = 0
    gpu_hour: int = 0
    node: NodeClass | None = None
    """What is rented whole, in place of the prices above; None: those count."""
    egress_gb: int = 0
    """Millionths for each GB (10^9 bytes) that leaves the cluster."""


class Billing(Struct, frozen=True, gc=False):
    """How use is rounded before it is priced."""

    step: int = SECOND
    """Nanoseconds; every started step is paid."""
    minimum: int = 0
    """Nanoseconds paid at the least."""


class ClusterHealth(StrEnum):
    """How an external cluster is. Agents are known one by one: a cluster of them has no health of its own."""

    UNOBSERVED = "unobserved"
    """Nothing was seen of it since the server started."""
    READY = "ready"
    DEGRADED = "degraded"
    """It does not answer at present: what runs there goes on, nothing new is placed."""
    FAILED = "failed"
    """It has not answered for so long that its jobs do as their `on_cluster_failure` says."""
    CLEARING = "clearing"
    """It answers again after it had failed: what nobody waits for any more is deleted before anything is placed there."""


class ClusterLife(StrEnum):
    """Where a cluster is between being asked for and being gone. Only one that is ready is given work."""

    REQUESTED = "requested"
    """Somebody added it, and the server has not opened it yet."""
    CONNECTING = "connecting"
    """It is open; what is there was not seen since the server started, or is being cleared."""
    READY = "ready"
    DRAINING = "draining"
    """Somebody drained it, or it is being removed: what runs there goes on, nothing new is placed."""
    UNREACHABLE = "unreachable"
    """It does not answer."""
    GONE = "gone"
    """It was removed, and is in the book no more."""


class Leave(StrEnum):
    """What becomes of jobs on a cluster that is removed."""

    FINISH = "finish"
    """They end there; the cluster is removed after the last."""
    MOVE = "move"
    """They are stopped and go back to the queue."""
    CANCEL = "cancel"


class Taint(Struct, frozen=True, array_like=True, gc=False):
    """What keeps tasks off a node unless they tolerate it."""

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
    """Whether it runs jobs of several tasks, all at once and each task where there is room."""
    startup: int = 0
    """Nanoseconds between renting and running, while a machine starts: waiting, which is not billed."""
    region: str = ""
    """Where it is, in the words of whoever configured it; empty if nobody said."""
    labels: dict[str, str] = field(default_factory=dict)
    """Words of its own, which jobs may ask for."""
    runs: tuple[str, ...] | None = None
    """What it can do of what the `runs` of a shape may name; None is everything."""
    most: Resources | None = None
    """The most that our jobs may use of it at a time; 0 of a resource is no limit of it. None is no limit."""
    most_jobs: int | None = None
    """How many jobs of ours it takes at a time; None is any number."""

    @property
    def external(self) -> bool:
        """Whether others run it, so that what is known of it is what was seen."""
        return self.kind != AGENTS


def billed(billing: Billing, ran: int) -> int:
    """The nanoseconds that are paid for those that a job ran."""
    if ran <= 0:
        return billing.minimum
    step = max(1, billing.step)
    return max(billing.minimum, -(-ran // step) * step)


def rate_of(price: Price, resources: Resources) -> int:
    """What a task costs, in PER_RATE-ths of a millionth for each nanosecond: a whole number, so nothing is rounded before the end."""
    if price.node is not None:
        return price.node.count(resources) * price.node.hour * 1000 * 2**30
    return (
        resources.cpu * price.cpu_hour * 2**30
        + resources.memory * price.memory_gib_hour * 1000
        + resources.gpu * price.gpu_hour * 1000 * 2**30
    )


@lru_cache(maxsize=8192)
def rate_of_job(price: Price, shape: Shape) -> int:
    """What all tasks of a job cost together, as `rate_of` counts."""
    each = rate_of(price, shape.resources)
    if shape.rest is None:
        return each * shape.tasks
    return each * (shape.tasks - 1) + rate_of(price, shape.rest)


def egress_cost(price: Price, data: int) -> int:
    """What it costs that so many bytes leave a cluster, in millionths, rounded up."""
    return -(-data * price.egress_gb // GB)


def cost_of_job(spec: ClusterSpec, shape: Shape, ran: int, data: int = 0) -> int:
    """What an attempt costs there, all of its tasks together, in millionths, rounded up; `data` bytes leave the cluster."""
    rate = rate_of_job(spec.price, shape)
    cost = -(-rate * billed(spec.billing, ran) // PER_RATE) if rate else 0
    if data:
        cost += egress_cost(spec.price, data)
    return cost if cost < MOST_COST else MOST_COST  # noqa: FURB136 - several times as fast as min(), for every job
