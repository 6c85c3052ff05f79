"""Applies events of pools, and counts what jobs use of rented machines."""

from collections.abc import Iterable

from msgspec.structs import replace

from spillover.core.events import (
    Back,
    ClusterSized,
    Event,
    MachineAdmitted,
    MachineCostsDropped,
    MachineFound,
    MachineGone,
    MachineJoined,
    MachineMade,
    MachineNoticed,
    MachineRefused,
    MachinesDraining,
    MachinesEarmarked,
    MachinesEnding,
    MachinesHeld,
    MachinesKept,
    MachinesWanted,
    PoolOpened,
    PoolPaused,
    PoolResumed,
    SpotPriced,
)
from spillover.core.records.jobs import NO_EXTRA, Extra, Job, Placed, Running
from spillover.core.records.machines import (
    BOOTS,
    EARLIER,
    KEPT,
    POOL,
    ClosedOffer,
    Earmark,
    MachineBill,
    MachineHold,
    NodeSpan,
    PoolRecord,
    PoolSpend,
    RentedMachine,
    SeenOffer,
    node_boots,
)
from spillover.core.records.money import BudgetPeriod
from spillover.core.state import State
from spillover.core.transitions import MACHINE, Impossible
from spillover.model.budget import Per, period_of
from spillover.model.cluster import WHOLE, Billing, Price, share_of
from spillover.model.ids import ClusterName, NodeName, TaskKey, node_key, task_key
from spillover.model.pools import MachineId, MachineState
from spillover.model.units import MINUTE

_BY_THE_NANOSECOND = Billing(step=1)
"""Tasks pay for their time, and the machine for whole steps. The difference is idle time."""
_INTERRUPTED = frozenset({Back.INTERRUPTED, Back.LOST})


def opened(state: State, event: PoolOpened) -> None:
    """Record the key of a pool, and what its machines are told."""
    _set_pool(state, replace(state.pool(event.cluster), key=event.key, terms=event.terms))
    for machine in list(state.machines.values()):
        # The plan may order machines before the server has opened the pool. Nobody was asked for them yet.
        if machine.cluster == event.cluster and machine.is_live and not machine.terms.server:
            _set(state, replace(machine, terms=event.terms))


def wanted(state: State, event: MachinesWanted) -> None:
    """Add machines that are ordered."""
    terms = state.pool(event.cluster).terms
    for wish in event.wishes:
        machine = RentedMachine(
            wish.machine,
            event.cluster,
            wish.offer,
            MachineState.WANTED,
            event.at,
            event.at,
            wish.join_by,
            wish.job,
            wish.group,
            terms=terms,
            spans=(NodeSpan(event.at, wish.nodes, wish.job if wish.group else None),) if wish.nodes else (),
            jumped=state.facts.jumped,
        )
        _set(state, machine)
    state.facts.machines += len(event.wishes)
    state.touch_facts()
    spec = state.clusters.get(event.cluster)
    if spec is not None and spec.pool is not None and spec.pool.rate:
        pool = state.pool(event.cluster)
        recent = [at for at in pool.ordered if at > event.at - MINUTE]
        _set_pool(state, replace(pool, ordered=(*recent, *[event.at] * len(event.wishes))))


def held(state: State, event: MachinesHeld) -> None:
    """Hold more of a pool's budget for machines."""
    for each in event.holds:
        machine = state.machines[each.machine]
        holds = (*machine.holds, MachineHold(each.period, each.amount))
        _set(state, replace(machine, holds=holds, held_until=each.until))
        period = state.budget_periods.get(each.period.key)
        if period is None:
            period = state.budget_periods[each.period.key] = BudgetPeriod(each.period.key, each.period.until)
        period.held += each.amount
        state.touch_budget_period(each.period.key)


def sized(state: State, event: ClusterSized) -> None:
    """Record how many nodes a whole cluster is to have. Those that go get no more tasks."""
    machine = state.machines[event.machine]
    after = machine.sized(event.nodes, _BY_THE_NANOSECOND, event.at, event.job)
    _set(state, replace(after, dropped=event.dropped))
    for node in state.nodes_of(machine.cluster_made):
        drained = POOL if node.name in event.drop else ""
        if node.drained != drained and node.drained in {"", POOL}:
            node.drained = drained
            state.touch_node(node.key)
            state.moved[node.key] = None


def nodes_came(state: State, machine: RentedMachine, names: Iterable[NodeName], at: int) -> None:
    """Note since when new nodes of a whole cluster are empty, and learn how long they took once all are there."""
    _set(state, replace(machine, emptied={**machine.emptied, **dict.fromkeys(names, at)}))
    last = machine.spans[-1] if machine.spans else None
    if last is None or machine.joined_at is None or last.since < machine.joined_at:
        return
    if len(state.nodes_of(machine.cluster_made)) >= machine.nodes:
        pool, key = state.pool(machine.cluster), node_boots(machine.offer.key)
        seen = (*pool.boots.get(key, ()), max(0, at - last.since))[-BOOTS:]
        _set_pool(state, replace(pool, boots={**pool.boots, key: seen}))


def made(state: State, event: MachineMade) -> None:
    """Record that a machine exists, and that refusals of its offer before are over."""
    machine = _move(state, event.machine, event, event.at)
    _set(state, replace(machine, provider_id=event.provider_id, made_at=event.made_at))
    pool = state.pool(event.cluster)
    # While an offer is closed, nothing is ordered. So the order came before the refusal, which counts: otherwise the
    # machines of a gang that are made would open the offer that the quota has closed amid the gang, without end.
    if machine.offer.key in pool.closed and not pool.is_closed(machine.offer.key, event.at):
        closed = {key: each for key, each in pool.closed.items() if key != machine.offer.key}
        _set_pool(state, replace(pool, closed=closed))


def refused(state: State, event: MachineRefused) -> None:
    """Record that a machine will never exist, and close offers."""
    machine = _move(state, event.machine, event, event.at)
    machine = replace(machine, cause=event.cause, why=event.why, gone_at=event.at)
    _set(state, _settled(state, machine, 0))
    if event.closed:
        pool = state.pool(event.cluster)
        closed = dict(pool.closed)
        for key in event.closed:
            times = closed[key].times + 1 if key in closed else 1
            closed[key] = ClosedOffer(event.until, times, event.cause, event.why)
        _set_pool(state, replace(pool, closed=closed))
    _forget_old(state, event.cluster)


def admitted(state: State, event: MachineAdmitted) -> None:
    """Record which token the agent of a machine got."""
    _set(state, replace(state.machines[event.machine], token=event.token, life=event.life))


def joined(state: State, event: MachineJoined) -> None:
    """Record that a machine is ready, and how long that took."""
    machine = _move(state, event.machine, event, event.at)
    began = machine.made_at if machine.made_at is not None else machine.wanted_at
    _set(state, replace(machine, made_at=began, joined_at=event.at, empty_since=event.at))
    pool = state.pool(event.cluster)
    key = machine.offer.key
    boots = pool.boots
    if event.timed:
        boots = {**boots, key: (*boots.get(key, ()), max(0, event.at - machine.wanted_at))[-BOOTS:]}
    known = pool.seen
    if (node := state.nodes.get(machine.key)) is not None:
        known = {**known, key: SeenOffer(node.capacity, node.offers, node.labels)}
    elif (first := next(iter(state.nodes_of(machine.cluster_made)), None)) is not None:
        free = first.capacity if first.foreign is None else first.capacity - first.foreign
        known = {**known, key: SeenOffer(free, first.offers, first.labels)}
    _set_pool(state, replace(pool, failed_boots=0, boots=boots, seen=known))
    state.moved[machine.key] = None


def noticed(state: State, event: MachineNoticed) -> None:
    """Record when a machine will be taken back."""
    _set(state, replace(state.machines[event.machine], notice=event.until))


def draining(state: State, event: MachinesDraining) -> None:
    """Record that machines get no more tasks."""
    for each in event.machines:
        _set(state, replace(_move(state, each, event, event.at), why=event.why))


def kept(state: State, event: MachinesKept) -> None:
    """Record that machines may get tasks again."""
    for each in event.machines:
        _set(state, replace(_move(state, each, event, event.at), why=""))


def earmarked(state: State, event: MachinesEarmarked) -> None:
    """Record which gang machines are kept for. It ends by itself, so nothing undoes it."""
    facts = state.facts  # the machines that the plan orders come after this
    mark = Earmark(event.job, event.at, event.free_by, facts.cycles, facts.machines)
    for each in event.machines:
        _set(state, replace(state.machines[each], earmark=mark))


def ending(state: State, event: MachinesEnding) -> None:
    """Record that machines are to be destroyed."""
    for each in event.machines:
        _set(state, replace(_move(state, each, event, event.at), why=event.why))
    if event.failed_boots:
        pool = state.pool(event.cluster)
        _set_pool(state, replace(pool, failed_boots=pool.failed_boots + event.failed_boots))


def gone(state: State, event: MachineGone) -> None:
    """Record that a machine costs nothing any more, and what it cost."""
    machine = _move(state, event.machine, event, event.at)
    machine = replace(
        machine,
        gone_at=event.at,
        cost=event.before + event.paid,
        why=event.why or machine.why,
        empty_since=None,
    )
    _set(state, _settled(state, machine, event.paid))
    key = f"{event.cluster}/{period_of(Per.DAY, event.at).label}"
    bill = MachineBill(event.paid, event.boot, event.useful, event.interrupted, event.idle)
    _add_spend(state, key, 0 if event.before else 1, bill)
    _forget_old(state, event.cluster)


def costs_dropped(state: State, event: MachineCostsDropped) -> None:
    """Sum up what machines cost on days that are past their retention."""
    for spend in list(state.spends.values()):
        if spend.day is not None and spend.day < event.before:
            _add_spend(state, f"{spend.cluster}/{EARLIER}", spend.machines, spend.bill)
            del state.spends[spend.key]
            state.dirty["spend"][spend.key] = None


def _add_spend(state: State, key: str, machines: int, bill: MachineBill) -> None:
    state.spends[key] = state.spends.get(key, PoolSpend(key)).with_others(machines, bill)
    state.dirty["spend"][key] = None


def found(state: State, event: MachineFound) -> None:
    """Add a machine that nothing wants, so that it is destroyed."""
    known = state.machines.get(event.machine)
    if known is None:
        known = RentedMachine(
            event.machine, event.cluster, event.offer, MachineState.ENDING, event.at, event.made_at, event.at
        )
    if known.provider_id != event.provider_id:  # another machine, which has cost nothing yet
        known = replace(known, joined_at=None, cost=0, used=0, interrupted=0)
    machine = replace(
        known,
        state=MachineState.ENDING,
        since=event.at,
        provider_id=event.provider_id,
        made_at=event.made_at,
        gone_at=None,
        why="nothing wants it",
    )
    _set(state, machine)


def paused(state: State, event: PoolPaused) -> None:
    """Order nothing more in a pool."""
    pool = state.pool(event.cluster)
    why = event.why or f"paused by {event.who}"
    _set_pool(state, replace(pool, paused=why, paused_by=event.who, paused_at=event.at))


def resumed(state: State, event: PoolResumed) -> None:
    """Order machines again, of all offers."""
    pool = state.pool(event.cluster)
    _set_pool(state, replace(pool, paused="", paused_by="", paused_at=0, failed_boots=0, closed={}))


def priced(state: State, event: SpotPriced) -> None:
    """Record present prices."""
    pool = state.pool(event.cluster)
    _set_pool(state, replace(pool, prices={**pool.prices, **dict(event.prices)}))


# --- jobs on rented machines


def take_place(state: State, job: Job) -> None:
    """Set the price of a job that was just placed on rented machines: its share of each one."""
    phase = job.phase
    if not isinstance(phase, Placed | Running) or (spec := state.clusters.get(phase.cluster)) is None:
        return
    if (whole := state.made(phase.cluster)) is not None:
        _take_nodes(state, whole, job)
        return
    hour = 0
    tasks = (
        [(each.rank, each.node) for each in job.tasks] if job.extra.gang is not None else [(0, phase.node)]
    )
    for rank, name in tasks:
        machine = state.machines.get(MachineId(name))
        if machine is None or machine.cluster != phase.cluster:
            return  # somebody else's machine in a pool, which nobody pays for
        hour += _share_price(state, machine, task_key(job.id, job.attempt, rank), job, rank)
    for name in dict.fromkeys([name for _, name in tasks]):
        machine = state.machines[MachineId(name)]
        if machine.empty_since is not None:
            _set(state, replace(machine, empty_since=None))
    price = Price(egress_gb=spec.price.egress_gb, job_hour=hour)
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    job.extra = replace(
        job.extra, placed_on=replace(spec, price=price, billing=_BY_THE_NANOSECOND, pool=None)
    )


def _take_nodes(state: State, whole: RentedMachine, job: Job) -> None:
    """Note that nodes of a whole cluster have tasks."""
    taken = {task.node for task in job.tasks}
    emptied = {name: at for name, at in whole.emptied.items() if name not in taken}
    _set(state, replace(whole, empty_since=None, emptied=emptied))


def _leave_nodes(
    state: State, whole: RentedMachine, nodes: Iterable[NodeName], cost: int, at: int, back: Back | None
) -> None:
    """Count what an attempt paid for nodes of a whole cluster, and note which of them are empty now."""
    emptied = dict(whole.emptied)
    for name in nodes:
        node = state.nodes.get(node_key(whole.cluster_made, name))
        if node is not None and not node.holding:
            emptied[name] = at
    busy = any(node.holding for node in state.nodes_of(whole.cluster_made))
    _set(
        state,
        replace(
            whole,
            used=whole.used + cost,
            interrupted=whole.interrupted + (cost if back in _INTERRUPTED else 0),
            empty_since=at if not busy and whole.joined_at is not None else None,
            emptied=emptied,
        ),
    )


def _share_price(state: State, machine: RentedMachine, task: TaskKey, job: Job, rank: int) -> int:
    """Return what an hour of a task costs on a machine: its share, at most what other tasks leave."""
    node = state.nodes.get(machine.key)
    have = machine.offer.resources if node is None else node.capacity
    share = share_of(have, job.held_by(rank))
    if node is not None and task in node.holding:
        others = sum([share_of(have, asked) for key, asked in node.holding.items() if key != task])
        share = min(share, max(0, WHOLE - others))
    return -(-machine.offer.hour * share // WHOLE)


def leave_place(
    state: State,
    cluster: ClusterName,
    nodes: Iterable[NodeName],
    cost: int,
    at: int,
    back: Back | None = None,
) -> None:
    """Count what an attempt paid for its machines, and note which of them are empty now; `back` is why it returned."""
    if (whole := state.made(cluster)) is not None:
        _leave_nodes(state, whole, nodes, cost, at, back)
        return
    known = [state.machines.get(MachineId(each)) for each in nodes]
    machines = [each for each in known if each is not None and each.cluster == cluster]
    for count, machine in enumerate(machines):
        part = cost // len(machines) + (count < cost % len(machines))
        used = machine.used + part
        interrupted = machine.interrupted + (part if back in _INTERRUPTED else 0)
        empty = machine.empty_since
        node = state.nodes.get(machine.key)
        if node is not None and not node.holding and not node.ahead and machine.joined_at is not None:
            empty = at
        _set(state, replace(machine, used=used, interrupted=interrupted, empty_since=empty))


# --- the records


def _move(state: State, machine: MachineId, event: Event, at: int) -> RentedMachine:
    """Return a machine in the state that follows an event."""
    known = state.machines.get(machine)
    following = None if known is None else MACHINE.get((known.state, type(event)))
    if known is None or following is None:
        raise Impossible(f"{type(event).__name__} on machine {machine}, which is {known and known.state}")
    return known if following is known.state else replace(known, state=following, since=at)


def _set(state: State, machine: RentedMachine) -> None:
    state.put_machine(machine)
    state.touch_machine(machine.id)


def _set_pool(state: State, pool: PoolRecord) -> None:
    state.pools[pool.cluster] = pool
    state.touch_pool(pool.cluster)


def _settled(state: State, machine: RentedMachine, paid: int) -> RentedMachine:
    """Release the holds of a machine that is gone; what it cost counts in the same periods, the oldest first."""
    left = paid
    for at, hold in enumerate(machine.holds):
        period = state.budget_periods.get(hold.period.key)
        spent = min(left, hold.amount) if at < len(machine.holds) - 1 else left
        left -= spent
        if period is not None:
            period.held -= hold.amount
            period.spent += spent
            period.over += max(0, spent - hold.amount)
            state.touch_budget_period(hold.period.key)
            state.loosened = True
    return replace(machine, holds=(), held_until=0) if machine.holds else machine


def _forget_old(state: State, cluster: ClusterName) -> None:
    """Drop machines that are gone, but for the last ones."""
    over = [each for each in state.machines.values() if each.cluster == cluster and not each.is_live]
    for machine in over[:-KEPT]:
        state.drop_machine(machine)
        state.touch_machine(machine.id)
