"""Converts the pools of a server into simulated ones, whose machines are rented anew.

Machines that happen to be up now are no part of a simulated site: the simulation orders and ends its own. What a server
cannot tell is assumed, and `assumed` says what.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from spillover.model.budget import Per
from spillover.model.cluster import ClusterSpec, pool_price
from spillover.model.pools import Offer, Pool, PoolBudget
from spillover.model.resources import Resources
from spillover.model.units import MONEY, SECOND
from spillover.sim.pools import Boots, SimulatedPool
from spillover.wire.api import AgentView, MachineView, OfferView, PoolView

COST_OF_SHARES: Final = (
    "the cost of simulations is that of whole machines of pools, with their boots and idle time; "
    "what happened has what jobs paid, and the difference compares that alone"
)


def is_template(pool: PoolView) -> bool:
    """Return whether a pool makes whole clusters."""
    return any(each.nodes for each in pool.offers)


def made_by(cluster: str, pools: Collection[str]) -> bool:
    """Return whether a cluster was made by one of these pools: its name is that of a machine."""
    name, _, number = cluster.rpartition("-")
    return number.isdecimal() and name in pools


def rented_machines(pools: Sequence[PoolView]) -> set[tuple[str, str]]:
    """Return the agents of machines of pools, each with its cluster."""
    return {
        (pool.cluster, name)
        for pool in pools
        for each in pool.machines
        for name in (each.id, each.node or "")
    }


def simulated_pool(view: PoolView, agents: Sequence[AgentView]) -> SimulatedPool:
    """Return a pool as its server tells; `agents` are all of the server, in case that it does not tell what they offer."""
    offers = {offer.key: (each, offer) for each in view.offers for offer in [_offer(view, each, agents)]}
    boots = {
        key: Boots(round(each.boot_p50_s * SECOND), round(each.boot_p90_s * SECOND))
        for key, (each, _) in offers.items()
    }
    halves = sorted([each.half for each in boots.values()])
    budget = None
    if view.budget is not None and view.budget_per is not None:
        budget = PoolBudget(Per(view.budget_per), round(view.budget * MONEY))
    pool = Pool(
        view.provider,
        tuple([offer for _, offer in offers.values()]),
        view.min,
        view.max * max([each.nodes or 1 for each in view.offers], default=1),
        halves[len(halves) // 2] if halves else Pool(view.provider, ()).boot,
        idle=None if view.idle_s is None else round(view.idle_s * SECOND),
        budget=budget,
        rate=view.rate,
    )
    if view.join_within_s is not None:
        pool = replace(pool, join_within=round(view.join_within_s * SECOND))
    # A simulated machine that boots for long is no failed boot.
    longest = max([each.late for each in boots.values()], default=0)
    return SimulatedPool(replace(pool, join_within=max(pool.join_within, 4 * longest)), boots=boots)


def with_pool(spec: ClusterSpec, pool: Pool) -> ClusterSpec:
    """Return the cluster of a simulated pool."""
    price = pool_price(pool, spec.price.egress_gb)
    return replace(spec, kind="agents", price=price, startup=0, pool=pool)


def _offer(pool: PoolView, view: OfferView, agents: Sequence[AgentView]) -> Offer:
    words = _seen_words(pool, view, agents) if view.offers is None else view.offers
    # A node of a whole cluster pays its part of what the cluster costs besides its nodes.
    own = (view.cluster_hour or 0.0) / (view.nodes or 1)
    return Offer(
        view.type,
        Resources(round(view.cpu * 1000), view.memory, view.gpu),
        round((view.hour + own) * MONEY),
        view.zone,
        view.spot,
        words=tuple(sorted(words)),
        labels=view.labels or {},
    )


def _seen_words(pool: PoolView, offer: OfferView, agents: Sequence[AgentView]) -> Collection[str]:
    """Return the words of the machines of an offer that are up."""
    like = {each.node for each in pool.machines if _is_of(each, offer)}
    return {
        word for each in agents if each.cluster == pool.cluster and each.name in like for word in each.offers
    }


def _is_of(machine: MachineView, offer: OfferView) -> bool:
    return (machine.type, machine.zone, machine.spot) == (offer.type, offer.zone, offer.spot)


def assumed(pools: Sequence[PoolView]) -> Iterator[str]:
    """Yield what a back-test assumes of pools, for people, one line each."""
    if not pools:
        return
    names = ", ".join([each.cluster for each in pools])
    spot = (
        " and no spot machine is taken back"
        if any(each.spot for pool in pools for each in pool.offers)
        else ""
    )
    comma = "," if spot else " and"
    yield (
        f"machines of pools are rented anew ({names}), from none at the beginning, at the prices of now; they boot as the last "
        f"ones did, all of them join{comma} no order is refused{spot}"
    )
    yield COST_OF_SHARES
    whole = [each.cluster for each in pools if is_template(each)]
    if whole:
        yield (
            f"nodes of whole clusters are simulated as machines that boot and end alone, with their part of cluster_hour: "
            f"{', '.join(whole)}"
        )
    silent = [each.cluster for each in pools if each.join_within_s is None]
    if silent:
        yield (
            f"this server is of an earlier release and does not tell all about its pools; assumed without budget, rate and "
            f"idle: {', '.join(silent)}"
        )
    paused = [each.cluster for each in pools if each.paused is not None]
    if paused:
        yield f"paused now, but not in the simulation: {', '.join(paused)}"
