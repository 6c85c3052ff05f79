"""Clusters and what they cost."""

from enum import StrEnum

from msgspec import Struct

from spillover.model.ids import ClusterName
from spillover.model.resources import Resources
from spillover.model.units import HOUR, SECOND


class Role(StrEnum):
    """Whether capacity is there anyway or paid for by use."""

    OWNED = "owned"
    RENTED = "rented"


class Price(Struct, frozen=True, gc=False):
    """Millionths of the currency for an hour of each resource."""

    cpu_hour: int = 0
    """Of one whole CPU."""
    memory_gib_hour: int = 0
    gpu_hour: int = 0


class Billing(Struct, frozen=True, gc=False):
    """How use is rounded before it is priced."""

    step: int = SECOND
    """Nanoseconds; every started step is paid."""
    minimum: int = 0
    """Nanoseconds paid at the least."""


class ClusterSpec(Struct, frozen=True):
    """One cluster as configured."""

    name: ClusterName
    kind: str
    role: Role
    price: Price = Price()
    billing: Billing = Billing()


def cost_of(price: Price, billing: Billing, resources: Resources, ran: int) -> int:
    """What it costs to use resources for some nanoseconds, in millionths, rounded up."""
    if ran <= 0:
        billed = billing.minimum
    else:
        step = max(1, billing.step)
        billed = max(billing.minimum, -(-ran // step) * step)
    rate = (
        resources.cpu * price.cpu_hour * 2**30
        + resources.memory * price.memory_gib_hour * 1000
        + resources.gpu * price.gpu_hour * 1000 * 2**30
    )
    return -(-rate * billed // (1000 * 2**30 * HOUR))
