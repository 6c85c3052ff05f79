"""Records of pools: their machines, what is closed or paused, what was learned, and what was paid."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events.base import PeriodRef
from spillover.model.cluster import PER_RATE, Billing, billed
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, node_key
from spillover.model.pools import JoinTerms, MachineId, MachineState, Offer, OfferKey, Pool, RefusalCause
from spillover.model.resources import Resources
from spillover.model.units import DAY, time_of

LIVE: Final = (
    MachineState.WANTED,
    MachineState.BOOTING,
    MachineState.READY,
    MachineState.DRAINING,
    MachineState.ENDING,
)
"""States in which a machine exists or may exist, so that it may cost something."""
_GOING: Final = frozenset({MachineState.DRAINING, MachineState.ENDING, MachineState.GONE})
COMING: Final = (MachineState.WANTED, MachineState.BOOTING)
"""States in which a machine was ordered and its agent has not joined."""
LONGEST_AWAY: Final = DAY
"""The most nanoseconds that a machine may join later because of clock jumps, such as an outage of the server."""
KEPT: Final = 100
"""How many machines that are gone or were refused the state keeps for each cluster, for people to see."""
BOOTS: Final = 16
"""How many recent boot times of an offer count."""
ENOUGH_BOOTS: Final = 3
"""Boot times that must be known before they replace the configured one."""
POOL: Final = "the pool"
"""Who drains machines and clusters that are given back, and adds whole clusters."""
HOUR_RATE: Final = 1000 * 2**30
"""Turns millionths for an hour into the unit of `model.cluster.rate_of`."""


class MachineHold(Struct, frozen=True, array_like=True):
    """An amount held for a machine in one period of the pool's budget."""

    period: PeriodRef
    amount: int
    """Millionths."""


class MachineBill(NamedTuple):
    """What a machine costs and for what, in millionths; `paid` is the sum of the others."""

    paid: int
    boot: int
    useful: int
    interrupted: int
    idle: int


class NodeSpan(Struct, frozen=True, array_like=True, gc=False):
    """Nodes that a whole cluster was told to have, since one time."""

    since: int
    """Nanoseconds UTC."""
    nodes: int
    job: JobId | None = None
    """The gang that they were added for; None if it was not for a gang."""


class Earmark(Struct, frozen=True, array_like=True):
    """That a plan counts on a machine for a gang which it was not ordered for."""

    gang: JobId
    at: int
    """When that was planned, nanoseconds UTC."""
    free_by: int
    """When all such machines of the gang are expected to have room for it, nanoseconds UTC."""
    cycle: int
    """The number of the cycle that planned it: several may do so at one time."""
    after: int
    """The number of the last machine before that plan. Machines that it ordered for the gang have higher ones."""


class RentedMachine(Struct, frozen=True, array_like=True):
    """A machine that the plan wanted, from its order to its end; or a whole cluster, if its offer has nodes."""

    id: MachineId
    cluster: ClusterName
    offer: Offer
    """As it was when it was ordered, with the price of that time."""
    state: MachineState
    since: int
    """When that state began, nanoseconds UTC."""
    wanted_at: int
    """When it was ordered, nanoseconds UTC."""
    join_by: int
    """When its agent must have joined, nanoseconds UTC."""
    job: JobId | None = None
    """The first job that it was ordered for; None for a machine that is always there."""
    group: str = ""
    """Machines of one gang, all or none; empty for others."""
    provider_id: str = ""
    """The provider's id; empty until it is known."""
    made_at: int | None = None
    """When it was created, and began to cost, nanoseconds UTC; None until that is known."""
    joined_at: int | None = None
    """When its agent joined first, nanoseconds UTC; None until then."""
    empty_since: int | None = None
    """Since when it is ready and has no tasks, nanoseconds UTC; None if it has some or is not ready."""
    notice: int | None = None
    """When its provider will take it back, nanoseconds UTC; None if it did not say so."""
    why: str = ""
    """Why it is in its state, for people; empty if that is obvious."""
    cause: RefusalCause | None = None
    """Why it was refused; None if it was not."""
    gone_at: int | None = None
    """When it stopped to cost, nanoseconds UTC; None until then."""
    cost: int = 0
    """Millionths that it cost; 0 until it is gone."""
    used: int = 0
    """Millionths of that which ended tasks paid for."""
    interrupted: int = 0
    """Millionths of `used` for attempts that its end interrupted."""
    holds: tuple[MachineHold, ...] = ()
    """What the pool's budget holds for it, the oldest first; empty without a budget."""
    held_until: int = 0
    """Until when those pay for it, nanoseconds UTC; 0 without a budget."""
    terms: JoinTerms = JoinTerms()
    """Those of the pool when it was ordered, so that each repetition of its order is the same."""
    token: str = ""
    """Id of the token that its agent got for its join token; empty until then."""
    life: str = ""
    """The agent process that got it; empty until then."""
    spans: tuple[NodeSpan, ...] = ()
    """The nodes of a whole cluster, the oldest first; empty for a machine."""
    dropped: int = 0
    """Millionths for nodes that a whole cluster does not have any more."""
    emptied: dict[NodeName, int] = {}
    """Since when nodes of a whole cluster have no tasks, nanoseconds UTC; those that had none yet are left out."""
    jumped: int = 0
    """Nanoseconds of all clock jumps before its order, as `Facts.jumped` had them."""
    earmark: Earmark | None = None
    """The last gang that a plan kept it for besides that of `group`; None if there was none."""

    @property
    def is_cluster(self) -> bool:
        """Whether it is a whole cluster."""
        return self.offer.nodes > 0

    @property
    def cluster_made(self) -> ClusterName:
        """The name of the whole cluster that it is."""
        return ClusterName(self.id)

    @property
    def nodes(self) -> int:
        """How many nodes a whole cluster is to have; 0 for a machine."""
        return sum([each.nodes for each in self.spans])

    @property
    def hour(self) -> int:
        """What an hour costs of it as it is, in millionths."""
        return self.offer.cluster_hour + self.nodes * self.offer.hour if self.is_cluster else self.offer.hour

    @property
    def key(self) -> NodeKey:
        """The key of its node, which exists once its agent has joined."""
        return node_key(self.cluster, NodeName(self.id))

    @property
    def is_live(self) -> bool:
        """Whether it exists or may exist."""
        return self.state in LIVE

    @property
    def is_going(self) -> bool:
        """Whether it is not to stay: the plan or its provider ends it, or did."""
        return self.notice is not None or self.state in _GOING

    @property
    def is_busy(self) -> bool:
        """Whether it is ready and has tasks; a whole cluster never counts as busy, because its nodes come and go."""
        return self.state is MachineState.READY and self.empty_since is None and not self.is_cluster

    @property
    def is_coming(self) -> bool:
        """Whether it was ordered and is not ready."""
        return self.state in COMING

    def joins_until(self, jumped: int) -> int:
        """Return until when its agent may join, nanoseconds UTC: `join_by`, later by the clock jumps since its order.

        `jumped` is the sum of all jumps so far. Nobody can join while the server is away, so that time does not count.
        However, a join token is not valid for ever.
        """
        return self.join_by + min(jumped - self.jumped, LONGEST_AWAY)

    def bill(self, billing: Billing, until: int) -> int:
        """Return what it costs if it is gone by a time, in millionths, rounded up."""
        return 0 if self.made_at is None else self.bill_since(self.made_at, billing, until)

    def bill_since(self, began: int, billing: Billing, until: int) -> int:
        """Return what it costs if it costs something from one time to another, in millionths, rounded up."""
        if not self.is_cluster:
            return machine_cost(self.offer, billing, until - began)
        own = hour_cost(self.offer.cluster_hour, billing, until - began)
        spans = [(max(began, each.since), each.nodes) for each in self.spans]
        nodes = [
            count * machine_cost(self.offer, billing, until - since)
            for since, count in spans
            if since < until
        ]
        return own + self.dropped + sum(nodes)

    def sized(self, nodes: int, billing: Billing, at: int, job: JobId | None = None) -> "RentedMachine":
        """Return a whole cluster with another number of nodes. Those that came last go first."""
        if nodes >= self.nodes:
            return replace(self, spans=(*self.spans, NodeSpan(at, nodes - self.nodes, job)))
        left, spans, dropped = self.nodes - nodes, list(self.spans), self.dropped
        while left:
            last = spans.pop()
            gone = min(left, last.nodes)
            since = last.since if self.made_at is None else max(self.made_at, last.since)
            dropped += gone * machine_cost(self.offer, billing, at - since)
            left -= gone
            if gone < last.nodes:
                spans.append(replace(last, nodes=last.nodes - gone))
        return replace(self, spans=tuple(spans), dropped=dropped)

    def bill_parts(self, billing: Billing, until: int, used: int = 0, interrupted: int = 0) -> MachineBill:
        """Return what it costs if it is gone by a time, and for what; present attempts pay `used` and `interrupted`."""
        paid = self.bill(billing, until)
        if self.joined_at is None or self.made_at is None:
            return MachineBill(paid, paid, 0, 0, 0)
        boot = min(paid, self.bill(Billing(step=1), self.joined_at))
        used = min(paid - boot, self.used + used + interrupted)
        interrupted = min(used, self.interrupted + interrupted)
        return MachineBill(paid, boot, used - interrupted, interrupted, paid - boot - used)


class ClosedOffer(Struct, frozen=True, array_like=True):
    """An offer that is not ordered for a while, because the provider refused it."""

    until: int
    """Nanoseconds UTC."""
    times: int
    """How many refusals in a row."""
    cause: RefusalCause
    why: str
    """In the words of the provider."""


class SeenOffer(Struct, frozen=True, array_like=True):
    """What the last machine of an offer turned out to be, when its agent joined."""

    resources: Resources
    words: tuple[str, ...]
    """Words that the agent offers, sorted."""
    labels: dict[str, str]


class PoolRecord(Struct, frozen=True, array_like=True):
    """What is known about a pool besides its configuration."""

    cluster: ClusterName
    key: bytes = b""
    """Makes the join tokens of its machines; drawn when the pool was first opened."""
    paused: str = ""
    """Why nothing is ordered until somebody resumes the pool; empty if it is not paused."""
    paused_by: str = ""
    """The person who paused it; `spillover` if the server did."""
    paused_at: int = 0
    """Nanoseconds UTC."""
    failed_boots: int = 0
    """Machines in a row that did not join in time."""
    closed: dict[OfferKey, ClosedOffer] = {}
    boots: dict[OfferKey, tuple[int, ...]] = {}
    """The last boot times of each offer, from order to ready, in nanoseconds."""
    prices: dict[OfferKey, int] = {}
    """Present prices of spot offers, in millionths for an hour; others have the configured one."""
    ordered: tuple[int, ...] = ()
    """When the last machines were ordered, nanoseconds UTC, if the pool limits its rate."""
    terms: JoinTerms = JoinTerms()
    """For machines that are ordered from now on."""
    seen: dict[OfferKey, SeenOffer] = {}
    """What machines of each offer turned out to be."""

    def boot(self, pool: Pool, offer: OfferKey, part: int = 50) -> int:
        """Return the nanoseconds in which this percentage of boots of an offer were ready."""
        seen = sorted(self.boots.get(offer, ()))
        if len(seen) < ENOUGH_BOOTS:
            return max([pool.boot, *seen]) if part > 50 else pool.boot
        return seen[min(len(seen) - 1, len(seen) * part // 100)]

    def node_boot(self, pool: Pool, offer: OfferKey) -> int:
        """Return the nanoseconds after which half of the nodes were ready that whole clusters of an offer grew by."""
        key = node_boots(offer)
        return self.boot(pool, key if key in self.boots else offer)

    def hour(self, offer: Offer) -> int:
        """Return the present price of an offer, in millionths for an hour."""
        return self.prices.get(offer.key, offer.hour) if offer.spot else offer.hour

    def is_closed(self, offer: OfferKey, now: int) -> bool:
        """Return whether an offer is not ordered at present."""
        found = self.closed.get(offer)
        return found is not None and found.until > now


EARLIER: Final = "earlier"
"""Stands for the date of all days that are not kept one by one any longer."""


class PoolSpend(Struct, frozen=True, array_like=True):
    """What machines of a pool cost that were gone on one day."""

    key: str
    """CLUSTER/DATE, or CLUSTER/earlier: counters of costs must not decrease when days are dropped."""
    machines: int = 0
    paid: int = 0
    """Millionths for all of their time, which is the sum of the following."""
    boot: int = 0
    """Until they were ready, or all of it if they never were."""
    useful: int = 0
    """For attempts that ended on their own."""
    interrupted: int = 0
    """For attempts that the end of their machine interrupted."""
    idle: int = 0
    """The rest."""

    @property
    def cluster(self) -> ClusterName:
        """The cluster of the pool."""
        return ClusterName(self.key.rpartition("/")[0])

    @property
    def day(self) -> int | None:
        """The beginning of the day, nanoseconds UTC; None for all earlier ones."""
        date = self.key.rpartition("/")[2]
        return None if date == EARLIER else time_of(datetime.fromisoformat(date).replace(tzinfo=UTC))

    def with_others(self, machines: int, bill: MachineBill) -> "PoolSpend":
        """Return the sum with what other machines cost."""
        return PoolSpend(
            self.key,
            self.machines + machines,
            self.paid + bill.paid,
            self.boot + bill.boot,
            self.useful + bill.useful,
            self.interrupted + bill.interrupted,
            self.idle + bill.idle,
        )

    @property
    def bill(self) -> MachineBill:
        """What they cost together, and for what."""
        return MachineBill(self.paid, self.boot, self.useful, self.interrupted, self.idle)


def machine_cost(offer: Offer, billing: Billing, time: int) -> int:
    """Return what a machine, or a node of a whole cluster, costs for a time, in millionths, rounded up."""
    return hour_cost(offer.hour, billing, time)


def hour_cost(hour: int, billing: Billing, time: int) -> int:
    """Return what costs so much an hour for a time, in millionths, rounded up."""
    return -(-hour * HOUR_RATE * billed(billing, time) // PER_RATE)


def node_boots(offer: OfferKey) -> OfferKey:
    """Return the key of the boot times of nodes that are added to whole clusters of an offer."""
    return OfferKey(f"{offer}/node")
