"""Shows jobs in the form of the API."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from spillover.control.live.set_aside import SetAside
from spillover.control.requests.projects import reason_within
from spillover.control.views.tasks import nodes_of
from spillover.core.events import JobState, Like
from spillover.core.records.jobs import Ended, Job, Placed, Queued, Running, Spread
from spillover.core.state import State
from spillover.deciding.budgets.check import held_rest, open_rest
from spillover.deciding.engine import Engine
from spillover.deciding.expected import StartRange
from spillover.deciding.explain.explain import Explanation, explain, reason_of
from spillover.deciding.forecast.costs import cheapest, quote
from spillover.deciding.forecast.estimates import estimate, expected_end
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model import ranges
from spillover.model.ids import JobId, member_id, task_key
from spillover.model.job import Range
from spillover.model.reasons import (
    AgentSilent,
    ClusterDown,
    Reason,
    Stopping,
    TooDear,
    TooLate,
    code_of,
    text_of_cluster,
)
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, MONEY, SECOND, format_duration, format_money, format_time
from spillover.ports.archive import Finished
from spillover.wire.api import (
    ArrayView,
    ClusterVerdict,
    ExpectedStart,
    JobView,
    ReasonView,
    SetAsideView,
    WhyView,
)
from spillover.wire.journal import decode_reason


def when(at: int | None) -> str | None:
    """Return a time as text; None stays None."""
    return None if at is None else format_time(at)


def start_view(found: StartRange | None) -> ExpectedStart | None:
    """Return when a job is expected to start; None if it is not known."""
    return None if found is None else ExpectedStart(when(found.p50), when(found.p90))


def money(millionths: int) -> float:
    """Return an amount of money as a number."""
    return millionths / MONEY


def amounts(resources: Resources) -> dict[str, float]:
    """Return resources in the units of the API."""
    return {"cpu": resources.cpu / 1000, "memory": resources.memory, "gpu": resources.gpu}


def reason_view(reason: Reason | None, text: Callable[[Reason], str] = str) -> ReasonView | None:
    """Return a reason with its code, sentence and fields."""
    if reason is None:
        return None
    details = dict(_detail(name, getattr(reason, name)) for name in reason.__struct_fields__)
    return ReasonView(code_of(reason), text(reason), reason.never, details)


def _detail(name: str, value: Any) -> tuple[str, Any]:
    """Return a field of a reason in the units of the API: times as text, durations in seconds, resources by name."""
    if isinstance(value, Resources):
        return name, amounts(value)
    if name in {"at", "until"}:
        return name, format_time(value) if value < FOREVER else None
    if name in {"waited", "runs", "walltime", "grace"}:
        return f"{name}_s", value / SECOND
    if name in {"cost", "left", "limit", "held"}:
        return name, money(value)
    return name, msgspec.to_builtins(value)


class Reasons:
    """Finds the reasons of many jobs; derives a reason once for all jobs that share it."""

    def __init__(
        self,
        engine: Engine,
        project: str | None = None,
        cluster_reason: Callable[[Job], Reason | None] | None = None,
        problem: Callable[[str], str | None] | None = None,
    ) -> None:
        self._engine = engine
        self._problem = problem
        """Return why a cluster sends no reports; None if the server does not know."""
        self._cluster_reason = cluster_reason
        """Returns the cluster's reason why a placed job does not start or stop; None if no cluster is asked."""
        self._project = project
        """The only project whose jobs may be named; None means all."""
        self._queued: dict[object, ReasonView | None] = {}

    def of(self, job: Job) -> ReasonView | None:
        """Return the reason of one job; None if it has none."""
        if type(job.phase) is not Queued:
            return self._view(job)
        alike: object = (job.kind, self._engine.state.latest(job), job.due is None)
        if job.terms.max_cost is not None or self._engine.state.caps or self._engine.policies.guards:
            alike = (alike, job.terms, job.user, job.cost, job.predicted)
        if alike not in self._queued:
            self._queued[alike] = self._view(job)
        return self._queued[alike]

    def _view(self, job: Job) -> ReasonView | None:
        reason = reason_of(self._engine, job)
        if self._cluster_reason is not None and (reason is None or type(reason) is Stopping):
            reason = self._cluster_reason(job) or reason
        reason = with_problem(reason, self._problem)
        return reason_view(reason_within(reason, self._engine.state, self._project))


def with_problem(reason: Reason | None, problem: Callable[[str], str | None] | None) -> Reason | None:
    """Return the explanation with the reason why a cluster sends no reports."""
    if problem is None or not isinstance(reason, ClusterDown) or reason.why:
        return reason
    return msgspec.structs.replace(reason, why=problem(reason.cluster) or "")


def set_aside_views(engine: Engine, aside: SetAside, now: int, monotonic: int) -> list[SetAsideView]:
    """Return all work set aside by controllers and by the engine (which has its own clock), oldest first."""
    shift = now - monotonic
    found = [(each, shift) for each in aside] + [(each, 0) for each in engine.aside]
    return [
        SetAsideView(
            each.work,
            each.subject,
            each.reason,
            format_time(each.since + ahead),
            each.tries,
            format_time(each.next_try + ahead),
        )
        for each, ahead in sorted(found, key=lambda one: one[0].since + one[1])
    ]


def job_view(engine: Engine, job: Job, reasons: Reasons | None = None) -> JobView:
    """Return a job of the state; pass `reasons` to share them among many jobs."""
    phase = job.phase
    placed = phase if isinstance(phase, Placed | Running | Ended) else None
    started = (
        phase.since
        if isinstance(phase, Running | Spread)
        else phase.started
        if isinstance(phase, Ended)
        else None
    )
    expected = estimate(job, engine.policies.chosen.unknown_runtime)
    why = (
        phase.placed
        if isinstance(phase, Ended)
        else phase.why
        if isinstance(phase, Placed | Running)
        else None
    )
    return JobView(
        id=job.id,
        name=job.name,
        user=job.user,
        project=job.kind.project,
        queue=job.kind.queue,
        state=job.state,
        cluster=placed.cluster if placed is not None else None,
        node=placed.node if placed is not None else None,
        attempt=job.attempt,
        reason=(reasons or Reasons(engine)).of(job),
        submitted_at=format_time(job.submitted),
        started_at=when(started),
        finished_at=when(phase.at if isinstance(phase, Ended) else None),
        exit_code=phase.exit_code if isinstance(phase, Ended) else None,
        signal=phase.signal if isinstance(phase, Ended) else None,
        cost=money(job.cost),
        estimate_s=expected.runtime / SECOND,
        estimate_from=expected.source,
        priority=job.priority,
        resources=amounts(job.kind.shape.resources),
        placed_because=reason_view(why),
        array=array_view(engine.state, job),
        **costs_of(engine, job, expected.runtime),
        nodes=0 if (gang := job.extra.gang) is None else len({task.node for task in gang.tasks}),
        note=note_of(engine.index, job, engine.now) or None,
        walltime_s=None if (walltime := job.walltime) is None else walltime / SECOND,
        estimate_because=evidence_of(job),
    )


def evidence_of(job: Job | Finished) -> str | None:
    """Say which earlier runs tell how long a job takes; None if there are too few, or if it has an estimate."""
    found = job.evidence
    if found is None or job.predicted is None:
        return None
    match found.like:
        case Like.NAME:
            runs = f"runs of {job.name} by {job.user} with other arguments"
        case Like.JOB:
            runs = f"earlier runs of this very job by {job.user}"
        case Like.PROGRAM:
            runs = f"other runs of {job.name} by {job.user}"
        case Like.SHAPE:
            limit = job.terms.walltime
            asked = "its resources" if limit is None else f"its resources and {format_duration(limit)}"
            runs = f"other jobs of {job.user} with {asked}"
    than = "" if job.terms.walltime is None else f" than {format_duration(job.predicted)}"
    return f"{found.within} of {found.runs} {runs} took no longer{than}"


def costs_of(engine: Engine, job: Job, expected: int) -> dict[str, Any]:
    """Return the expected cost and the cost hold of a job; empty if it has ended."""
    if isinstance(job.phase, Ended):
        return {}
    quoted, hold = quote(engine.index, job, expected), job.extra.hold
    most = None if quoted is None else quoted.at_walltime
    return {
        "estimated_cost": None if quoted is None else money(quoted.expected),
        "cost_at_walltime": None if most is None else money(most),
        "held_cost": None if hold is None else money(hold.amount),
        "given_walltime_s": None if hold is None or hold.limit is None else hold.limit / SECOND,
    }


def note_of(index: SchedulingIndex, job: Job, now: int) -> str:
    """Return a warning that a job without walltime holds, or would hold, the rest of a budget; empty if it does not."""
    if isinstance(job.phase, Ended) or not index.state.caps:
        return ""
    if (rest := held_rest(index.state, job, now)) is not None:
        all_of = f"all {format_money(rest.amount)} that was left of the budget of {rest.whose}"
        return f"it holds {all_of} until it ends because it has no walltime; submit it again with a walltime"
    if isinstance(job.phase, Placed | Running) or (rest := open_rest(index.state, job, now)) is None:
        return ""
    if cheapest(index, job, 0) is None:
        return ""
    return (
        f"it has no walltime, so once rented it holds all that is left of the budget of {rest.whose} "
        f"({format_money(rest.amount)} now) and blocks other jobs; submit it again with a walltime"
    )


def array_view(state: State, job: Job) -> ArrayView | None:
    """Return the progress of an array; None for other jobs."""
    members = job.extra.members
    if members is None:
        return None
    waiting = JobState.HELD if job.state is JobState.HELD else JobState.QUEUED
    counts = Counter[str](members.ended)
    counts[waiting] += ranges.size(members.pending)
    counts[JobState.HELD] += ranges.size(members.blocked)
    counts.update(state.jobs[each].state for each in state.members.get(job.id, ()))
    return ArrayView(members.size, {each: count for each, count in counts.items() if count})


def pending_member(array: JobView, member: JobId) -> JobView:
    """Return a member that is not a separate job yet."""
    size = array.array.size if array.array is not None else 1
    return msgspec.structs.replace(
        array,
        id=member,
        array=None,
        cost=0.0,
        estimated_cost=None if array.estimated_cost is None else array.estimated_cost / size,
        cost_at_walltime=None if array.cost_at_walltime is None else array.cost_at_walltime / size,
    )


def finished_view(row: Finished, unknown_runtime: int) -> JobView:
    """Return a job of the archive."""
    array = None
    if row.array is not None:
        counts: dict[str, int] = msgspec.msgpack.decode(row.array)
        array = ArrayView(sum(counts.values()), counts)
    return JobView(
        id=row.job,
        name=row.name,
        user=row.user,
        project=row.project,
        queue=row.queue,
        state=row.state,
        cluster=row.cluster,
        node=row.node,
        attempt=row.attempt,
        reason=reason_view(None if row.why is None else decode_reason(row.why)),
        submitted_at=format_time(row.submitted),
        started_at=when(row.started),
        finished_at=when(row.finished),
        exit_code=row.exit_code,
        signal=row.signal,
        cost=money(row.cost),
        estimate_s=estimate(row, unknown_runtime).runtime / SECOND,
        estimate_from=estimate(row, unknown_runtime).source,
        priority=row.priority,
        resources=amounts(row.shape.resources),
        placed_because=reason_view(None if row.placed_why is None else decode_reason(row.placed_why)),
        array=array,
        nodes=nodes_of(row),
        walltime_s=None if row.terms.walltime is None else row.terms.walltime / SECOND,
        estimate_because=evidence_of(row),
    )


def why_view(
    engine: Engine,
    job: Job,
    now: int,
    project: str | None = None,
    cluster_reason: Callable[[Job], Reason | None] | None = None,
    problem: Callable[[str], str | None] | None = None,
    member: int | None = None,
    waits: Reason | None = None,
) -> WhyView:
    """Return everything about why a job is in its state; hide ids of other projects if a project is given.

    `member` is the index of a pending member, if the job is an array and the answer is about that member, and `waits`
    what that one waits for besides its array.

    `cluster_reason` returns the cluster's reason why a placed job does not start, or why a stopping one still exists.
    `problem` returns why a cluster sends no reports.
    """
    said = explain(engine, job)
    state = job.state
    if waits is not None:
        said, state = msgspec.structs.replace(said, reason=waits, spills_at=None), JobState.HELD
    reason = said.reason
    if cluster_reason is not None and (reason is None or type(reason) is Stopping):
        reason = cluster_reason(job) or reason
    reason = with_problem(reason, problem)
    said = msgspec.structs.replace(said, reason=reason_within(reason, engine.state, project))
    called, size, members = job.id, 1, job.extra.members
    if member is not None and members is not None:
        called, size = member_id(job.id, member), members.size
        earlier = ranges.size(members.pending) - ranges.size(
            ranges.minus(members.pending, (Range(0, member - 1),) if member else ())
        )
        said = msgspec.structs.replace(said, ahead=said.ahead + earlier)
    is_waiting = job.state in {JobState.QUEUED, JobState.HELD}
    ahead = is_prefetched(engine.state, job)
    latest = engine.state.latest(job)
    if ahead and latest is not None and job.due is None and latest < FOREVER:
        said = msgspec.structs.replace(said, spills_at=latest + engine.state.facts.jumped)
    spills_in = None if said.spills_at is None else max(0, said.spills_at - now)
    costs = costs_of(engine, job, said.estimate.runtime)
    return WhyView(
        id=called,
        state=state,
        reason=reason_view(said.reason),
        sentence=_with_note(
            sentence(job, said, now, ahead=ahead, called=called, held=state is JobState.HELD),
            note_of(engine.index, job, now),
        ),
        waiting_since=format_time(job.waiting_since) if is_waiting else None,
        waited_s=job.waited(now) / SECOND if is_waiting else None,
        spills_at=when(said.spills_at),
        spills_in_s=None if spills_in is None else spills_in / SECOND,
        ahead=said.ahead if state is JobState.QUEUED else None,
        more_ahead=said.more_ahead,
        estimate_s=said.estimate.runtime / SECOND,
        estimate_from=said.estimate.source,
        clusters=[
            ClusterVerdict(
                each.cluster, each.role, reason_view(with_problem(each.reason, problem), text_of_cluster)
            )
            for each in said.verdicts
        ],
        estimated_cost=_share(costs.get("estimated_cost"), size),
        cost_at_walltime=_share(costs.get("cost_at_walltime"), size),
        ends_at=None
        if ahead
        else when(expected_end(job, now, engine.policies.chosen.unknown_runtime, engine.state.facts.jumped)),
        estimate_because=evidence_of(job),
    )


def _share(cost: float | None, size: int) -> float | None:
    """Return the part of a cost that falls to one of so many members."""
    return None if cost is None else cost / size


def is_prefetched(state: State, job: Job) -> bool:
    """Return whether a job is prefetched: leased to a node without free capacity for it."""
    phase = job.phase
    node = state.nodes.get(f"{phase.cluster}/{phase.node}") if isinstance(phase, Placed) else None
    return node is not None and task_key(job.id, job.attempt) in node.ahead


def _with_note(text: str, note: str) -> str:
    return f"{text}; {note}" if note else text


def sentence(  # noqa: PLR0911 - one sentence for each phase
    job: Job, said: Explanation, now: int, *, ahead: bool = False, called: str = "", held: bool = False
) -> str:
    """Return the explanation as one sentence; `called` is the id of a pending member, if it is about that."""
    phase = job.phase
    if isinstance(phase, Placed) and ahead and said.reason is None:
        text = f"{job.id} is prefetched on {phase.cluster}/{phase.node} and starts when a task there ends"
        if said.spills_at is not None:
            text += f"; it may spill over in {format_duration(max(0, said.spills_at - now))}"
        return text
    if isinstance(phase, Running) and isinstance(said.reason, AgentSilent):
        return f"{job.id} may still run on {phase.cluster}/{phase.node}: {said.reason}"
    if isinstance(phase, Placed | Running):
        since = phase.since if isinstance(phase, Running) else phase.at
        what = "has run" if isinstance(phase, Running) else "was placed"
        spent = format_duration(now - since)
        ago = f"for {spent}" if isinstance(phase, Running) else f"{spent} ago"
        text = f"{job.id} {what} on {phase.cluster}/{phase.node} {ago}: {phase.why}"
        return text + _meanwhile(said.reason)
    if isinstance(phase, Ended):
        place = None if phase.cluster is None else f"{phase.cluster}/{phase.node}"
        return ended_sentence(job.id, phase.state, place, phase.why, phase.placed)
    if isinstance(phase, Spread):
        return f"{job.id} is an array, and all its members have been placed"
    text = f"{called or job.id} has waited {format_duration(job.waited(now))}: {said.reason}"
    if said.reason is not None and said.reason.never:
        return text + f"; {_never(said.reason)}"
    if held or job.state is JobState.HELD:
        return text
    more = " or more" if said.more_ahead else ""
    text += f"; {said.ahead}{more} job{'s are' if said.ahead != 1 else ' is'} ahead of it"
    if job.due is not None:
        return text + f"; it may be rented, because {job.due}"
    if said.spills_at is not None:
        return text + f"; it may spill over in {format_duration(max(0, said.spills_at - now))}"
    return text + "; it waits for owned capacity only"


def _meanwhile(reason: Reason | None) -> str:
    """Return what to add about a placed job."""
    match reason:
        case None:
            return ""
        case ClusterDown() | AgentSilent():
            return f"; {reason}"  # its subject is the cluster or the agent; that of others is the job
        case _:
            return f"; it {reason}"


_ENDS: Final = {
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.TIMED_OUT: "timed out",
}


def ended_sentence(job: str, state: str, place: str | None, why: object, because: object) -> str:
    """Return how and where a job ended, alike before and after archiving; reasons are printable, or None."""
    where = "" if place is None else f" on {place}"
    cause = "" if why is None else f": {why}"
    there = "" if because is None else f"; it ran there because {because}"
    return f"{job} {_ENDS[JobState(state)]}{where}{cause}{there}"


def _never(reason: Reason) -> str:
    """Return what follows from a permanent reason."""
    if isinstance(reason, TooDear):
        return "it will not run unless the cap is raised"
    if isinstance(reason, TooLate):
        return "it cannot end by its deadline"
    return "no known cluster could ever run it"


def finished_why(row: Finished, unknown_runtime: int) -> WhyView:
    """Return why a job of the archive ended as it did."""
    view = finished_view(row, unknown_runtime)
    place = None if view.cluster is None else f"{view.cluster}/{view.node}"
    why, because = view.reason, view.placed_because
    return WhyView(
        id=view.id,
        state=view.state,
        reason=view.reason,
        sentence=ended_sentence(view.id, view.state, place, why and why.message, because and because.message),
        waiting_since=None,
        waited_s=None,
        spills_at=None,
        spills_in_s=None,
        ahead=None,
        estimate_s=view.estimate_s,
        estimate_from=view.estimate_from,
        clusters=[],
        estimate_because=view.estimate_because,
    )
