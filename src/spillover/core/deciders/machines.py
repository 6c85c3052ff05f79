"""Decides what observations of rented machines mean, and what people ask of pools.

What the plan itself wants (machines, drains, ends) is decided in `deciding.renting`. Observations come late, twice or in
any order, so each decider accepts them in every state.
"""

from collections.abc import Sequence
from typing import Final

from spillover.core.deciders import whole_clusters
from spillover.core.deciders.agents import found_task, give_up, interrupted, together
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AnyEvent,
    Identified,
    JobEnded,
    JobRequeued,
    MachineAdmitted,
    MachineCostsDropped,
    MachineFound,
    MachineGone,
    MachineMade,
    MachineNoticed,
    MachineRefused,
    MachinesDraining,
    MachinesEnding,
    PoolOpened,
    PoolPaused,
    PoolResumed,
    SpotPriced,
    TokenCreated,
    TokenRevoked,
)
from spillover.core.pool_proposals import (
    AdmitMachine,
    DropMachineCosts,
    OpenPool,
    PausePool,
    ResumePool,
    SeeGone,
    SeeMade,
    SeeNotice,
    SeePrices,
    SeeRefused,
    SeeUnwanted,
)
from spillover.core.proposals import Done, Refusal, RefusalKind, Reply
from spillover.core.records.machines import POOL, MachineBill, PoolRecord, RentedMachine
from spillover.core.state import State
from spillover.model.cluster import Billing, Leave
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, MachineState, Offer, OfferKey, RefusalCause
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY, MINUTE, format_moment

CLOSED_FOR: Final = 3 * MINUTE
"""How long an offer is closed after its first refusal; twice as long after each further one in a row."""
LONGEST_CLOSED: Final = 30 * MINUTE
SPILLOVER: Final = "spillover"
_PAUSING: Final = frozenset({RefusalCause.INVALID, RefusalCause.AUTH})
"""Refusals after which every other order would be refused too."""
_YOUNG: Final = (MachineState.WANTED, MachineState.BOOTING)
_OVER: Final = (MachineState.GONE, MachineState.REFUSED)


def open_pool(state: State, proposal: OpenPool, now: int) -> tuple[list[AnyEvent], Reply]:
    """Give a pool its key, if it has none, and record what its machines are told."""
    events: list[AnyEvent] = []
    if proposal.identity and not state.facts.identity:
        events.append(Identified(proposal.identity))
    known = state.pool(proposal.cluster)
    if not known.key or known.terms != proposal.terms:
        events.append(PoolOpened(proposal.cluster, now, known.key or proposal.key, proposal.terms))
    return events, Done()


def made(state: State, proposal: SeeMade, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record that a machine exists, unless that is known."""
    machine = _machine(state, proposal.cluster, proposal.machine)
    if machine is None or machine.state in _OVER:
        unwanted = SeeUnwanted(proposal.cluster, proposal.provider_id, proposal.machine, proposal.made_at)
        return found(state, unwanted, now)
    if machine.provider_id:
        return [], Done()
    began = _moment(proposal.made_at, machine.wanted_at, now)
    return [MachineMade(machine.id, now, machine.cluster, proposal.provider_id, began)], Done()


def refused(state: State, proposal: SeeRefused, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record that a machine will not exist. The other machines of its gang are of no use then."""
    machine = _machine(state, proposal.cluster, proposal.machine)
    if (
        machine is None
        or machine.provider_id
        or machine.state not in {MachineState.WANTED, MachineState.ENDING}
    ):
        return [], Done()
    cause, cluster = proposal.cause, machine.cluster
    pool = state.pool(cluster)
    closed, until = _closed_by(state, pool, machine.offer, cause, now)
    events: list[AnyEvent] = [MachineRefused(machine.id, now, cluster, cause, proposal.why, closed, until)]
    events += _revoked(state, machine, now)
    group = [state.machines[each] for each in state.groups.get(machine.group, ()) if each != machine.id]
    others = [
        each
        for each in group
        if each.cluster == cluster  # it may have machines of an earlier order in another pool
        if each.state in _YOUNG or (each.state is MachineState.READY and _is_empty(state, each))
    ]
    if others:
        why = f"machine {machine.id} of the same gang was refused"
        events += end(state, cluster, others, why, now)
    if cause in _PAUSING and not pool.paused:
        events.append(PoolPaused(cluster, now, SPILLOVER, f"the provider refused ({cause}): {proposal.why}"))
    return events, Done()


def gone(state: State, proposal: SeeGone, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record that a machine does not exist any more. Its tasks are lost, or were interrupted."""
    machine = _machine(state, proposal.cluster, proposal.machine)
    if machine is None or not machine.is_live:
        return [], Done()
    events: list[AnyEvent] = []
    node = state.agents.get(machine.key)
    if machine.is_cluster:
        events += whole_clusters.remove(state, machine, now, proposal.why)
    elif node is not None:
        if node.status != "lost":
            events.append(AgentLost(machine.cluster, node.name, now, machine.is_going))
        taken = proposal.interrupted or machine.notice is not None
        because = proposal.why or f"machine {machine.id} is gone"
        held = [found_task(state, each) for each in node.held]
        events = together(state, give_up(state, held, now, because, interrupted=taken), now, events)
        events.append(AgentForgotten(machine.cluster, node.name, now, POOL))
    # What its last tasks paid is in the events above, and counts as used once these are applied.
    events.append(_bill(state, machine, proposal.why, now, events))
    return [*events, *_revoked(state, machine, now)], Done()


def found(state: State, proposal: SeeUnwanted, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record a machine that is to be destroyed, although nothing in the state says that it exists."""
    known = next(
        (
            each
            for each in state.machines.values()
            if each.cluster == proposal.cluster and each.provider_id == proposal.provider_id and each.is_live
        ),
        None,
    )
    if known is not None:
        return [], Done()
    machine = MachineId(proposal.machine or f"{proposal.cluster}-found-{proposal.provider_id}")
    before = state.machines.get(machine)
    if before is not None and before.is_live:  # a second machine with the same tag
        machine = MachineId(f"{proposal.cluster}-found-{proposal.provider_id}")
        before = state.machines.get(machine)
        if before is not None and before.is_live:
            return [], Done()
    offer = before.offer if before is not None else Offer("unknown", Resources(), 0)
    began = _moment(proposal.made_at, 0, now)
    if before is not None and before.provider_id == proposal.provider_id and before.made_at is not None:
        began = before.made_at  # as it was counted, should the provider not say
    return [MachineFound(machine, now, proposal.cluster, proposal.provider_id, began, offer)], Done()


def admit(state: State, proposal: AdmitMachine, now: int) -> tuple[list[AnyEvent], Reply]:
    """Give the agent of a machine a token of its own, once: again only to the process that may have missed the answer."""
    machine = _machine(state, proposal.cluster, proposal.machine)
    if machine is None:
        return [], Refusal(
            RefusalKind.UNKNOWN, f"there is no machine {proposal.machine} in {proposal.cluster}"
        )
    if machine.state is MachineState.ENDING or machine.state in _OVER:
        return [], Refusal(
            RefusalKind.CONFLICT, f"machine {machine.id} is {machine.state}; it cannot join any more"
        )
    if machine.token and machine.life != proposal.life:
        told = f"the join token of machine {machine.id} was used already, and works once"
        return [], Refusal(RefusalKind.CONFLICT, told)
    until = machine.joins_until(state.facts.jumped)
    if not machine.token and now >= until:
        told = f"the join token of machine {machine.id} has expired at {format_moment(until)}"
        return [], Refusal(RefusalKind.CONFLICT, told)
    created = TokenCreated(
        proposal.token,
        now,
        POOL,
        TokenRole.AGENT,
        proposal.digest,
        cluster=machine.cluster,
        note=f"machine {machine.id}",
        node=machine.id,
    )
    admitted = MachineAdmitted(machine.id, now, machine.cluster, proposal.token, proposal.life)
    return [*_revoked(state, machine, now), created, admitted], Done()


def _revoked(state: State, machine: RentedMachine, now: int) -> list[AnyEvent]:
    """Return the end of the token of a machine, if it has one that is not revoked."""
    token = state.tokens.get(machine.token)
    return [] if token is None or token.revoked is not None else [TokenRevoked(token.id, now, POOL)]


def notice(state: State, proposal: SeeNotice, now: int) -> tuple[list[AnyEvent], Reply]:
    """Drain a machine that will be taken back. Its tasks return to the queue."""
    machine = _machine(state, proposal.cluster, proposal.machine)
    if machine is None or not machine.is_live or machine.notice is not None:
        return [], Done()
    events: list[AnyEvent] = [MachineNoticed(machine.id, now, machine.cluster, proposal.until)]
    if machine.state is MachineState.READY:
        events.append(MachinesDraining(machine.cluster, now, (machine.id,), "the provider takes it back"))
        events += drain(state, machine, now)
    return [*events, *_interrupt(state, machine, now)], Done()


def prices(state: State, proposal: SeePrices, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record spot prices that changed."""
    pool = state.pool(proposal.cluster)
    spec = state.clusters.get(proposal.cluster)
    known = () if spec is None or spec.pool is None else [each.key for each in spec.pool.offers if each.spot]
    changed = tuple(
        [each for each in proposal.prices if each[0] in known and pool.prices.get(each[0]) != each[1]]
    )
    return [SpotPriced(proposal.cluster, now, changed)] if changed else [], Done()


def pause(state: State, proposal: PausePool, now: int) -> tuple[list[AnyEvent], Reply]:
    """Order nothing more in a pool, and end its machines if a person asks for that."""
    if (wrong := _no_pool(state, proposal.cluster)) is not None:
        return [], wrong
    pool = state.pools.get(proposal.cluster)
    events: list[AnyEvent] = []
    if pool is None or not pool.paused:
        events.append(PoolPaused(proposal.cluster, now, proposal.who, proposal.why))
    if proposal.end:
        live = [
            each for each in state.live_machines(proposal.cluster) if each.state is not MachineState.ENDING
        ]
        if live:
            who = proposal.who
            events += end_at_once(state, proposal.cluster, live, f"{who} ended all machines", now, who)
    return events, Done()


def resume(state: State, proposal: ResumePool, now: int) -> tuple[list[AnyEvent], Reply]:
    """Order machines in a pool again."""
    if (wrong := _no_pool(state, proposal.cluster)) is not None:
        return [], wrong
    pool = state.pools.get(proposal.cluster)
    if pool is None or not (pool.paused or pool.closed or pool.failed_boots):
        return [], Done()
    return [PoolResumed(proposal.cluster, now, proposal.who)], Done()


def drop_costs(state: State, proposal: DropMachineCosts, now: int) -> tuple[list[AnyEvent], Reply]:
    """Keep what machines cost by day only for days that are not past their retention."""
    before = proposal.before // DAY * DAY
    old = any(each.day is not None and each.day < before for each in state.spends.values())
    return [MachineCostsDropped(now, before)] if old else [], Done()


def end(
    state: State,
    pool: ClusterName,
    machines: Sequence[RentedMachine],
    why: str,
    now: int,
    failed: int = 0,
    who: str = "",
) -> list[AnyEvent]:
    """Return the events that end machines of a pool, of which some did not join in time."""
    ids = tuple([each.id for each in machines])
    events: list[AnyEvent] = [MachinesEnding(pool, now, ids, why, failed, who)]
    for each in machines:
        if each.is_cluster:
            events += whole_clusters.drain(state, each, now, Leave.FINISH)
    return events


def end_at_once(
    state: State, pool: ClusterName, machines: Sequence[RentedMachine], why: str, now: int, who: str = ""
) -> list[AnyEvent]:
    """Return the events that end machines which may have tasks. Those return to the queue."""
    events = end(state, pool, machines, why, now, who=who)
    for each in machines:
        events += [] if each.is_cluster else drain(state, each, now)
        events += _interrupt(state, each, now)
    return events


def _interrupt(state: State, machine: RentedMachine, now: int) -> list[AnyEvent]:
    """Stop all jobs on a machine that will not be there for long."""
    if machine.is_cluster:
        return whole_clusters.interrupt(state, machine, now)
    return interrupted(state, machine.key, now)


def drain(state: State, machine: RentedMachine, now: int) -> list[AnyEvent]:
    """Return the event that keeps new tasks from a machine; none if it has not joined."""
    if machine.is_cluster:
        return whole_clusters.drain(state, machine, now)
    node = state.agents.get(machine.key)
    return [] if node is None or node.drained else [AgentDraining(machine.cluster, node.name, now, POOL)]


def _closed_by(
    state: State, pool: PoolRecord, offer: Offer, cause: RefusalCause, now: int
) -> tuple[tuple[OfferKey, ...], int]:
    """Return the offers that a refusal closes, and until when."""
    if cause in _PAUSING:
        return (), 0
    keys = [offer.key]
    spec = state.clusters.get(pool.cluster)
    if cause is RefusalCause.QUOTA and spec is not None and spec.pool is not None:
        family = offer.family or offer.type
        alike = [each for each in spec.pool.offers if (each.family or each.type) == family]
        keys = [each.key for each in alike if each.spot == offer.spot] or keys
    # What is closed was ordered before: refusals of orders that were sent together count once.
    keys = [key for key in keys if not pool.is_closed(key, now)]
    if not keys:
        return (), 0
    times = max([pool.closed[key].times for key in keys if key in pool.closed], default=0)
    return tuple(keys), now + min(LONGEST_CLOSED, CLOSED_FOR << min(times, 8))


def _bill(state: State, machine: RentedMachine, why: str, now: int, events: list[AnyEvent]) -> MachineGone:
    """Return the end of a machine with what it cost, and for what."""
    spec = state.clusters.get(machine.cluster)
    lost = _last_costs(state, machine, events)
    bill = machine.bill_parts(Billing() if spec is None else spec.billing, now, interrupted=lost)
    if (before := machine.cost) > 0:  # it was counted when it seemed to be gone, and did nothing since
        rest = max(0, bill.paid - before)
        bill = MachineBill(rest, *((rest, 0, 0, 0) if machine.joined_at is None else (0, 0, 0, rest)))
    return MachineGone(machine.id, now, machine.cluster, why, *bill, before)


def _last_costs(state: State, machine: RentedMachine, events: list[AnyEvent]) -> int:
    """Return what the attempts cost that these events end on a machine, in millionths; a gang pays for its part."""
    total = 0
    for event in events:
        job = state.jobs.get(event.job) if isinstance(event, JobEnded | JobRequeued) else None
        if job is not None:
            nodes = dict.fromkeys([task.node for task in job.tasks])
            if machine.is_cluster:  # all of these jobs were there
                total += event.cost - job.cost  # type: ignore[union-attr]
            elif machine.id in map(str, nodes):
                total += (event.cost - job.cost) // len(nodes)  # type: ignore[union-attr]
    return total


def _machine(state: State, cluster: ClusterName, machine: MachineId) -> RentedMachine | None:
    known = state.machines.get(machine)
    return known if known is not None and known.cluster == cluster else None


def _is_empty(state: State, machine: RentedMachine) -> bool:
    if machine.is_cluster:
        return not state.jobs_on(machine.cluster_made)
    node = state.agents.get(machine.key)
    return node is None or not node.held


def _moment(told: int | None, earliest: int, now: int) -> int:
    """Return a time that a provider told, within what is possible; now if it told none."""
    return now if told is None else max(earliest, min(told, now))


def _no_pool(state: State, cluster: ClusterName) -> Refusal | None:
    spec = state.clusters.get(cluster)
    if spec is not None and spec.pool is not None:
        return None
    pools = ", ".join([name for name, each in state.clusters.items() if each.pool is not None]) or "none"
    return Refusal(RefusalKind.UNKNOWN, f"there is no pool {cluster!r}; clusters with a pool: {pools}")
