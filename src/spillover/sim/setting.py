"""Describes where jobs are simulated: clusters with machines and prices, and the policies.

`Setting` is the simple form: owned machines of one size, and unlimited rented capacity.
"""

from typing import Final

from msgspec import Struct

from spillover.model.budget import Budget
from spillover.model.cluster import Billing, ClusterSpec, Price, Role, pool_price
from spillover.model.ids import ClusterName, NodeName
from spillover.model.inside import Inside
from spillover.model.policy import PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.resources import Resources
from spillover.model.topology import Level
from spillover.sim.pools import SimulatedPool

OWNED: Final = ClusterName("owned")
RENTED: Final = ClusterName("rented")
ENOUGH: Final = Resources(10**15, 2**62, 10**12)
"""Capacity of the only machine of the rented cluster: more than any trace asks for."""


class FleetCapacity(Struct, frozen=True):
    """Total capacity of owned machines."""

    units: int
    """GPUs, or thousandths of CPUs if no machine has GPUs; 0 if none were given."""
    by_gpu: bool
    """Whether units are GPUs."""


class FleetMachine(Struct, frozen=True):
    """One machine."""

    cluster: ClusterName
    name: NodeName
    capacity: Resources
    offers: tuple[str, ...] = ()
    """Sorted words that jobs may need."""
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values; some say in which rack, or other vertex of a level, it is."""
    inside: Inside | None = None
    """Its sockets, cores, GPUs and links; None if unknown."""


class Fleet(Struct, frozen=True):
    """Owned machines of one size, of several kinds, or those of a resource graph."""

    count: int
    node: Resources
    """Capacity of one machine; of unlike machines, of the largest."""
    limits_cpu: bool = True
    """Whether CPUs were given. If not, a machine has more than any job asks for, and they do not count as capacity."""
    limits_memory: bool = True
    """The same for memory."""
    machines: tuple[FleetMachine, ...] = ()
    """Unlike machines, or those of a graph; empty if all are like `node`."""
    levels: tuple[Level, ...] = ()
    """The levels of a graph above its machines, the highest first."""
    without_gpus: Resources | None = None
    """Of unlike machines, the one with the most CPUs, over which jobs without GPUs are split; None if that is `node`."""

    @property
    def total(self) -> Resources:
        """What all machines have together; of what does not limit jobs, more than any asks for."""
        if not self.machines:
            return self.node.times(self.count)
        total = Resources()
        for machine in self.machines:
            total += machine.capacity
        return total

    @property
    def capacity(self) -> FleetCapacity:
        """Total capacity of all machines."""
        total = self.total
        return FleetCapacity(total.gpu or (total.cpu if self.limits_cpu else 0), total.gpu > 0)


UNDIVIDED: Final = Fleet(1, ENOUGH)
"""One machine that is large enough for any job."""


class Rent(Struct, frozen=True):
    """Rented capacity: unlimited, or machines of a pool."""

    price: Price
    billing: Billing = Billing()
    startup: int = 0
    """Nanoseconds from renting until the job runs; they count as wait and are not billed."""
    pool: SimulatedPool | None = None
    """Machines that are rented when needed, instead of unlimited capacity; None if capacity is unlimited."""


class ReservedNodes(Struct, frozen=True):
    """Owned machines that are reserved from the beginning: for a project, or for maintenance."""

    start: int
    """Nanoseconds on the clock of the jobs."""
    length: int
    """Nanoseconds."""
    count: int = 0
    """How many machines; 0 is all."""
    within: str = ""
    """The level of which one vertex has all machines; empty is any."""
    project: str = ""
    """The project whose jobs may run there; empty for maintenance."""


class Site(Struct, frozen=True):
    """Clusters and their machines, both in the order in which the scheduler tries them."""

    clusters: tuple[ClusterSpec, ...]
    machines: tuple[FleetMachine, ...]
    endless: frozenset[ClusterName] = frozenset()
    """Clusters with unlimited capacity: one unnamed machine stands for all."""
    pools: dict[ClusterName, SimulatedPool] = {}
    """How the providers of pools behave, by cluster."""

    @property
    def rented(self) -> frozenset[ClusterName]:
        """Clusters that are paid for by use."""
        return frozenset(spec.name for spec in self.clusters if spec.role is Role.RENTED)

    @property
    def capacity(self) -> FleetCapacity:
        """Total capacity of owned machines."""
        rented = self.rented
        owned = [machine.capacity for machine in self.machines if machine.cluster not in rented]
        gpus = sum(one.gpu for one in owned)
        return FleetCapacity(gpus or sum(one.cpu for one in owned), gpus > 0)


class Scene(Struct, frozen=True):
    """Everything but the jobs, on any clusters. Runtime estimates are part of the jobs."""

    site: Site
    policies: PolicySet
    """The policies at the beginning."""
    fleet: Fleet = UNDIVIDED
    """Machines over which to split jobs that do not specify their tasks; the default splits none."""
    begin: int = 0
    """Nanoseconds on the clock of the jobs at which machines and policies exist; not after the first job."""
    changes: tuple[tuple[int, PolicySet], ...] = ()
    """Changes of policies with their times, in order of time."""
    budgets: tuple[Budget, ...] = ()
    """Periods are in UTC, so with budgets the times of jobs must be in UTC too."""
    reserved: tuple[ReservedNodes, ...] = ()
    queues: tuple[QueueSpec, ...] = ()
    """Named queues; with any, every job must be of one of them and fit there."""


class Setting(Struct, frozen=True):
    """Everything but the jobs, on two clusters, `owned` and `rented`."""

    fleet: Fleet
    rent: Rent
    policies: PolicySet
    reserved: tuple[ReservedNodes, ...] = ()

    @property
    def scene(self) -> Scene:
        """Return the equivalent scene."""
        site = site_of(self.fleet, self.rent)
        return Scene(site, self.policies, self.fleet, reserved=self.reserved)


def site_of(fleet: Fleet, rent: Rent) -> Site:
    """Return a site with owned machines `n1`, `n2`, ..., or those of a graph, and one machine for all rented capacity.

    That machine is in one vertex of each level, but stands for any number of nodes. So it does not take jobs that care
    which nodes they get: those with words in `Shape.runs`.
    """
    owned = ClusterSpec(OWNED, "agents", Role.OWNED, gangs=True, levels=fleet.levels)
    rented = ClusterSpec(
        RENTED,
        "agents",
        Role.RENTED,
        rent.price,
        rent.billing,
        gangs=True,
        startup=rent.startup,
        runs=(),
        levels=fleet.levels,
    )
    machines = list(fleet.machines) or [
        FleetMachine(OWNED, NodeName(f"n{number}"), fleet.node) for number in range(1, fleet.count + 1)
    ]
    if rent.pool is not None:
        chosen = rent.pool.pool
        pooled = ClusterSpec(
            RENTED, "agents", Role.RENTED, pool_price(chosen), rent.billing, gangs=True, pool=chosen
        )
        return Site((owned, pooled), tuple(machines), pools={RENTED: rent.pool})
    everywhere = tuple([(level.label, RENTED) for level in fleet.levels])
    machines.append(FleetMachine(RENTED, NodeName("rented"), ENOUGH, labels=everywhere))
    return Site((owned, rented), tuple(machines), frozenset({RENTED}))
