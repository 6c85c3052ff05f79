"""Plans the machines of all pools, after jobs were placed.

`rent` has these steps: collect the jobs that may be rented and found no place; let machines that are there or coming take
those that they can take in time; keep drained machines that the others could use; order machines for the rest; give back
machines that nothing needs; and hold what the budgets of pools pay. It returns events, as the rest of a plan becomes
events too, and the time at which it must run again although nothing happened.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from spillover.core.deciders import machines as deciders
from spillover.core.deciders import whole_clusters
from spillover.core.deciders.machines import SPILLOVER
from spillover.core.events import (
    AgentResumed,
    AnyEvent,
    ClusterSized,
    MachineHeld,
    MachinesDraining,
    MachinesEarmarked,
    MachinesHeld,
    MachinesKept,
    MachinesWanted,
    PoolPaused,
    Wish,
)
from spillover.core.records.machines import POOL, RentedMachine
from spillover.core.state import State
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.cycle.plan import Placement
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.clusters import ClusterPlan, ClusterPlanner, has_failed, has_nodes_for, shrink
from spillover.deciding.renting.demand import Demand, demand_of
from spillover.deciding.renting.earmarks import ordered_for
from spillover.deciding.renting.giving_back import LEAVING, MOST_FAILED, GivenBack, give_back
from spillover.deciding.renting.money import PoolMoney
from spillover.deciding.renting.offers import OpenOffer, open_offers
from spillover.deciding.renting.ordering import Choice, Limits, choose
from spillover.deciding.renting.reusing import MOST_GANGS, Reused, Reusing
from spillover.deciding.renting.room import room_of
from spillover.deciding.renting.spot import LateBoots
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.pools import MachineId, MachineState, Pool, machine_id
from spillover.model.units import MINUTE, format_duration

MOST_ORDERED = 256
"""The most machines that one plan orders. The next plan continues."""


class Renting:
    """The plan of machines of one cycle."""

    def __init__(
        self,
        draft: Draft,
        index: SchedulingIndex,
        policies: Policies,
        *,
        steady: bool = True,
        reuses: bool = True,
    ) -> None:
        self._draft = draft
        self._index = index
        self._policies = policies
        self._steady = steady
        """Whether machines have to join in steady time, which leaves out clock jumps."""
        self._reuses = reuses
        """Whether gangs get machines that are there, and jobs do not wait again and again for one that runs longer than expected.

        Earlier rules did not have that.
        """
        self._state: State = draft.state
        self._now = draft.now
        self._pools: list[tuple[ClusterSpec, Pool]] = [
            (each.spec, each.spec.pool) for each in index.capacity.values() if each.spec.pool is not None
        ]
        self._money = {spec.name: PoolMoney(self._state, spec, self._now) for spec, _ in self._pools}
        self._unsettled = {spec.name: self._state.unsettled_machines(spec.name) for spec, _ in self._pools}
        """The machines of each pool that a plan must look at: not those that are ready and have tasks."""
        self._boots = LateBoots(self._state)
        self._numbers = self._state.facts.machines
        self._held: dict[ClusterName, list[MachineHeld]] = {}
        self._earmarks = {
            machine: gang for machine, gang in index.earmarks.gangs.items() if gang not in draft.taken
        }
        """The machines that are kept for gangs, without those of gangs that start with this plan."""
        self._reused: list[Reused] = []
        """How gangs get machines that are there, with this plan."""
        self._kept: dict[MachineId, None] = {}
        """Machines whose drain this plan undoes."""
        self._leaving: dict[MachineId, None] = {}
        """Machines that this plan drains or ends."""
        self.events: list[AnyEvent] = []
        self.again = index.earmarks.until
        """When to plan again although nothing happened, nanoseconds UTC."""
        self.looked_at = sum(map(len, self._unsettled.values()))
        """How many machines and jobs this plan looks at, which says how long it takes."""
        self._left, together = self._limits()
        """How many more machines each pool may order."""
        self._limited = Limits(self._left, self._money, together)

    def run(self) -> None:
        """Plan the machines of all pools."""
        demand, needed = self._demand()
        self._keep(demand)
        self._order(demand, needed)
        for spec, _ in self._pools:
            self._give_back(spec, needed)
            self._shrink(spec, needed)
            self._extend_holds(spec)
            if self._held.get(spec.name):
                self.events.append(MachinesHeld(spec.name, self._now, tuple(self._held[spec.name])))
            self._reopen(spec)

    # --- jobs

    def _demand(self) -> tuple[list[Demand], dict[str, None]]:
        """Return the jobs that no machine takes which is there or coming, and the machines that jobs are about to take."""
        needed = self._just_placed() | dict.fromkeys(map(str, self._earmarks))
        if not self._index.due.first and not self._draft.expired:
            return [], needed  # as in most plans
        boot = min([offer.boot for offer in self._offers], default=0)
        demand = demand_of(self._draft, self._index, self._policies, boot)
        self.looked_at += len(demand)
        if self._reuses:
            demand = [each for each in demand if not self._has_group(each, self._offers)]
            self._reuse(demand)
            needed |= dict.fromkeys(map(str, self._earmarks))
        alone = [each for each in demand if not each.job.kind.shape.is_gang]
        if alone:
            # A job that starts before a new machine were ready needs none. Others wait as long as that pays.
            needed |= dict.fromkeys(self._take_room(alone, boot))
        return [
            each
            for each in demand
            if each.count and (self._reuses or not self._has_group(each, self._offers))
        ], needed

    def _take_room(self, alone: Sequence[Demand], boot: int) -> dict[str, int]:
        """Let jobs of one task take what becomes free in time on machines that are there. Return those machines.

        Each has the position of the first job that takes room there.
        """
        wanted: dict[int, tuple[Shape, int]] = {}
        for each in alone:
            until = max(self._now, each.limit) + boot
            before = wanted.get(each.alike)
            wanted[each.alike] = each.job.kind.shape, until if before is None else max(until, before[1])
        shapes = list(wanted.values())
        room = room_of(self._state, self._index, self._now, self._earmarks, shapes, longer=self._reuses)
        room.take(alone, lambda each: max(self._now, each.limit) + boot)
        if self._reuses:
            self.again = min(
                self.again, room.starts
            )  # what does not become free by then may take much longer
        return room.used

    def _reuse(self, demand: Sequence[Demand]) -> None:
        """Let gangs have machines that are there, in the order of the queue, and order the rest of what they need."""
        gangs = [at for at, each in enumerate(demand) if each.job.kind.shape.is_gang][:MOST_GANGS]
        reusing = Reusing(self._draft, self._index, self._earmarks)
        if not gangs or not reusing.has_any():
            return
        boot = min([offer.boot for offer in self._offers], default=0)
        others = [replace(each) for each in demand[: gangs[-1]]]
        alone = [(at, each) for at, each in enumerate(others) if not each.job.kind.shape.is_gang]
        taken = self._take_room([each for _, each in alone], boot) if alone else {}
        before = 0
        """How many new machines gangs need that are before the next one."""
        for at in gangs:
            used = [name for name, position in taken.items() if alone[position][0] < at]
            ahead = before + sum([each.count for place, each in alone if place < at])
            found = reusing.find(demand[at], self._offers, self._limited, used, ahead)
            if found is None:
                before += self._new_for(demand[at])
                continue
            demand[at].count = 0
            if found.machines:
                self._earmarks = reusing.kept
                self._reused.append(found)
            if found.order is not None:
                self._limited.take(found.order)

    def _new_for(self, gang: Demand) -> int:
        """Return how many machines will be ordered for a gang that gets none of those that are there."""
        shape = gang.job.kind.shape
        needed = [
            (each, each.machines_for(shape))
            for each in self._offers
            if not each.offer.nodes and each.admits(gang.job, gang.slack)
        ]
        could = [many for each, many in needed if self._limited.allow(each, many, gang.runs, gang=True)]
        return min([many for many in could if many], default=0)

    @cached_property
    def _waiting_gangs(self) -> frozenset[JobId]:
        """The gangs that machines are kept for."""
        return frozenset(self._earmarks.values())

    @cached_property
    def _offers(self) -> list[OpenOffer]:
        """The open offers of all pools."""
        state, known = self._state, self._index.imagined
        return [each for spec, _ in self._pools for each in open_offers(state, spec, self._now, known)]

    def _live(self, spec: ClusterSpec) -> int:
        """Return how many machines of a pool exist or may exist."""
        return len(self._state.live_rented.get(spec.name, ()))

    def _just_placed(self) -> dict[str, None]:
        """Return the machines that get a job with this plan, and so are not empty any more."""
        found: dict[str, None] = {}
        for each in self._draft.placements:
            whole = bool(self._state.machines) and self._state.made(each.cluster) is not None
            if whole:
                found[each.cluster] = None
            if whole or each.cluster in self._money:
                found |= dict.fromkeys((each.node,) if isinstance(each, Placement) else each.nodes)
        return found

    def _has_group(self, demand: Demand, offers: Sequence[OpenOffer]) -> bool:
        """Return whether machines for a gang are there or coming, so that it only has to wait for them."""
        if not demand.job.kind.shape.is_gang:
            return False
        if has_nodes_for(self._state, demand.job.id, offers, self._now):
            return True
        if self._reuses:
            return demand.job.id in self._waiting_gangs
        return bool(ordered_for(self._state, demand.job.id))

    def _keep(self, demand: Sequence[Demand]) -> None:
        """Keep drained machines that jobs could use, one machine for a job."""
        kept: dict[ClusterName, list[RentedMachine]] = {}
        waiting = list(demand)
        for machine in [each for some in self._unsettled.values() for each in some] if demand else ():
            if machine.is_cluster:
                self._keep_cluster(machine, waiting)
            elif machine.state is MachineState.DRAINING and machine.notice is None:
                place = self._drained_place(machine)
                user = (
                    None
                    if place is None
                    else next(
                        (each for each in demand if _could_use(each, machine, place, self._late(machine))),
                        None,
                    )
                )
                if user is not None:
                    kept.setdefault(machine.cluster, []).append(machine)
                    user.count -= 1
        for name, machines in kept.items():
            self._kept |= dict.fromkeys(_ids(machines))
            self.events.append(MachinesKept(name, self._now, _ids(machines)))
            agents = [self._state.agents[each.key].name for each in machines]
            self.events += [AgentResumed(name, agent, self._now, POOL) for agent in agents]

    def _late(self, machine: RentedMachine) -> int:
        """Return the nanoseconds in which nine of ten boots of a spot machine's cluster are ready; 0 for others."""
        return self._boots.of(self._state.clusters[machine.cluster]) if machine.offer.spot else 0

    def _keep_cluster(self, machine: RentedMachine, waiting: list[Demand]) -> None:
        """Keep a whole cluster that the pool drained, if a job could use it that waits for no other one.

        How many nodes it needs is planned next.
        """
        spec = self._state.clusters.get(machine.cluster)
        life = self._state.lives.get(machine.cluster_made)
        if machine.state is not MachineState.DRAINING or spec is None or spec.pool is None:
            return
        if life is None or life.drained != POOL or not self._state.is_open(spec.name):
            return
        if has_failed(self._state, machine):
            return  # it would be drained again at once
        if self._state.pool(spec.name).paused or self._money[spec.name].runs_out(machine):
            return
        offer = OpenOffer(spec, spec.pool, self._state.pool(spec.name), machine.offer)
        user = next((each for each in waiting if each.count and offer.admits(each.job, each.slack)), None)
        if user is not None:
            waiting.remove(user)
            self._kept[machine.id] = None
            self.events.append(MachinesKept(spec.name, self._now, (machine.id,)))
            self.events += whole_clusters.resume(self._state, machine, self._now)

    def _drained_place(self, machine: RentedMachine) -> Machine | None:
        """Return a machine that the pool drained, as placement sees it; None if it must not be kept."""
        cluster, node = self._index.capacity.get(machine.cluster), self._state.agents.get(machine.key)
        if cluster is None or node is None or node.drained != POOL:
            return None
        if node.status != "draining" or not self._state.is_open(machine.cluster):
            return None  # no job could start there, so it would be drained again and again
        if self._state.pool(cluster.spec.name).paused or self._money[machine.cluster].runs_out(machine):
            return None
        return cluster.by_name.get(node.name)

    # --- ordering

    def _order(self, demand: Sequence[Demand], needed: Mapping[str, None]) -> None:
        """Order machines for jobs, and those that are always there."""
        chosen = [each.order for each in self._reused if each.order is not None]
        limits = self._limited
        missing: dict[ClusterName, int] = {}
        for spec, pool in self._pools:
            leaving = sum(each.state in LEAVING for each in self._unsettled[spec.name])
            if (least := pool.min - (self._live(spec) - leaving)) > 0:
                missing[spec.name] = least
        self.events += [
            MachinesEarmarked(each.cluster, self._now, each.job, each.machines, each.free_by)
            for each in self._reused
        ]
        if not missing and not demand and not chosen:
            return
        whole = [each for each in self._offers if each.offer.nodes]
        offers = [each for each in self._offers if not each.offer.nodes]
        for spec, _ in self._pools:
            if spec.name in missing and not spec.is_template:
                chosen += _always(spec, missing.pop(spec.name), offers, limits)
        chosen += choose(demand, offers, limits)
        for name in dict.fromkeys([each.offer.spec.name for each in chosen]):
            own = [each for each in chosen if each.offer.spec.name == name]
            wishes = tuple([wish for each in own for wish in self._wishes(each)])
            self.events.append(MachinesWanted(name, self._now, wishes))
            self.again = min([self.again, *[wish.join_by for wish in wishes]])
        if whole:
            planner = ClusterPlanner(
                self._state, whole, self._left, self._money, self._numbers, self._now, needed
            )
            self._order_clusters(planner.plan([each for each in demand if each.count], missing))

    def _limits(self) -> tuple[dict[ClusterName, int], dict[ClusterName, int]]:
        """Return how many machines each pool may order, and how many for one gang if its rate allows no more."""
        left: dict[ClusterName, int] = {}
        together: dict[ClusterName, int] = {}
        for spec, pool in self._pools:
            most, rate = pool.max - self._live(spec), self._rate_left(spec, pool)
            left[spec.name] = min(MOST_ORDERED, most, rate)
            if rate >= (pool.rate or MOST_ORDERED):
                together[spec.name] = most
        return left, together

    def _order_clusters(self, plan: ClusterPlan) -> None:
        """Order whole clusters for jobs that no machine takes, or let those that are there grow."""
        self._numbers = plan.numbers
        self.events += plan.events
        self.again = min(self.again, plan.join_by)
        for name, held in plan.held.items():
            self._held.setdefault(name, []).extend(held)

    def _wishes(self, choice: Choice) -> list[Wish]:
        """Return the machines of a choice, and hold what they will cost."""
        spec, offer, pool = choice.offer.spec, choice.offer.offer, choice.offer.pool
        wishes = []
        for _ in range(choice.machines):
            self._numbers += 1
            machine = machine_id(spec.name, self._numbers)
            group = choice.job if choice.gang and choice.job is not None else ""
            wishes.append(Wish(machine, offer, self._now + pool.join_within, choice.job, group))
            hold = self._money[spec.name].hold(machine, choice.offer, choice.stays)
            if hold is not None:
                self._held.setdefault(spec.name, []).append(hold)
        return wishes

    def _rate_left(self, spec: ClusterSpec, pool: Pool) -> int:
        """Return how many machines a pool may order now by its rate."""
        if not pool.rate:
            return MOST_ORDERED
        recent = [at for at in self._state.pool(spec.name).ordered if at > self._now - MINUTE]
        if recent:
            self.again = min(self.again, recent[0] + MINUTE)
        return pool.rate - len(recent)

    # --- giving back

    def _give_back(self, spec: ClusterSpec, needed: dict[str, None]) -> None:
        """Drain and end machines."""
        found = self._given_back(spec, needed)
        parts = [*found.drained.values(), *found.ended.values(), found.unjoined]
        self._leaving |= dict.fromkeys([each.id for machines in parts for each in machines])
        for why, machines in found.drained.items():
            self.events.append(MachinesDraining(spec.name, self._now, _ids(machines), why))
            for each in machines:
                self.events += deciders.drain(self._state, each, self._now)
            self.again = self._now  # the next plan says when they end
        for why, machines in found.ended.items():
            self.events += deciders.end(self._state, spec.name, machines, why, self._now)
        if found.unjoined:
            self._fail_boots(spec, found.unjoined)
        self.again = min(self.again, found.again)

    def _shrink(self, spec: ClusterSpec, needed: dict[str, None]) -> None:
        """Drop nodes of whole clusters that nothing needs, unless this plan changes the cluster anyway."""
        sized = {each.machine for each in self.events if isinstance(each, ClusterSized)}
        whole = [each for each in self._unsettled[spec.name] if each.is_cluster and each.id not in sized]
        if whole and spec.pool is not None:
            events, again = shrink(self._state, spec, spec.pool, whole, needed, self._now)
            self.events += events
            self.again = min(self.again, again)

    def _given_back(self, spec: ClusterSpec, needed: dict[str, None]) -> GivenBack:
        """Return what becomes of the machines of a pool."""
        name, busy = spec.name, 0
        machines = self._unsettled[name]
        if self._state.is_open(name):  # else those with tasks must be looked at too
            busy = self._live(spec) - len(machines)
        else:
            machines = self._state.live_machines(name)
        left = [each for each in machines if each.id not in self._kept]
        return give_back(self._state, spec, left, needed, self._now, busy=busy, steady=self._steady)

    def _fail_boots(self, spec: ClusterSpec, machines: list[RentedMachine]) -> None:
        """End machines that did not join, and pause the pool if that happens again and again."""
        within = format_duration(machines[0].join_by - machines[0].wanted_at)
        whole = machines[0].is_cluster
        why = f"it could not run jobs within {within}" if whole else f"its agent did not join within {within}"
        self.events += deciders.end(self._state, spec.name, machines, why, self._now, len(machines))
        record = self._state.pool(spec.name)
        failed = record.failed_boots + len(machines)
        if failed >= MOST_FAILED and not record.paused:
            told = f"{failed} {'clusters' if whole else 'machines'} in a row did not join within {within}"
            self.events.append(PoolPaused(spec.name, self._now, SPILLOVER, told))

    def _extend_holds(self, spec: ClusterSpec) -> None:
        """Hold more for machines that stay, and end those that the budget does not pay for any longer."""
        money = self._money[spec.name]
        if money.period is None:
            return
        ending: list[RentedMachine] = []
        held = {each.machine for each in self._held.get(spec.name, ())}
        for machine in self._state.live_machines(spec.name):
            if machine.id in held or machine.id in self._leaving:
                continue
            more = money.extend(machine)
            if more is not None:
                self._held.setdefault(spec.name, []).append(more)
                self.again = min(self.again, more.until - MINUTE)
            elif machine.state is not MachineState.ENDING and money.runs_out(machine):
                ending.append(machine)
            else:
                self.again = min(self.again, money.next_look(machine))
        if ending:
            why = "the budget of the pool is used up"
            self.events += deciders.end_at_once(self._state, spec.name, ending, why, self._now)

    def _reopen(self, spec: ClusterSpec) -> None:
        """Plan again when a closed offer opens, or a budget renews."""
        closed = self._state.pool(spec.name).closed.values()
        self.again = min([self.again, *[each.until for each in closed if each.until > self._now]])
        period = self._money[spec.name].period
        if period is not None:
            self.again = min(self.again, period.until)


def _always(spec: ClusterSpec, machines: int, offers: Sequence[OpenOffer], limits: Limits) -> list[Choice]:
    """Return the machines that a pool always has, as far as they are missing: of its cheapest open offer."""
    own = sorted([each for each in offers if each.spec is spec], key=lambda each: each.offer.hour)
    while machines > 0 and own:
        choice = Choice(own[0], machines, None, 0)
        if limits.allow(choice.offer, machines, 0):
            limits.take(choice)
            return [choice]
        machines -= 1
    return []


def _could_use(demand: Demand, machine: RentedMachine, place: Machine, late: int) -> bool:
    """Return whether a job would start on a machine if the machine were empty and ready.

    `late` is the slack that it needs for another machine after a spot machine.
    """
    kind = demand.job.kind
    shape = kind.shape
    if machine.cluster in kind.backing_off or (machine.offer.spot and demand.slack < late):
        return False
    return demand.count > 0 and not shape.is_gang and place.could_fit(shape)


def _ids(machines: Sequence[RentedMachine]) -> tuple[MachineId, ...]:
    return tuple([each.id for each in machines])


def rent(
    draft: Draft,
    index: SchedulingIndex,
    policies: Policies,
    *,
    steady: bool = True,
    reuses: bool = True,
) -> tuple[tuple[AnyEvent, ...], int, int]:
    """Plan the machines of all pools.

    Return events, when to plan again although nothing happened, and how many machines and jobs the plan looked at.
    """
    renting = Renting(draft, index, policies, steady=steady, reuses=reuses)
    renting.run()
    return tuple(renting.events), renting.again, renting.looked_at
