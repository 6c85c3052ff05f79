"""What jobs are simulated on: owned machines, prices of rented ones, and the policies that decide."""

from typing import Final

from msgspec import Struct

from spillover.model.cluster import Billing, Price
from spillover.model.ids import ClusterName
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources

OWNED: Final = ClusterName("owned")
RENTED: Final = ClusterName("rented")


class Fleet(Struct, frozen=True):
    """Owned machines, all alike."""

    count: int
    node: Resources
    """What one machine has."""
    limits_cpu: bool = True
    """Whether CPUs were stated. If not, a machine has more than any job asks for, and they are not counted as capacity."""
    limits_memory: bool = True
    """Likewise of memory."""


class Rent(Struct, frozen=True):
    """Rented capacity, of which there is always enough."""

    price: Price
    billing: Billing = Billing()
    startup: int = 0
    """Nanoseconds from renting until the job runs: waiting, which is not billed."""


class Setting(Struct, frozen=True):
    """Everything but the jobs. What the scheduler is told about runtimes stands in the jobs."""

    fleet: Fleet
    rent: Rent
    policies: PolicySet
