"""Tells what people may want to know of from events, as values. It reads events and records, and changes nothing.

Members of arrays are folded: an array begins with its first member, and ends once, however many members it has.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events import (
    AgentLost,
    AnyEvent,
    Back,
    BudgetReached,
    ClusterChanged,
    JobEnded,
    JobRequeued,
    JobStarted,
    JobState,
    PoolPaused,
)
from spillover.core.records.jobs import Ended, Job, Running
from spillover.model.cluster import ClusterHealth
from spillover.model.ids import JobId, split_member
from spillover.model.notifications import When
from spillover.model.reasons import CancelledBy, Reason
from spillover.model.units import MONEY, SECOND, format_time
from spillover.ports.archive import Finished
from spillover.wire.journal import decode_reason
from spillover.wire.notices import NoticeBudget, NoticeCluster, NoticeJob, NoticeReason

_TOLD: Final = frozenset({Back.LOST, Back.EXIT, Back.REQUESTED, Back.INTERRUPTED})
"""Returns to the queue that people are told of. The others are moves of the scheduler before a task began."""
_DOWN: Final = frozenset({ClusterHealth.DEGRADED, ClusterHealth.FAILED})
_BEGUN: Final = 1 << 40
"""More than the members of any array."""
_NAMED: Final = 10
"""Most agents that a sentence names."""


class Happening(Struct, frozen=True):
    """Something that people may want to be told of."""

    revision: int
    """Of its event."""
    at: int
    """Nanoseconds UTC."""
    kinds: tuple[When, ...]
    """What it tells, the most telling first."""
    text: str
    project: str = ""
    """Empty if it belongs to none."""
    job: NoticeJob | None = None
    budget: NoticeBudget | None = None
    cluster: NoticeCluster | None = None
    spec: bytes = b""
    """Digest of the spec that says whom the job wants to be told; empty if it names nobody."""


KINDS: Final[dict[type, tuple[When, ...]]] = {
    JobEnded: (When.TIME_LIMIT, When.FAIL, When.END),
    JobStarted: (),
    JobRequeued: (When.REQUEUE,),
    BudgetReached: (When.BUDGET,),
    AgentLost: (When.AGENT_LOST,),
    ClusterChanged: (When.CLUSTER_FAILED, When.CLUSTER_READY),
    PoolPaused: (When.POOL_PAUSED,),
}
"""What each type of event may tell, besides that a job begins, which each of jobs may be the first to say."""


def of_job(revision: int, event: JobEnded | JobStarted | JobRequeued, job: Job) -> Happening | None:
    """Return what an event of a job or array tells besides its begin; None if nobody needs to know.

    A return to the queue is one of a job that has begun.
    """
    spec = job.spec if job.extra.notify else b""
    about = _about(job)
    match event:
        case JobStarted():
            return None
        case JobEnded():
            return _ended(revision, about, event, job, spec)
        case JobRequeued():
            if event.why not in _TOLD:
                return None
            why = event.because or _WHY[event.why]
            back = replace(about, state=JobState.QUEUED, attempt=event.attempt, cluster=None, node=None)
            text = f"{_called(back)} returned to the queue: {why}"
            return Happening(revision, event.at, (When.REQUEUE,), text, about.project, back, spec=spec)


def began_at(event: JobEnded | JobStarted | JobRequeued) -> int | None:
    """Return when the attempt of an event began, at the latest; None if no process ran in it.

    A task that ends soon is reported once, with its end. So each of these events may be the first that tells.
    """
    match event:
        case JobStarted():
            return event.at
        case JobEnded():
            return event.started
        case JobRequeued():
            return event.at if event.began else None


def of_begin(revision: int, event: JobEnded | JobStarted | JobRequeued, at: int, job: Job) -> Happening:
    """Return that a job begins, or an array with a member that an event is about."""
    about = replace(_about(job), state=JobState.RUNNING.value)
    if not isinstance(event, JobRequeued):
        about = replace(about, started_at=format_time(at))
    if about.members is None:
        about = replace(about, attempt=event.attempt)
    return _begun(revision, event, at, about, job.spec if job.extra.notify else b"")


def _begun(
    revision: int, event: JobEnded | JobStarted | JobRequeued, at: int, about: NoticeJob, spec: bytes
) -> Happening:
    # Messages are sent by their time, and this one must come before what else the event tells.
    at = at if isinstance(event, JobStarted) else min(at, event.at - 1)
    return Happening(revision, at, (When.BEGIN,), f"{_called(about)} began", about.project, about, spec=spec)


_WHY: Final = {
    Back.LOST: "its machine was lost",
    Back.EXIT: "its exit code is retried",
    Back.REQUESTED: "somebody asked for it",
    Back.INTERRUPTED: "its machine was taken back",
}


def of_finished(revision: int, event: JobEnded, row: Finished, *, begins: bool) -> list[Happening]:
    """Return what the end of a job tells that is in the archive; its spec says whom it names.

    `begins` says that nobody was told of its begin.
    """
    reason = None if row.why is None else decode_reason(row.why)
    members: dict[str, int] | None = None
    if row.array is not None:
        members = _members_of(row.array)
    about = NoticeJob(
        id=row.job,
        name=row.name,
        user=row.user,
        project=row.project,
        queue=row.queue,
        state=row.state,
        attempt=row.attempt,
        reason=_reason(reason),
        cluster=row.cluster,
        node=row.node,
        exit_code=row.exit_code,
        signal=row.signal,
        submitted_at=format_time(row.submitted),
        started_at=None if row.started is None else format_time(row.started),
        finished_at=format_time(row.finished),
        ran_s=row.usage[0] / SECOND if row.usage[0] else None,
        cost=row.cost / MONEY,
        members=members,
    )
    kinds = kinds_of_end(JobState(row.state), reason)
    found = [Happening(revision, event.at, kinds, _end_text(about), row.project, about, spec=row.spec)]
    if begins and event.started is not None:
        begun = NoticeJob(
            id=row.job,
            name=row.name,
            user=row.user,
            project=row.project,
            queue=row.queue,
            state=JobState.RUNNING.value,
            attempt=row.attempt,
            cluster=row.cluster,
            node=row.node,
            submitted_at=about.submitted_at,
            started_at=format_time(event.started),
        )
        found.insert(0, _begun(revision, event, event.started, begun, row.spec))
    return found


def of_server(revision: int, event: AnyEvent) -> Happening | None:
    """Return what an event tells that is not about a job; None if nobody needs to know."""
    match event:
        case BudgetReached():
            of, name, per, period = event.key.split("/")
            budget = NoticeBudget(
                of,
                name,
                per,
                period,
                event.percent,
                event.spent / MONEY,
                event.held / MONEY,
                event.limit / MONEY,
            )
            project = event.of_project() or ""
            return Happening(revision, event.at, (When.BUDGET,), str(event), project, budget=budget)
        case AgentLost(left=False):
            lost = NoticeCluster(event.cluster, agents=[event.node])
            return Happening(revision, event.at, (When.AGENT_LOST,), str(event), cluster=lost)
        case ClusterChanged(health=health) if health in _DOWN or health is ClusterHealth.READY:
            kind = When.CLUSTER_FAILED if health in _DOWN else When.CLUSTER_READY
            about = NoticeCluster(event.cluster, health.upper(), event.why or None)
            return Happening(revision, event.at, (kind,), str(event), cluster=about)
        case PoolPaused():
            about = NoticeCluster(event.cluster, "PAUSED", event.why or None)
            return Happening(revision, event.at, (When.POOL_PAUSED,), str(event), cluster=about)
        case _:
            return None


def together(happenings: Iterable[Happening]) -> list[Happening]:
    """Return the same with one message for all agents of a cluster, as a broken switch loses hundreds at once."""
    found: list[Happening] = []
    lost: dict[str, int] = {}
    for each in happenings:
        if (
            each.kinds != (When.AGENT_LOST,)
            or each.cluster is None
            or (at := lost.setdefault(each.cluster.name, len(found))) == len(found)
        ):
            found.append(each)
        else:
            found[at] = _joined(found[at], each)
    return found


def _joined(first: Happening, more: Happening) -> Happening:
    """Return agents that are lost as one happening, with the revision and time of the first one."""
    before, after = first.cluster, more.cluster
    names = list(dict.fromkeys([*((before and before.agents) or ()), *((after and after.agents) or ())]))
    cluster = "" if before is None else before.name
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    text = f"{len(names)} agents of {cluster} are lost: {', '.join(names[:_NAMED])}{rest}"
    return replace(first, text=text, cluster=NoticeCluster(cluster, agents=names))


def kinds_of_end(state: JobState, why: Reason | None) -> tuple[When, ...]:
    """Return what an end tells, the most telling first."""
    if state is JobState.SUCCEEDED or isinstance(why, CancelledBy):
        return (When.END,)
    return (When.TIME_LIMIT, When.FAIL, When.END) if state is JobState.TIMED_OUT else (When.FAIL, When.END)


def runs_of_arrays(jobs: Iterable[Job], since: int) -> list[tuple[JobId, int]]:
    """Return what some jobs say about which arrays began before a time: those have a sum above 0, over all jobs."""
    found: list[tuple[JobId, int]] = []
    for job in jobs:
        member, members = split_member(job.id), job.extra.members
        if members is not None:
            ran = sum(count for ended, count in members.ended.items() if ended is not JobState.CANCELLED)
            found.append((job.id, ran))
        elif member is not None and _ran_before(job, since):
            found.append((member[0], _BEGUN))
        elif member is not None and isinstance(job.phase, Ended):
            found.append((member[0], -int(job.phase.state is not JobState.CANCELLED)))
    return found  # what is left of an array's count are members in the archive, which ended before


def _ran_before(member: Job, since: int) -> bool:
    """Return whether a process of a member ran before a time."""
    phase = member.phase
    if any(each.at < since for each in member.extra.tried):
        return True
    match phase:
        case Running():
            return phase.since < since
        case Ended():
            return phase.started is not None and phase.started < since
        case _:
            return False


def began_before(job: Job, event: JobEnded | JobStarted | JobRequeued, since: int) -> bool:
    """Return whether a job had begun before what an event tells, although no event since a time said so.

    The job may be as it is after later events, so only times tell what came before.
    """
    match event:
        case JobStarted():
            return any(each.at < event.at for each in job.extra.tried)
        case JobRequeued():
            return any(each.at <= event.at for each in job.extra.tried)
        case JobEnded(started=started):
            at = event.at if started is None else started
            return at < since or any(each.at < at for each in job.extra.tried)


def _ended(revision: int, about: NoticeJob, event: JobEnded, job: Job, spec: bytes) -> Happening:
    started = None if event.started is None else format_time(event.started)
    about = replace(
        about,
        state=event.state.value,
        attempt=event.attempt,
        reason=_reason(event.why),
        exit_code=event.exit_code,
        signal=event.signal,
        started_at=started,
        finished_at=format_time(event.at),
        ran_s=event.usage.ran / SECOND if event.usage.ran else None,
        cost=event.cost / MONEY,
    )
    kinds = kinds_of_end(event.state, event.why)
    return Happening(revision, event.at, kinds, _end_text(about), job.kind.project, about, spec=spec)


def _about(job: Job) -> NoticeJob:
    """Return a job as it is, without what its event says."""
    members = job.extra.members
    counts = None
    if members is not None:
        counts = {state.value: count for state, count in sorted(members.ended.items()) if count}
    place = None if members is not None else job.phase
    return NoticeJob(
        id=job.id,
        name=job.name,
        user=job.user,
        project=job.kind.project,
        queue=job.kind.queue,
        state=job.state.value,
        attempt=job.attempt,
        cluster=getattr(place, "cluster", None),
        node=getattr(place, "node", None),
        submitted_at=format_time(job.submitted),
        members=counts,
    )


def _members_of(packed: bytes) -> dict[str, int]:
    counts: dict[str, Any] = msgspec.msgpack.decode(packed)
    return {state: int(count) for state, count in sorted(counts.items()) if count}


def _reason(why: Reason | None) -> NoticeReason | None:
    return None if why is None else NoticeReason(str(why.__struct_config__.tag), str(why))


def _called(about: NoticeJob) -> str:
    what = "array" if about.members is not None else "job"
    return f"{what} {about.name} ({about.id}) of project {about.project}"


def _end_text(about: NoticeJob) -> str:
    why = "" if about.reason is None else f": {about.reason.message}"
    return f"{_called(about)} {_ENDED.get(about.state, about.state)}{why}"


_ENDED: Final = {
    JobState.SUCCEEDED.value: "succeeded",
    JobState.FAILED.value: "failed",
    JobState.CANCELLED.value: "was cancelled",
    JobState.TIMED_OUT.value: "timed out",
}
