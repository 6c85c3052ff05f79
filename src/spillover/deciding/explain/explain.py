"""Explains why a job is in its phase and what would change that.

Explanations are derived on request, from the same data that a cycle uses.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct, structs

from spillover.core.appliers.queue import weight
from spillover.core.records.jobs import Ended, Job, Placed, Queued, Running, Spread, Waiting
from spillover.core.state import State
from spillover.deciding.budgets.check import BudgetCheck, CostHold, never_affordable
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.explain.refusals import refusal_of, why_never
from spillover.deciding.explain.windows import closed_reservation, reserved_for_others
from spillover.deciding.forecast.estimates import Estimate, estimate, late_on
from spillover.deciding.guard import GuardedWait
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Walk
from spillover.deciding.renting.spot import SpotSlack
from spillover.model import ranges
from spillover.model.cluster import ClusterHealth, Role
from spillover.model.ids import ClusterName, JobId, member_id, split_member
from spillover.model.job import After, AfterMembers, On
from spillover.model.reasons import (
    AfterArrays,
    AfterJobs,
    AgentsOutdated,
    AllDrained,
    ArrayThrottled,
    AtLimit,
    BackingOff,
    BehindOthers,
    BeyondDepth,
    ClusterDown,
    ClusterDrained,
    FreeSoon,
    Fresh,
    GangUnsupported,
    Held,
    KeptFor,
    KeptForGang,
    KeptOffSpot,
    MachineComing,
    NoEmptyNode,
    NoNodeReady,
    NoOfferOpen,
    NoRoom,
    NoRoomInside,
    NoRoomTogether,
    NotBefore,
    NotConfigured,
    NotObserved,
    NotRented,
    OverBudget,
    OverMaxCost,
    PolicyFailed,
    PoolAtMost,
    PoolIsPaused,
    PoolOutOfMoney,
    QueueAtLimit,
    QueueOverLimit,
    Reason,
    ReservationClosed,
    Reserved,
    Stopping,
    WaitNotOver,
)
from spillover.model.units import FOREVER, format_duration

MOST_AHEAD: Final = 5000
"""The most jobs ahead of a job that are counted one by one."""


class Decider(Protocol):
    """What an explanation needs: an engine."""

    state: State
    now: int

    @property
    def index(self) -> SchedulingIndex:
        """The scheduling index."""
        ...

    @property
    def policies(self) -> Policies:
        """The current policies."""
        ...


class ClusterAnswer(Struct, frozen=True):
    """The answer of one cluster for a queued job."""

    cluster: ClusterName
    role: Role
    reason: Reason | None
    """Why it does not take the job; None if it would take it now."""


class Explanation(Struct, frozen=True):
    """The explanation for a job that has not ended."""

    reason: Reason | None
    """Why the job waits or stops; None for a placed job without problems."""
    verdicts: tuple[ClusterAnswer, ...]
    ahead: int
    """Queued jobs that are tried before it; in a long queue, at least this many."""
    spills_at: int | None
    """When it may be rented, nanoseconds UTC; None if never, or already."""
    estimate: Estimate
    more_ahead: bool = False
    """Whether there may be more jobs ahead than were counted."""


def explain(engine: Decider, job: Job, held: Iterable[CostHold] = ()) -> Explanation:
    """Explain a job. `held` are the cost holds of a plan that is only tried."""
    expected = estimate(job, engine.policies.chosen.unknown_runtime)
    if type(job.phase) is not Queued:
        return Explanation(_unqueued(engine.state, job), (), 0, None, expected)
    verdicts = _verdicts(engine, job, held)
    reason = _why_queued(engine, job, verdicts)
    ahead, more = _ahead(engine.index, job)
    return Explanation(reason, verdicts, ahead, _spills_at(engine, job, verdicts), expected, more)


def reason_of(engine: Decider, job: Job) -> Reason | None:
    """Return only the reason. Queued jobs of one lane with the same wait have the same reason."""
    if type(job.phase) is not Queued:
        return _unqueued(engine.state, job)
    return _why_queued(engine, job, _verdicts(engine, job))


def _verdicts(engine: Decider, job: Job, held: Iterable[CostHold] = ()) -> tuple[ClusterAnswer, ...]:
    """Return the answer of each cluster, in the order of the configuration."""
    check = BudgetCheck(engine.state, engine.now)
    for holding in held:
        check.take(holding)
    verdicts = tuple(
        ClusterAnswer(cluster.name, cluster.spec.role, _verdict(engine, check, cluster, job))
        for cluster in engine.index.capacity.values()
    )
    if any(each.role is Role.OWNED and _possible(each) for each in verdicts):
        return verdicts
    return tuple(map(_without_owned, verdicts))


def _without_owned(verdict: ClusterAnswer) -> ClusterAnswer:
    """Mark a refusal by caps as one of a job that has no owned cluster to wait for."""
    if not isinstance(verdict.reason, OverMaxCost | OverBudget):
        return verdict
    return structs.replace(verdict, reason=structs.replace(verdict.reason, owned=False))


def _verdict(engine: Decider, check: BudgetCheck, cluster: Capacity, job: Job) -> Reason | None:
    """Return why a cluster does not take a job now; None if it does. A cap explains more than a lack of room."""
    if job.kind.shape.reservation and (closed := closed_reservation(engine.state, job, engine.now)):
        return closed
    refusal = refusal_of(engine.state, cluster, job.kind.shape, job.id)
    if refusal is not None and refusal.never:
        return refusal
    if cluster.windows is not None and _takes_or_is_full(refusal):
        reserved = reserved_for_others(engine.index, cluster, cluster.windows, job, engine.now)
        refusal = reserved or refusal
    if (late := late_on(job, cluster.spec, engine.now)) is not None:
        return late
    if refusal is None and cluster.spots and (deadline := job.extra.deadline) is not None:
        spots = SpotSlack(engine.state, engine.index, engine.now).closed(job, cluster)
        if spots and not matching.fits_beside(cluster, job.kind.shape, spots):
            refusal = KeptOffSpot(cluster.name, deadline)
    if cluster.name in job.kind.backing_off and _takes_or_is_full(refusal):
        return next(
            BackingOff(each.cluster, each.until, each.because)
            for each in job.extra.backoffs
            if each.cluster == cluster.name
        )
    if cluster.spec.role is Role.OWNED or not _takes_or_is_full(refusal):
        return refusal
    answer = check.ask(job, cluster.spec, estimate(job, 0).runtime) if check.concerns(job) else None
    if isinstance(answer, OverBudget):
        return _with_holder(engine, job, answer)
    return refusal if answer is None or isinstance(answer, CostHold) else answer


def _takes_or_is_full(refusal: Reason | None) -> bool:
    """Return whether a cluster would take a job if less ran on its nodes."""
    at_task_limit = isinstance(refusal, AtLimit) and refusal.what == "tasks"
    full = isinstance(refusal, (NoRoom, NoRoomTogether, NoRoomInside, NoEmptyNode, Reserved, *RENTING))
    return refusal is None or full or at_task_limit


def _with_holder(engine: Decider, job: Job, over: OverBudget) -> OverBudget:
    """Add the job that holds the rest of the budget because it has no walltime, if there is one."""
    for cap in engine.state.caps.on(job.kind.project, job.user, engine.now):
        if (f"{cap.budget.of} {cap.name}", cap.budget.per) == (over.whose, over.per):
            found = engine.index.holders.most(cap.key)
            if found is not None:
                return structs.replace(over, holder=found[0], held=found[1])
    return over


def _spills_at(engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...]) -> int | None:
    """Return when a job may be rented; None if no cluster could be rented for it, or if it already may be."""
    rentable = any(each.role is Role.RENTED and _possible(each) for each in verdicts)
    latest = engine.state.latest(job)
    if latest is None or latest >= FOREVER or job.due is not None or not rentable:
        return None
    return latest + engine.state.facts.jumped


def _possible(verdict: ClusterAnswer) -> bool:
    return verdict.reason is None or not verdict.reason.never


def _after(state: State, wanted: tuple[After, ...]) -> AfterJobs:
    """Return which jobs a job waits for."""
    found = [state.jobs.get(each.job) for each in wanted]
    return AfterJobs(
        tuple(each.job for each in wanted),
        tuple("" if job is None else job.name for job in found),
        all(each.on is On.SUCCESS for each in wanted),
        all(each.on is On.FAILURE for each in wanted),
    )


def _why_held(state: State, job: Job) -> Reason:
    """Return what a job waits for that no person holds."""
    if job.extra.after:
        return _after(state, job.extra.after)
    member, members = split_member(job.id), job.extra.members
    if member is not None:
        members = state.jobs[member[0]].extra.members
        return ArrayThrottled(0 if members is None else members.most)
    if members is not None and members.throttled:
        return ArrayThrottled(members.most)
    if members is not None and members.wait_for_members:
        return _after_members(state, members.after)
    return NotBefore(job.extra.not_before or 0)


def _after_members(state: State, wanted: tuple[AfterMembers, ...]) -> AfterArrays:
    """Return the arrays for whose members those of an array wait."""
    found = [state.jobs.get(each.job) for each in wanted]
    return AfterArrays(
        tuple(each.job for each in wanted),
        tuple("" if job is None else job.name for job in found),
        all(each.on is On.SUCCESS for each in wanted),
        all(each.on is On.FAILURE for each in wanted),
    )


def explain_member(state: State, array: Job, index: int) -> Reason | None:
    """Return why a pending member of an array waits for a member of another one; None if it does not."""
    members = array.extra.members
    if members is None:
        return None
    own = [each for each in members.after if ranges.contains(each.members, index)]
    if not own or array.extra.after or (type(array.phase) is Waiting and array.phase.by is not None):
        return None
    found = _after_members(state, tuple(own))
    jobs = tuple([member_id(each.job, index) for each in own])
    names = tuple([f"{name}.{index}" if name else "" for name in found.names])
    return AfterJobs(jobs, names, found.succeed, found.fail)


def _unqueued(state: State, job: Job) -> Reason | None:
    """Return why a job that is not queued is in its phase."""
    match job.phase:
        case Waiting(by):
            return Held(by) if by is not None else _why_held(state, job)
        case Placed() | Running():
            if job.phase.stopping is not None:
                return Stopping(job.phase.stopping)
            return _why_unobserved(state, job, job.phase.cluster)
        case Ended():
            return job.phase.why
        case Spread() | Queued():
            return None


def _why_unobserved(state: State, job: Job, cluster: ClusterName) -> Reason | None:
    """Return why nothing is known about a job on an external cluster; None if the cluster is reachable."""
    spec, condition = state.cluster_of(job), state.conditions.get(cluster)
    if spec is None or not spec.external:
        return None
    if cluster not in state.clusters:
        return NotConfigured(cluster)
    if condition is None or condition.health is ClusterHealth.READY:
        return None
    return ClusterDown(cluster, condition.health, condition.since, condition.why)


def _why_queued(engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...]) -> Reason:
    """Return the most important reason: first "never", then why it may not start yet, then why it does not fit."""
    possible = [each for each in verdicts if _possible(each)]
    found = _why_it_never_starts(engine, job, verdicts, possible) or _why_not_yet(
        engine, job, verdicts, possible
    )
    if found is not None:
        return found
    allowed = [each for each in possible if each.role is Role.OWNED or job.due is not None]
    return _why_it_does_not_fit(engine, job, allowed)


def _why_it_never_starts(
    engine: Decider, job: Job, verdicts: Sequence[ClusterAnswer], possible: Sequence[ClusterAnswer]
) -> Reason | None:
    """Return why no cluster will ever take a job; None if one may."""
    shape = job.kind.shape
    gangs = any(cluster.spec.gangs for cluster in engine.index.capacity.values())
    if shape.is_gang and not gangs:
        return GangUnsupported(shape.tasks)
    if isinstance(over := _why_held_back(engine, job), QueueOverLimit):
        return over
    if not possible:
        return why_never(engine.index, shape, [each.reason for each in verdicts])
    return never_affordable([(each.cluster, each.reason) for each in possible])


def _why_held_back(engine: Decider, job: Job) -> QueueAtLimit | QueueOverLimit | None:
    """Return the limit of its queue that keeps a job from starting; None if none does."""
    use, kind = engine.index.queue_use, job.kind
    return None if use is None else use.refusal(kind.queue, job.user, kind.shape.total)


def _why_not_yet(
    engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...], possible: Sequence[ClusterAnswer]
) -> Reason | None:
    """Return why a job may not start anywhere yet: a limit of its queue, not admitted yet, or only rentable later."""
    if (held_back := _why_held_back(engine, job)) is not None:
        return held_back
    if engine.state.latest(job) is None:
        return Fresh()
    if (failed := _failed_wait(engine, job, verdicts)) is not None:
        return failed
    if job.due is not None or any(each.role is Role.OWNED for each in possible):
        return None
    names = tuple(each.cluster for each in possible)
    spills_at = _spills_at(engine, job, verdicts)
    return NotRented(names) if spills_at is None else WaitNotOver(names, spills_at)


def _why_it_does_not_fit(engine: Decider, job: Job, allowed: Sequence[ClusterAnswer]) -> Reason:
    """Return why a job does not start on the clusters where it may."""
    if (away := _why_unavailable([each.reason for each in allowed])) is not None:
        return away
    if any(each.reason is None for each in allowed) and (cut := _why_unreached(engine, job)) is not None:
        return cut
    if (capped := capped_by(allowed)) is not None:
        return capped
    for kind in (ReservationClosed, Reserved):
        if kept := [each.reason for each in allowed if isinstance(each.reason, kind)]:
            return kept[0]
    if renting := [each.reason for each in allowed if isinstance(each.reason, RENTING)]:
        return min(renting, key=lambda reason: RENTING.index(type(reason)))
    elsewhere = (OverMaxCost, OverBudget, AtLimit, *AWAY)
    names = tuple(each.cluster for each in allowed if not isinstance(each.reason, elsewhere))
    limited = [each.reason for each in allowed if isinstance(each.reason, AtLimit)]
    if apart := [each.reason for each in allowed if isinstance(each.reason, NoRoomTogether | NoEmptyNode)]:
        return max(apart, key=lambda reason: reason.fitting)
    for lasting in (NoRoomInside, AgentsOutdated):
        if found := [each.reason for each in allowed if isinstance(each.reason, lasting)]:
            return found[0]
    return limited[0] if limited and not names else NoRoom(job.kind.shape.resources, names)


RENTING: Final = (
    FreeSoon,
    MachineComing,
    KeptForGang,
    KeptOffSpot,
    PoolAtMost,
    PoolOutOfMoney,
    NoOfferOpen,
    PoolIsPaused,
)
"""Reasons why a pool has no machine for a job, the one that will change soonest first."""
AWAY: Final = (BackingOff, AllDrained, NoNodeReady, ClusterDown, ClusterDrained, NotObserved)
"""Reasons why a cluster takes nothing now, whatever is free there. If clusters differ, the first one here is shown."""


def _why_unavailable(reasons: Sequence[Reason | None]) -> Reason | None:
    """Return why none of these clusters takes a job, if lack of capacity is not the cause."""
    if not all(isinstance(reason, AWAY) for reason in reasons):
        return None
    kind = next(kind for kind in AWAY if any(isinstance(reason, kind) for reason in reasons))
    alike = [reason for reason in reasons if isinstance(reason, kind)]
    first = alike[0]
    match first:
        case AllDrained():
            return _all_drained([each for each in alike if isinstance(each, AllDrained)])
        case NotObserved() | NoNodeReady():
            each = [reason.clusters for reason in alike if isinstance(reason, NotObserved | NoNodeReady)]
            return structs.replace(first, clusters=tuple(name for names in each for name in names))
        case _:
            backing_off = [reason for reason in alike if isinstance(reason, BackingOff)]
            return min(backing_off, key=lambda reason: reason.until, default=first)


def _all_drained(reasons: list[AllDrained]) -> AllDrained:
    """Combine the answers of several clusters."""
    return AllDrained(
        tuple(name for each in reasons for name in each.clusters),
        tuple(agent for each in reasons for agent in each.agents),
        tuple(why for each in reasons for why in each.why or ("",) * len(each.agents))
        if any(each.why for each in reasons)
        else (),
    )


def capped_by(verdicts: Iterable[ClusterAnswer]) -> OverMaxCost | OverBudget | None:
    """Return the cap that would need the least to allow renting, if caps block every rented cluster."""
    rented = [each.reason for each in verdicts if each.role is Role.RENTED and _possible(each)]
    capped = [reason for reason in rented if isinstance(reason, OverMaxCost | OverBudget)]
    if not capped or len(capped) < len(rented):
        return None
    return min(capped, key=lambda reason: reason.cost)


def _failed_wait(engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...]) -> PolicyFailed | None:
    """Return the failure of the wait policy, if it is what keeps a job from being rented."""
    rentable = any(each.role is Role.RENTED and _possible(each) for each in verdicts)
    if engine.state.latest(job) != FOREVER or job.due is not None or not rentable:
        return None
    policies = engine.policies
    name, error = policies.chosen.wait.name, policies.missing.get("wait")
    if error is None and (note := engine.state.policies.disabled.get("wait")) is not None:
        slow = f"it took {format_duration(note.took)} in one step and was disabled"
        name, error = note.before.wait.name, note.error or slow
    if error is None and isinstance(policies.wait, GuardedWait):
        error = policies.wait.error_of(policies.case_of(job, engine.state.facts.tally))
    return None if error is None else PolicyFailed(f"wait.{name}", error)


def _why_unreached(engine: Decider, job: Job) -> Reason | None:
    """Return why a cycle does not reach the lane of a job; walk the lanes like a cycle in which nothing fits."""
    index, policies = engine.index, engine.policies
    lane = index.known_lane(job.kind, job.user)
    first: JobId | None = None
    walk = Walk(index.queue.startable(), index.queue.jobs, policies.depth, len(index.queue.first))
    last = job.id
    while (found := walk.next()) is not None:
        if found[1].is_held_back:
            continue
        last = found[0][2]
        if first is None and policies.keeps_room_for(engine.state.jobs[last]):
            first = last
        if found[1] is lane:
            return None if first is None or first == job.id else KeptFor(first)
        walk.stuck()
    if last == job.id:
        return None
    return BehindOthers(last) if policies.backfill.strict else BeyondDepth(policies.depth)


def _ahead(index: SchedulingIndex, job: Job) -> tuple[int, bool]:
    """Count the queued jobs before this one, array members one by one; also return whether there may be more."""
    mine, jobs, count = index.spot(job), index.state.jobs, 0
    if len(jobs) <= MOST_AHEAD:
        ahead = (each for each in jobs.values() if type(each.phase) is Queued and index.spot(each) < mine)
        return sum(map(weight, ahead)), False
    walk = Walk(index.queue.lanes(), index.queue.jobs, len(index.queue.first) + 1, len(index.queue.first))
    for _ in range(MOST_AHEAD):
        found = walk.next()
        if found is None or found[0] >= mine:
            return count, False
        count += weight(jobs[found[0][2]])
        walk.go_on(found[1])
    return count, True
