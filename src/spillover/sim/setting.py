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
    """Whether CPUs were stated. If not, a machine has as many as any job could ask for, and none are counted as capacity."""


class Rent(Struct, frozen=True):
    """Rented capacity, of which there is always enough."""

    price: Price
    billing: Billing = Billing()
    startup: int = 0
    """Nanoseconds from renting until the job runs; billed."""


class Setting(Struct, frozen=True):
    """Everything but the jobs. What the scheduler is told about runtimes stands in the jobs."""

    fleet: Fleet
    rent: Rent
    policies: PolicySet
