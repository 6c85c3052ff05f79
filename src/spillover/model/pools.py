"""Pools: machines that the plan rents from a provider, and gives back.

A pool belongs to a rented cluster of agents. It has *offers*, each a type of machine in one zone and market. A *machine*
is rented under one offer, has an id of ours, and lives as the table `MACHINE` of `core.transitions` says.
"""

from enum import StrEnum
from typing import Final, NewType

from msgspec import Struct
from msgspec.structs import replace

from spillover.model.budget import Per
from spillover.model.resources import Resources
from spillover.model.units import MINUTE
from spillover.model.where import NodeTerm, Requirement, Rules

MachineId = NewType("MachineId", str)
"""CLUSTER-NUMBER: unique in the state, never used again, and the name of the machine's agent."""
OfferKey = NewType("OfferKey", str)
"""TYPE/ZONE/MARKET of an offer, unique in its pool."""
ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
"""The two markets. A spot machine is cheaper, and its provider may take it back."""

TYPE_LABEL: Final = "spillover.dev/type"
ZONE_LABEL: Final = "spillover.dev/zone"
MARKET_LABEL: Final = "spillover.dev/market"
"""Labels that the agent of each machine has, so that jobs can ask for them and levels can be made of them."""


class MachineState(StrEnum):
    """The life of a rented machine."""

    WANTED = "wanted"
    """The plan wants it. The provider was or will be asked, and may have made it already."""
    BOOTING = "booting"
    """The provider made it. Its agent has not joined."""
    READY = "ready"
    """Its agent has joined."""
    DRAINING = "draining"
    """It gets no more tasks, and is ended once it has none."""
    ENDING = "ending"
    """The provider was or will be asked to destroy it."""
    GONE = "gone"
    """It does not exist any more, so it costs nothing from now on."""
    REFUSED = "refused"
    """The provider did not make it, and never will under this order."""


class RefusalCause(StrEnum):
    """Why a provider surely did not make a machine."""

    CAPACITY = "capacity"
    """It has no such machines at present."""
    QUOTA = "quota"
    """The account may not have more of them."""
    INVALID = "invalid"
    """It does not accept the order, and will not accept it later."""
    AUTH = "auth"
    """It does not accept our credentials."""
    LOST = "lost"
    """There was no answer, and the machine is in no listing."""


class Offer(Struct, frozen=True, array_like=True):
    """A type of machine that can be rented in one zone and one market."""

    type: str
    """The provider's name of the type, such as m7i.xlarge."""
    resources: Resources
    """What tasks can use of one machine."""
    hour: int
    """Millionths for an hour of one machine."""
    zone: str = ""
    """The provider's name of the zone; empty if it has none or chooses."""
    spot: bool = False
    """Whether the provider may take the machine back."""
    family: str = ""
    """Types that share a quota; empty if the type has its own."""
    words: tuple[str, ...] = ()
    """Words that its agent offers, sorted."""
    labels: dict[str, str] = {}
    """Labels of its agent."""
    nodes: int = 0
    """The most nodes of a whole cluster, each with these resources and this price; 0 for a machine."""
    least: int = 0
    """The fewest nodes of such a cluster."""
    cluster_hour: int = 0
    """Millionths for an hour of such a cluster, besides its nodes."""

    @property
    def market(self) -> str:
        """The market, `spot` or `on-demand`."""
        return SPOT if self.spot else ON_DEMAND

    @property
    def agent_labels(self) -> dict[str, str]:
        """Labels that its agent has: those configured, and where it is from."""
        return {TYPE_LABEL: self.type, ZONE_LABEL: self.zone, MARKET_LABEL: self.market, **self.labels}

    @property
    def key(self) -> OfferKey:
        """Unique in its pool."""
        return OfferKey(f"{self.type}/{self.zone}/{self.market}")


class JoinTerms(Struct, frozen=True, array_like=True):
    """What the agents of new machines are told, besides what differs for each machine."""

    server: str = ""
    """HOST:PORT at which agents reach the server; empty until the pool is opened."""
    pin: str = ""
    """SHA-256 of the server's certificate, hexadecimal; empty if the server has no TLS."""
    alone_for: int = 0
    """Nanoseconds without a server and without tasks after which a machine turns itself off; 0 is never."""
    notices: str = ""
    """How agents learn that their machine will be taken back; empty if they cannot."""


class PoolBudget(Struct, frozen=True, array_like=True, gc=False):
    """The most that the machines of a pool may cost in a period."""

    per: Per
    limit: int
    """Millionths."""


class Pool(Struct, frozen=True, array_like=True):
    """How a cluster rents its machines, as configured."""

    provider: str
    """Name of the provider."""
    offers: tuple[Offer, ...]
    """One for each type, zone and market."""
    min: int = 0
    """Machines that are always there."""
    max: int = 1
    """The most machines at a time, of those that may cost anything."""
    boot: int = 90 * 10**9
    """Expected nanoseconds from order to ready, until enough boots were seen."""
    join_within: int = 10 * MINUTE
    """Nanoseconds from its order in which the agent must join; after that the machine is ended."""
    idle: int | None = None
    """Nanoseconds that an empty machine stays; None: to the end of what is paid, or one boot time."""
    budget: PoolBudget | None = None
    """None is no limit."""
    rate: int = 0
    """The most machines ordered in a minute; 0 is no limit."""
    alone_for: int = 30 * MINUTE
    """Nanoseconds without a server and without tasks after which a machine turns itself off."""

    def offer(self, key: OfferKey) -> Offer | None:
        """Return an offer by its key; None if the pool has none with it."""
        return next((each for each in self.offers if each.key == key), None)


def not_on_spot(rules: Rules | None) -> Rules:
    """Return rules that also keep a job off spot machines. Machines that nobody rents have no market, and are allowed."""
    apart = Requirement(MARKET_LABEL, "NotIn", (SPOT,))
    known = rules or Rules()
    terms = known.affinity or (NodeTerm(),)
    return replace(known, affinity=tuple([replace(each, labels=(*each.labels, apart)) for each in terms]))


def machine_id(cluster: str, number: int) -> MachineId:
    """Return the id of the machine with this number."""
    return MachineId(f"{cluster}-{number}")


def machine_number(machine: MachineId) -> int:
    """Return the number in the id of a machine; 0 if it has none, because it was found without its tag."""
    number = machine.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) <= 18 else 0
