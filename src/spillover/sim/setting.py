"""What jobs are simulated on: clusters with their machines and prices, and the policies that decide.

`Setting` is the simple front of it: owned machines that are all alike, and as much rented capacity as anybody asks for.
"""

from typing import Final

from msgspec import Struct

from spillover.model.budget import Budget
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources

OWNED: Final = ClusterName("owned")
RENTED: Final = ClusterName("rented")
ENOUGH: Final = Resources(10**15, 2**62, 10**12)
"""What the one machine of the rented cluster has: more than any trace asks for."""


class FleetCapacity(Struct, frozen=True):
    """What owned machines can do at any moment."""

    units: int
    """GPUs, or thousandths of CPUs where no machine has GPUs; 0 if nobody stated any."""
    by_gpu: bool
    """Whether GPUs are counted."""


class Fleet(Struct, frozen=True):
    """Owned machines, all alike."""

    count: int
    node: Resources
    """What one machine has."""
    limits_cpu: bool = True
    """Whether CPUs were stated. If not, a machine has more than any job asks for, and they are not counted as capacity."""
    limits_memory: bool = True
    """Likewise of memory."""

    @property
    def capacity(self) -> FleetCapacity:
        """What all of them can do."""
        each = self.node.gpu or (self.node.cpu if self.limits_cpu else 0)
        return FleetCapacity(self.count * each, self.node.gpu > 0)


UNDIVIDED: Final = Fleet(1, ENOUGH)
"""A machine that is large enough for any job."""


class Rent(Struct, frozen=True):
    """Rented capacity, of which there is always enough."""

    price: Price
    billing: Billing = Billing()
    startup: int = 0
    """Nanoseconds from renting until the job runs: waiting, which is not billed."""


class FleetMachine(Struct, frozen=True):
    """One machine."""

    cluster: ClusterName
    name: NodeName
    capacity: Resources
    offers: tuple[str, ...] = ()
    """Words, sorted, that jobs may need."""


class Site(Struct, frozen=True):
    """Clusters and their machines, both in the order in which they are tried."""

    clusters: tuple[ClusterSpec, ...]
    machines: tuple[FleetMachine, ...]
    endless: frozenset[ClusterName] = frozenset()
    """Clusters whose one machine stands for as many as are needed: it has no name."""

    @property
    def rented(self) -> frozenset[ClusterName]:
        """Clusters that are paid for by use."""
        return frozenset(spec.name for spec in self.clusters if spec.role is Role.RENTED)

    @property
    def capacity(self) -> FleetCapacity:
        """What owned machines can do."""
        rented = self.rented
        owned = [machine.capacity for machine in self.machines if machine.cluster not in rented]
        gpus = sum(one.gpu for one in owned)
        return FleetCapacity(gpus or sum(one.cpu for one in owned), gpus > 0)


class Scene(Struct, frozen=True):
    """Everything but the jobs, on any clusters. What the scheduler is told about runtimes stands in the jobs."""

    site: Site
    policies: PolicySet
    """Those that decide first."""
    fleet: Fleet = UNDIVIDED
    """Machines that jobs are split over which do not say themselves how; as it is, none is split."""
    begin: int = 0
    """When machines and policies are there, nanoseconds of the jobs' time: not after the first job."""
    changes: tuple[tuple[int, PolicySet], ...] = ()
    """When other policies decide from then on, in order of time."""
    budgets: tuple[Budget, ...] = ()
    """Their periods are those of UTC, so with any the jobs' time has to be that too."""


class Setting(Struct, frozen=True):
    """Everything but the jobs, with two clusters, `owned` and `rented`."""

    fleet: Fleet
    rent: Rent
    policies: PolicySet

    @property
    def scene(self) -> Scene:
        """The same in full."""
        return Scene(site_of(self.fleet, self.rent), self.policies, self.fleet)


def site_of(fleet: Fleet, rent: Rent) -> Site:
    """Owned machines `n1`, `n2`, ... and one that stands for all that can be rented."""
    owned = ClusterSpec(OWNED, "agents", Role.OWNED, gangs=True)
    rented = ClusterSpec(
        RENTED, "agents", Role.RENTED, rent.price, rent.billing, gangs=True, startup=rent.startup
    )
    machines = [
        FleetMachine(OWNED, NodeName(f"n{number}"), fleet.node) for number in range(1, fleet.count + 1)
    ]
    machines.append(FleetMachine(RENTED, NodeName("rented"), ENOUGH))
    return Site((owned, rented), tuple(machines), frozenset({RENTED}))
