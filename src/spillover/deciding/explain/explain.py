"""Why a job is where it is, and what would change that: derived when somebody asks, from what the cycle itself looks at."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct, structs

from spillover.core.appliers.queue import weight
from spillover.core.jobs import Ended, Job, Placed, Queued, Running, Spread, Waiting
from spillover.core.state import State
from spillover.deciding.budgets.check import BudgetCheck, CostHold, too_dear
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.explain.refusals import refusal_of, why_never
from spillover.deciding.forecast.estimates import Estimate, estimate, late_on
from spillover.deciding.guard import GuardedWait
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Walk
from spillover.model.cluster import ClusterHealth, Role
from spillover.model.ids import ClusterName, JobId
from spillover.model.reasons import (
    AfterJobs,
    AllDrained,
    AtLimit,
    BackingOff,
    BehindOthers,
    BeyondDepth,
    ClusterDown,
    ClusterDrained,
    Fresh,
    GangUnsupported,
    Held,
    KeptFor,
    NoNodeReady,
    NoRoom,
    NotBefore,
    NotConfigured,
    NotObserved,
    NotRented,
    OverBudget,
    OverMaxCost,
    PolicyFailed,
    Reason,
    Stopping,
    WaitNotOver,
)
from spillover.model.units import FOREVER, format_duration

MOST_AHEAD: Final = 5000
"""Jobs ahead of one that are counted, in the order in which they are tried."""


class Decider(Protocol):
    """What explaining looks at: an engine."""

    state: State
    now: int

    @property
    def index(self) -> SchedulingIndex:
        """What cycles look at."""
        ...

    @property
    def policies(self) -> Policies:
        """What decides."""
        ...


class ClusterAnswer(Struct, frozen=True):
    """What one cluster says to a job that is queued."""

    cluster: ClusterName
    role: Role
    reason: Reason | None
    """None when it would take the job now."""


class Explanation(Struct, frozen=True):
    """All there is to say about a job that has not ended."""

    reason: Reason | None
    """None for a job that is placed and well."""
    verdicts: tuple[ClusterAnswer, ...]
    ahead: int
    """Queued jobs that are tried before it; where the queue is long, at least so many."""
    spills_at: int | None
    """When it may be rented, nanoseconds UTC; None if never, or already."""
    estimate: Estimate
    more_ahead: bool = False
    """Whether more than that may be ahead: only so many are counted."""


def explain(engine: Decider, job: Job, held: Iterable[CostHold] = ()) -> Explanation:
    """Say why. `held` is what a plan that is only tried would hold."""
    expected = estimate(job, engine.policies.chosen.unknown_runtime)
    if type(job.phase) is not Queued:
        return Explanation(_unqueued(engine.state, job), (), 0, None, expected)
    verdicts = _verdicts(engine, job, held)
    reason = _why_queued(engine, job, verdicts)
    ahead, more = _ahead(engine.index, job)
    return Explanation(reason, verdicts, ahead, _spills_at(engine, job, verdicts), expected, more)


def reason_of(engine: Decider, job: Job) -> Reason | None:
    """The reason alone: of a queued job, the same for all of its lane that wait alike."""
    if type(job.phase) is not Queued:
        return _unqueued(engine.state, job)
    return _why_queued(engine, job, _verdicts(engine, job))


def _verdicts(engine: Decider, job: Job, held: Iterable[CostHold] = ()) -> tuple[ClusterAnswer, ...]:
    """What each cluster says, in the order they are configured."""
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
    """The same, of a job that no owned cluster could run: none is waited for."""
    if not isinstance(verdict.reason, OverMaxCost | OverBudget):
        return verdict
    return structs.replace(verdict, reason=structs.replace(verdict.reason, owned=False))


def _verdict(engine: Decider, check: BudgetCheck, cluster: Capacity, job: Job) -> Reason | None:
    """Why a cluster does not take a job now; None if it does. A cap that it would pass tells more than that there is no room."""
    refusal = refusal_of(engine.state, cluster, job.kind.shape)
    if refusal is not None and refusal.never:
        return refusal
    if (late := late_on(job, cluster.spec, engine.now)) is not None:
        return late
    if cluster.name in job.kind.backing_off and (refusal is None or isinstance(refusal, NoRoom)):
        return next(
            BackingOff(each.cluster, each.until, each.because)
            for each in job.extra.backoffs
            if each.cluster == cluster.name
        )
    if cluster.spec.role is Role.OWNED or not (refusal is None or isinstance(refusal, NoRoom)):
        return refusal
    answer = check.ask(job, cluster.spec, estimate(job, 0).runtime) if check.concerns(job) else None
    if isinstance(answer, OverBudget):
        return _with_holder(engine, job, answer)
    return refusal if answer is None or isinstance(answer, CostHold) else answer


def _with_holder(engine: Decider, job: Job, over: OverBudget) -> OverBudget:
    """The same, with the job that holds what was left of the budget because it has no walltime, if there is one."""
    for cap in engine.state.caps.on(job.kind.project, job.user, engine.now):
        if (f"{cap.budget.of} {cap.name}", cap.budget.per) == (over.whose, over.per):
            found = engine.index.holders.most(cap.key)
            if found is not None:
                return structs.replace(over, holder=found[0], held=found[1])
    return over


def _spills_at(engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...]) -> int | None:
    """When a job may be rented, if some cluster could be rented for it and it may not be rented yet."""
    rentable = any(each.role is Role.RENTED and _possible(each) for each in verdicts)
    latest = engine.state.latest(job)
    if latest is None or latest >= FOREVER or job.due is not None or not rentable:
        return None
    return latest + engine.state.facts.jumped


def _possible(verdict: ClusterAnswer) -> bool:
    return verdict.reason is None or not verdict.reason.never


def _unqueued(state: State, job: Job) -> Reason | None:
    """Why a job that is not queued is where it is."""
    match job.phase:
        case Waiting(by):
            if by is not None:
                return Held(by)
            if job.extra.after:
                return AfterJobs(tuple(wanted.job for wanted in job.extra.after))
            return NotBefore(job.extra.not_before or 0)
        case Placed() | Running():
            if job.phase.stopping is not None:
                return Stopping(job.phase.stopping)
            return _out_of_sight(state, job, job.phase.cluster)
        case Ended():
            return job.phase.why
        case Spread() | Queued():
            return None


def _out_of_sight(state: State, job: Job, cluster: ClusterName) -> Reason | None:
    """Why nothing is known of a job that an external cluster has; None if that cluster is watched and answers, or is one of agents."""
    spec, condition = state.cluster_of(job), state.conditions.get(cluster)
    if spec is None or not spec.external:
        return None
    if cluster not in state.clusters:
        return NotConfigured(cluster)
    if condition is None or condition.health is ClusterHealth.READY:
        return None
    return ClusterDown(cluster, condition.health, condition.since, condition.why)


def _why_queued(engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...]) -> Reason:
    """The one reason that comes first: never before not now, then why it may not start yet, then why it does not fit."""
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
    """Why no cluster will ever take a job; None if one may."""
    shape = job.kind.shape
    gangs = job.extra.members is None and any(
        cluster.spec.gangs for cluster in engine.index.capacity.values()
    )
    if shape.tasks > 1 and not gangs:
        return GangUnsupported(shape.tasks)
    if not possible:
        return why_never(engine.index, shape, [each.reason for each in verdicts])
    return too_dear([(each.cluster, each.reason) for each in possible])


def _why_not_yet(
    engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...], possible: Sequence[ClusterAnswer]
) -> Reason | None:
    """Why a job may start nowhere yet: nobody has looked at it, or it may only be rented, and not now; None if it may."""
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
    """What keeps a job from the clusters on which it may start."""
    if (away := _away([each.reason for each in allowed])) is not None:
        return away
    if any(each.reason is None for each in allowed) and (cut := _cut_off(engine, job)) is not None:
        return cut
    if (capped := capped_by(allowed)) is not None:
        return capped
    elsewhere = (OverMaxCost, OverBudget, AtLimit, *AWAY)
    names = tuple(each.cluster for each in allowed if not isinstance(each.reason, elsewhere))
    limited = [each.reason for each in allowed if isinstance(each.reason, AtLimit)]
    return limited[0] if limited and not names else NoRoom(job.kind.shape.resources, names)


AWAY: Final = (BackingOff, AllDrained, NoNodeReady, ClusterDown, ClusterDrained, NotObserved)
"""Why a cluster takes nothing now, whatever room it has; what is told first if each cluster has another reason."""


def _away(reasons: Sequence[Reason | None]) -> Reason | None:
    """Why none of these clusters takes a job, if it is not for want of room."""
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
    """What several clusters say, as one."""
    return AllDrained(
        tuple(name for each in reasons for name in each.clusters),
        tuple(agent for each in reasons for agent in each.agents),
    )


def capped_by(verdicts: Iterable[ClusterAnswer]) -> OverMaxCost | OverBudget | None:
    """The cap that is nearest to letting a job be rented, if caps are what keeps it from every rented cluster."""
    rented = [each.reason for each in verdicts if each.role is Role.RENTED and _possible(each)]
    capped = [reason for reason in rented if isinstance(reason, OverMaxCost | OverBudget)]
    if not capped or len(capped) < len(rented):
        return None
    return min(capped, key=lambda reason: reason.cost)


def _failed_wait(engine: Decider, job: Job, verdicts: tuple[ClusterAnswer, ...]) -> PolicyFailed | None:
    """Whether a policy that failed is what keeps a job from being rented."""
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


def _cut_off(engine: Decider, job: Job) -> Reason | None:
    """Whether others keep the cycle from this job's lane: it walks the lanes as the cycle does, as if none of them fitted."""
    index, policies = engine.index, engine.policies
    lane = index.lanes.get(job.kind)
    first: JobId | None = None
    walk = Walk(index.queue.lanes(), index.queue.jobs, policies.depth, len(index.queue.first))
    last = job.id
    while (found := walk.next()) is not None:
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
    """How many queued jobs sort before this one, members of arrays counted one by one, and whether there may be more."""
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
