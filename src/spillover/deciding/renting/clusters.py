"""Plans whole clusters: which to order, and how many nodes each has.

A whole cluster takes longer to make than a machine, and costs something besides its nodes. So it is only planned for jobs
that no machine of a pool takes. Such a job first gets room on nodes that this plan adds already, then on another node of
a cluster that is there or coming, and only then in a new cluster. A gang gets all its nodes in one cluster. Nodes that
were empty for as long as it pays are dropped, and a cluster without jobs is given back like a machine.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events import AnyEvent, ClusterSized, MachineHeld, MachinesWanted, Wish
from spillover.core.records.jobs import Job
from spillover.core.records.machines import POOL, NodeSpan, RentedMachine
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.deciding.capacity.amounts import change
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.renting.demand import Demand
from spillover.deciding.renting.money import PoolMoney
from spillover.deciding.renting.offers import OpenOffer
from spillover.model.cluster import ClusterHealth, ClusterSpec, billed
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.pools import MachineState, Pool, machine_id
from spillover.model.units import FOREVER, MINUTE

SETTLED = 2 * MINUTE
"""How long after a cluster grew calls may be under way that name nodes to drop."""
GROWING = (MachineState.WANTED, MachineState.BOOTING, MachineState.READY)
"""States in which a whole cluster may get more nodes."""


class _Site:
    """A cluster that is there, coming, or ordered by this plan."""

    def __init__(self, offer: OpenOffer, machine: RentedMachine, *, new: bool) -> None:
        self.offer = offer
        self.machine = machine
        """As it will be after this plan."""
        self.new = new
        self.grown = False
        self.added: list[Machine] = []
        """Nodes that this plan adds, with what is left of them."""
        self.gang: JobId | None = None
        """The gang that the plan adds nodes for; None if there is none."""
        self.hold: MachineHeld | None = None
        """What the budget of its pool holds for it with this plan; None if nothing."""


class ClusterPlan(Struct):
    """What becomes of whole clusters."""

    events: list[AnyEvent]
    held: dict[ClusterName, list[MachineHeld]]
    """What the budgets of pools hold for them, by template."""
    numbers: int
    """The number of the last machine."""
    join_by: int = FOREVER
    """When the first of the new ones must have joined, nanoseconds UTC."""


class ClusterPlanner:
    """Plans the whole clusters of all templates in one cycle."""

    def __init__(
        self,
        state: State,
        offers: Sequence[OpenOffer],
        left: dict[ClusterName, int],
        money: dict[ClusterName, PoolMoney],
        numbers: int,
        now: int,
        needed: Mapping[str, None],
    ) -> None:
        self._state = state
        self._needed = needed
        """Names of the nodes that jobs are about to take."""
        self._offers = [each for each in offers if each.offer.nodes]
        self._left = left
        """How many more clusters each template may order."""
        self._money = money
        self._numbers = numbers
        self._now = now
        keys = {(each.spec.name, each.offer.key): each for each in self._offers}
        self._sites = [
            _Site(keys[each.cluster, each.offer.key], each, new=False)
            for each in state.machines.values()
            if each.is_cluster
            and each.state in GROWING
            and (each.cluster, each.offer.key) in keys
            and not has_failed(state, each)
        ]

    def plan(self, demand: Sequence[Demand], missing: dict[ClusterName, int]) -> ClusterPlan:
        """Add nodes and clusters for jobs, in order, after those that a template always has and that are missing."""
        plan = ClusterPlan([], {}, self._numbers)
        for name, count in missing.items():
            for _ in range(count):
                own = [(each, each.offer.least) for each in self._offers if each.spec.name == name]
                if (found := self._cheapest(own, 0)) is not None:
                    self._new(*found)
        for each in demand if self._offers else ():
            if each.job.kind.shape.is_gang:
                if each.count and self._gang(each):
                    each.count = 0
                continue
            while each.count and (self._fill(each) or self._grow(each) or self._order(each)):
                each.count -= 1
        for site in [site for site in self._sites if site.new or site.grown]:
            self._settle(site, plan)
        plan.numbers = self._numbers
        return plan

    # --- jobs of one task

    def _fill(self, demand: Demand) -> bool:
        """Let a job take room on a node that this plan adds; return whether there was any."""
        shape = demand.job.kind.shape
        for site in self._sites:
            if not site.added or not site.offer.admits(demand.job, demand.slack):
                continue
            for node in site.added:
                if node.fits(shape):
                    change(node.free, node.asks(shape, node.layout.wants(shape.resources)), -1)
                    return True
        return False

    def _grow(self, demand: Demand) -> bool:
        """Add a node for a job to the cluster with the cheapest nodes; return whether one can have it."""
        sites = [
            site
            for site in self._sites
            if site.offer.admits(demand.job, demand.slack) and self._may_grow(site, 1)
        ]
        if not sites:
            return False
        site = min(sites, key=lambda each: each.offer.offer.hour)
        self._add(site, 1)
        return self._fill(demand)

    def _order(self, demand: Demand) -> bool:
        """Order a cluster for a job, the cheapest for its runtime; return whether one can be ordered."""
        offer = self._cheapest([(each, 1) for each in self._admitting(demand)], demand.runs)
        if offer is None:
            return False
        self._new(*offer, demand.job)
        return self._fill(demand)

    # --- gangs

    def _gang(self, demand: Demand) -> bool:
        """Add nodes for all tasks of a gang to one cluster, or order one; return whether it gets them."""
        shape, job = demand.job.kind.shape, demand.job.id
        if any(_is_for(site.machine, job, site.offer, self._now) for site in self._sites):
            return True  # they were ordered already
        needed = {each: each.machines_for(shape) for each in self._admitting(demand)}
        sites = [
            (site, more)
            for site in self._sites
            if (count := needed.get(site.offer, 0))
            and (more := count - self._empty_nodes(site)) > 0
            and self._may_grow(site, more)
        ]
        if sites:
            site, more = min(sites, key=lambda each: each[0].offer.offer.hour * each[1])
            site.gang = job
            self._add(site, more, job)
            site.added.clear()  # all of them are for the gang
            return True
        found = self._cheapest([(each, count) for each, count in needed.items() if count], demand.runs)
        if found is None:
            return False
        self._new(*found, demand.job).added.clear()
        return True

    def _empty_nodes(self, site: _Site) -> int:
        """Return how many nodes of a cluster have no tasks and are not about to get any, as far as this plan knows."""
        if site.new or site.machine.state is not MachineState.READY or site.gang is not None:
            return 0
        nodes = self._state.nodes_of(site.machine.cluster_made)
        return sum(not each.holding and not each.drained and each.name not in self._needed for each in nodes)

    # --- clusters

    def _admitting(self, demand: Demand) -> list[OpenOffer]:
        return [each for each in self._offers if each.admits(demand.job, demand.slack)]

    def _may_grow(self, site: _Site, nodes: int) -> bool:
        """Return whether a cluster may have more nodes, by its offer and by the budget of its pool."""
        if site.machine.nodes + nodes > site.offer.offer.nodes:
            return False
        return self._money[site.offer.spec.name].pays_cluster(self._grown(site, nodes), site.offer, site.hold)

    def _grown(self, site: _Site, nodes: int, job: JobId | None = None) -> RentedMachine:
        machine = site.machine
        if site.new:
            spans = (replace(machine.spans[0], nodes=machine.nodes + nodes),)
            return replace(machine, spans=spans)
        return machine.sized(machine.nodes + nodes, site.offer.spec.billing, self._now, job)

    def _add(self, site: _Site, nodes: int, job: JobId | None = None) -> None:
        site.machine, site.grown = self._grown(site, nodes, job), True
        self._hold(site)
        site.added += [site.offer.empty() for _ in range(nodes)]

    def _hold(self, site: _Site) -> None:
        """Hold what a cluster will cost as it is now, instead of what the plan held before."""
        site.hold = self._money[site.offer.spec.name].hold_cluster(site.machine, site.offer, site.hold)

    def _cheapest(self, offers: list[tuple[OpenOffer, int]], runs: int) -> tuple[OpenOffer, int] | None:
        """Return the offer, and its first number of nodes, that costs least for a runtime; None if none may be ordered."""
        best: tuple[int, OpenOffer, int] | None = None
        for each, nodes in offers:
            size = max(nodes, each.offer.least, 1)
            if size > each.offer.nodes or self._left.get(each.spec.name, 0) < 1:
                continue
            machine = self._imagined(each, size, None)
            cost = machine.bill_since(self._now, each.spec.billing, self._now + each.boot + runs)
            if self._money[each.spec.name].pays_cluster(machine, each) and (best is None or cost < best[0]):
                best = (cost, each, size)
        return None if best is None else best[1:]

    def _imagined(self, offer: OpenOffer, nodes: int, job: JobId | None, group: str = "") -> RentedMachine:
        spec, now = offer.spec, self._now
        return RentedMachine(
            machine_id(spec.name, self._numbers),
            spec.name,
            offer.offer,
            MachineState.WANTED,
            now,
            now,
            now + offer.pool.join_within,
            job,
            group,
            spans=(NodeSpan(now, nodes),),
        )

    def _new(self, offer: OpenOffer, nodes: int, job: Job | None = None) -> _Site:
        """Order a cluster for a job, or one that is always there."""
        self._numbers += 1
        self._left[offer.spec.name] -= 1
        group = job.id if job is not None and job.kind.shape.is_gang else ""
        site = _Site(offer, self._imagined(offer, nodes, None if job is None else job.id, group), new=True)
        site.added = [offer.empty() for _ in range(nodes)]
        self._sites.append(site)
        self._hold(site)
        return site

    def _settle(self, site: _Site, plan: ClusterPlan) -> None:
        """Add the events of a cluster, and hold what it will cost."""
        machine, spec = site.machine, site.offer.spec
        if site.new:
            wish = Wish(machine.id, machine.offer, machine.join_by, machine.job, machine.group, machine.nodes)
            plan.events.append(MachinesWanted(spec.name, self._now, (wish,)))
            plan.join_by = min(plan.join_by, machine.join_by)
        else:
            # Nodes that are to be dropped do not stay: the provider may have been told already.
            drop = dropping(self._state, machine)
            plan.events.append(_sized(machine, self._now, drop, site.gang))
        if site.hold is not None:
            plan.held.setdefault(spec.name, []).append(site.hold)


def has_failed(state: State, machine: RentedMachine) -> bool:
    """Return whether a whole cluster was unreachable for so long that nothing is expected of it any more."""
    return state.health(machine.cluster_made) is ClusterHealth.FAILED


def has_nodes_for(state: State, job: JobId, offers: Sequence[OpenOffer], now: int) -> bool:
    """Return whether nodes of a whole cluster are coming, or have just come, that a gang was promised."""
    known = {(each.spec.name, each.offer.key): each for each in offers if each.offer.nodes}
    return any(
        (offer := known.get((each.cluster, each.offer.key))) is not None and _is_for(each, job, offer, now)
        for name in dict.fromkeys([name for name, _ in known])
        for each in state.unsettled_machines(name)
        if each.is_cluster and each.state in GROWING
    )


def _is_for(machine: RentedMachine, job: JobId, offer: OpenOffer, now: int) -> bool:
    """Return whether a cluster has nodes for a gang that it has not lost to others meanwhile, as far as time tells."""
    if machine.group == job and machine.state is not MachineState.READY:
        return True
    return any(each.job == job and now < each.since + 2 * offer.boot for each in machine.spans)


def shrink(
    state: State,
    spec: ClusterSpec,
    pool: Pool,
    machines: Sequence[RentedMachine],
    needed: dict[str, None],
    now: int,
) -> tuple[list[AnyEvent], int]:
    """Return the clusters that become smaller, and when to look again, nanoseconds UTC."""
    events: list[AnyEvent] = []
    again = FOREVER
    for machine in machines:
        nodes = state.nodes_of(machine.cluster_made)
        spare = machine.nodes - max(1, machine.offer.least)
        if machine.state is not MachineState.READY or len(nodes) != machine.nodes:
            continue  # some come or go already
        if dropping(state, machine):
            # It has grown before it was told to drop these, unless that was just now, so they stay.
            settled = machine.spans[-1].since + SETTLED
            if now >= settled:
                events.append(_sized(machine, now, ()))
            else:
                again = min(again, settled)
            continue
        if spare <= 0:
            continue
        due = [
            (_leaves_at(state, spec, pool, machine, each, now), -each.number, each.name)
            for each in nodes
            if not each.holding and each.name not in needed
        ]
        gone = sorted([each for each in due if each[0] <= now], key=lambda each: each[1:])[:spare]
        again = min([again, *[at for at, _, _ in due if at > now]])
        if gone:
            drop = tuple([name for _, _, name in gone])
            events.append(_sized(machine.sized(machine.nodes - len(drop), spec.billing, now), now, drop))
    return events, again


def _leaves_at(
    state: State, spec: ClusterSpec, pool: Pool, machine: RentedMachine, node: Node, now: int
) -> int:
    """Return when an empty node of a cluster is dropped: as machines are given back."""
    came = max(machine.joined_at or 0, machine.spans[-1].since)
    boot = state.pool(spec.name).node_boot(pool, machine.offer.key)
    empty = max(came + boot, machine.emptied.get(node.name, came))
    if pool.idle is not None:
        return empty + pool.idle
    if spec.billing.step <= boot:
        return empty + boot
    paid = billed(spec.billing, max(empty, now) - came)
    return came + paid - min(boot, spec.billing.step // 10)


def _sized(
    machine: RentedMachine, now: int, drop: Sequence[NodeName], job: JobId | None = None
) -> ClusterSized:
    return ClusterSized(machine.id, now, machine.cluster, machine.nodes, tuple(drop), job, machine.dropped)


def dropping(state: State, machine: RentedMachine) -> tuple[NodeName, ...]:
    """Return the nodes that a cluster was told to drop and still has."""
    return tuple([node.name for node in state.nodes_of(machine.cluster_made) if node.drained == POOL])
