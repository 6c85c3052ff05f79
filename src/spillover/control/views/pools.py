"""Shows pools: their machines, offers and pauses, and what they would do now."""

from collections import Counter
from collections.abc import Sequence

from spillover.control.pools.comparing import Compared
from spillover.control.views.jobs import when
from spillover.core.events import (
    AnyEvent,
    ClusterSized,
    MachinesDraining,
    MachinesEarmarked,
    MachinesEnding,
    MachinesKept,
    MachinesWanted,
    Wish,
)
from spillover.core.pool_proposals import ResumePool
from spillover.core.records.machines import PoolRecord, RentedMachine
from spillover.core.state import State
from spillover.deciding.renting.earmarks import earmarks_at
from spillover.deciding.renting.giving_back import LEAVING, leaves_at
from spillover.deciding.renting.money import PoolMoney
from spillover.deciding.renting.offers import ASSUMED
from spillover.deciding.whatif import Snapshot
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, MachineState, Offer, Pool
from spillover.model.units import MONEY, SECOND, format_time
from spillover.wire.api import MachineView, OfferView, PlannedView, PoolSummary, PoolView, SweptMachine

_COMING = (MachineState.WANTED, MachineState.BOOTING)


def pool_views(state: State, now: int) -> list[PoolView]:
    """Return all pools, in the order of their clusters."""
    return [_view(state, spec, spec.pool, now) for spec in state.facts.clusters if spec.pool is not None]


def pool_summaries(state: State, now: int) -> list[PoolSummary]:
    """Return how many machines each pool has, and what they cost an hour."""
    found = []
    for spec in state.facts.clusters:
        if spec.pool is not None:
            record = state.pool(spec.name)
            live = list(state.live_machines(spec.name))
            counts = Counter([each.state for each in live])
            machines = {each.value: counts[each] for each in MachineState if each in counts}
            hour = sum([each.hour for each in live]) / MONEY
            shown = _pool_state(record, spec.pool, now)
            found.append(PoolSummary(spec.name, shown, record.paused or None, machines, hour))
    return found


def _pool_state(record: PoolRecord, pool: Pool, now: int) -> str:
    """Return whether a pool is paused, or all of its offers are closed."""
    closed = all(record.is_closed(each.key, now) for each in pool.offers)
    return "paused" if record.paused else "closed" if closed else "open"


def planned_views(snapshot: Snapshot, now: int) -> list[PlannedView]:
    """Return what all pools would do now, if none of them were paused."""
    state = snapshot.state
    paused = [name for name, record in state.pools.items() if record.paused]
    step = snapshot.step(now, [ResumePool(name, "a plan") for name in paused])
    return [view for event in step.events for view in _planned(state, event)]


def _planned(state: State, event: AnyEvent) -> list[PlannedView]:
    """Return what an event of a plan means for machines."""
    match event:
        case MachinesWanted():
            offers = dict.fromkeys([wish.offer.key for wish in event.wishes])
            views = []
            for key in offers:
                wishes = [wish for wish in event.wishes if wish.offer.key == key]
                jobs = list(dict.fromkeys([str(wish.job) for wish in wishes if wish.job is not None]))
                hour = sum([_hour(wish) for wish in wishes]) / MONEY
                why = "jobs wait that may be rented" if jobs else "as many machines are always there"
                machines = [str(wish.machine) for wish in wishes]
                views.append(PlannedView(event.cluster, "order", machines, key, hour, why, jobs))
            return views
        case ClusterSized():
            known = state.machines[event.machine]
            last = known.spans[-1]  # the state has the plan already
            action, nodes = ("grow", last.nodes) if last.since == event.at else ("shrink", len(event.drop))
            hour = nodes * known.offer.hour / MONEY
            why = f"to {event.nodes} nodes" + (f", without {', '.join(event.drop)}" if event.drop else "")
            jobs = [] if event.job is None else [str(event.job)]
            return [PlannedView(event.cluster, action, [event.machine], known.offer.key, hour, why, jobs)]
        case MachinesEarmarked():
            why = f"they are kept for {event.job}, until it starts"
            return [
                PlannedView(event.cluster, "keep", list(event.machines), reason=why, jobs=[str(event.job)])
            ]
        case MachinesKept():
            return [PlannedView(event.cluster, "keep", list(event.machines), reason="jobs can use them")]
        case MachinesDraining() | MachinesEnding():
            action = "drain" if isinstance(event, MachinesDraining) else "end"
            ended = [state.machines.get(each) for each in event.machines]
            hour = sum([each.hour for each in ended if each is not None]) / MONEY
            return [PlannedView(event.cluster, action, list(event.machines), "", hour, event.why)]
        case _:
            return []


def _view(state: State, spec: ClusterSpec, pool: Pool, now: int) -> PoolView:
    record = state.pool(spec.name)
    machines = [each for each in state.machines.values() if each.cluster == spec.name]
    money = PoolMoney(state, spec, now)
    stays = {**_always(pool, machines), **_kept_for_gangs(state, now)}
    return PoolView(
        cluster=spec.name,
        provider=pool.provider,
        state=_pool_state(record, pool, now),
        paused=record.paused or None,
        machines=[
            _machine(state, spec, pool, record, each, now, stays.get(each.id, "")) for each in machines
        ],
        offers=[_offer(pool, record, each, now) for each in pool.offers],
        min=pool.min,
        max=pool.max,
        budget_left=None if money.period is None else max(0, money.left) / MONEY,
        failed_boots=record.failed_boots,
        join_within_s=pool.join_within / SECOND,
        idle_s=None if pool.idle is None else pool.idle / SECOND,
        rate=pool.rate,
        budget=None if pool.budget is None else pool.budget.limit / MONEY,
        budget_per=None if pool.budget is None else pool.budget.per,
    )


def _always(pool: Pool, machines: Sequence[RentedMachine]) -> dict[MachineId, str]:
    """Return why machines of a pool are not given back that has no more than it always has."""
    staying = [each for each in machines if each.is_live and each.state not in LEAVING]
    if len(staying) > pool.min:
        return {}
    many = "1 machine" if pool.min == 1 else f"{pool.min} machines"
    return {each.id: f"empty; the pool always has {many}" for each in staying}


def _kept_for_gangs(state: State, now: int) -> dict[MachineId, str]:
    """Return for which gangs machines are kept."""
    return {each: f"kept for {gang}, until it starts" for each, gang in earmarks_at(state, now).gangs.items()}


def _machine(
    state: State,
    spec: ClusterSpec,
    pool: Pool,
    record: PoolRecord,
    machine: RentedMachine,
    now: int,
    stays: str,
) -> MachineView:
    node = state.agents.get(machine.key)
    offer = machine.offer
    ready = max(now, machine.wanted_at + record.boot(pool, offer.key)) if machine.state in _COMING else None
    leaves, why = None, machine.why
    if machine.state is MachineState.READY and machine.empty_since is not None:
        if stays:
            why = why or stays
        else:
            leaves = leaves_at(state, spec, pool, machine, machine.empty_since, now)
    return MachineView(
        id=machine.id,
        type=offer.type,
        zone=offer.zone,
        spot=offer.spot,
        state=machine.state,
        node=None if node is None else node.name,
        since=format_time(machine.since),
        cost=(machine.bill(spec.billing, now) if machine.is_live else machine.cost) / MONEY,
        reason=why,
        hour=machine.hour / MONEY,
        provider_id=machine.provider_id,
        tasks=_tasks(state, machine),
        ready_at=None if ready is None else format_time(ready),
        leaves_at=None if leaves is None else format_time(max(now, leaves)),
        job=machine.job,
        nodes=machine.nodes if machine.is_cluster else None,
    )


def _tasks(state: State, machine: RentedMachine) -> int:
    """Return how many tasks a machine, or a whole cluster, has now."""
    if machine.is_cluster:
        return sum([len(node.held) for node in state.nodes_of(machine.cluster_made)])
    node = state.agents.get(machine.key)
    return 0 if node is None else len(node.held)


def _hour(wish: Wish) -> int:
    """Return what an hour costs of what is ordered, in millionths."""
    return wish.offer.cluster_hour + wish.nodes * wish.offer.hour if wish.nodes else wish.offer.hour


def _offer(pool: Pool, record: PoolRecord, offer: Offer, now: int) -> OfferView:
    closed = record.closed.get(offer.key) if record.is_closed(offer.key, now) else None
    seen = record.seen.get(offer.key)
    return OfferView(
        type=offer.type,
        zone=offer.zone,
        spot=offer.spot,
        hour=record.hour(offer) / MONEY,
        cpu=offer.resources.cpu / 1000,
        memory=offer.resources.memory,
        gpu=offer.resources.gpu,
        boot_p50_s=record.boot(pool, offer.key) / SECOND,
        boot_p90_s=record.boot(pool, offer.key, 90) / SECOND,
        closed_until=None if closed is None else format_time(closed.until),
        reason="" if closed is None else f"{closed.cause}: {closed.why}",
        nodes=offer.nodes or None,
        cluster_hour=offer.cluster_hour / MONEY if offer.nodes else None,
        offers=sorted({*offer.words, *ASSUMED}) if seen is None else list(seen.words),
        labels=offer.agent_labels if seen is None else dict(seen.labels),
    )


def swept_machines(state: State, cluster: ClusterName, found: Compared) -> list[SweptMachine]:
    """Return what a listing shows that is not wanted, and what the state is ending already."""
    mine = [each for each in state.machines.values() if each.cluster == cluster and each.is_live]
    ending = [each for each in mine if each.state is MachineState.ENDING and each.provider_id]
    known = {each.provider_id for each in ending}
    return [
        *[
            SweptMachine(each.id, "unwanted", each.machine, each.name, when(each.at), each.reason)
            for each in found.strangers.values()
            if each.id not in known
        ],
        *[SweptMachine(id_, "stopped") for id_ in found.stopped if id_ not in known],
        *[
            SweptMachine(each.provider_id, "ending", each.id, made_at=when(each.made_at), reason=each.why)
            for each in ending
        ],
        *[SweptMachine("", "unlisted", each) for each in found.unlisted],
    ]
