"""How a job ends, and what that means for its array and for jobs that wait for it."""

from collections.abc import Iterable

from spillover.core import ranges
from spillover.core.events import (
    AnyEvent,
    DependencyEnded,
    JobEnded,
    JobReleased,
    JobState,
    MembersDropped,
    Usage,
)
from spillover.core.jobs import Job, Running, Waiting
from spillover.core.state import State
from spillover.model.cluster import OWNED, cost_of_job
from spillover.model.ids import JobId, split_member
from spillover.model.job import WALLTIME_SLACK, On
from spillover.model.reasons import CancelledBy, DependencyFailed, MembersFailed, Reason

ITSELF = "spillover"
"""Who did what nobody asked for."""


def end_unplaced(
    job: JobId, attempt: int, seq: int, now: int, ended: JobState, why: Reason, cost: int = 0
) -> JobEnded:
    """The end of a job that holds no lease."""
    return JobEnded(job, now, ended, attempt, seq + 1, None, None, None, cost, Usage(), why)


def attempt_cost(state: State, job: Job, ran: int) -> int:
    """What the attempt that is under way costs if it ran this long, by the prices when it was placed."""
    spec = state.cluster_of(job)
    if spec is None or spec.role is OWNED:
        return 0  # it is there anyway
    return cost_of_job(spec, job.kind.shape, ran, job.terms.data)


def elapsed(state: State, job: Job, now: int) -> int:
    """How long a job has run as far as the book can tell: without spans by which clocks jumped, and no longer than it may.

    An agent that cannot be reached ends its tasks at their walltime all the same.
    """
    if type(job.phase) is not Running:
        return 0
    ran = max(0, now - job.phase.since - (state.facts.jumped - job.phase.jumped))
    walltime = job.walltime
    return ran if walltime is None else min(ran, walltime + job.terms.grace + WALLTIME_SLACK)


def finish(
    state: State, endings: Iterable[JobEnded], now: int, before: Iterable[AnyEvent] = ()
) -> list[AnyEvent]:
    """Events decided before, the endings, and what follows: arrays that end, jobs that may begin or never will."""
    events: list[AnyEvent] = list(before)
    endings = list(endings)
    dropped = {event.array: event for event in events if type(event) is MembersDropped}
    after: dict[JobId, list[JobId]] = {}
    """What each job still waits for, as these events leave it."""
    live: dict[JobId, int] = {}
    """How many members of each array go on, likewise."""
    spent: dict[JobId, int] = {}
    """What each array cost, likewise."""
    ended: dict[JobId, list[JobState]] = {}
    """How members of each array ended, likewise."""
    over: dict[JobId, None] = {}
    todo = list(reversed(endings))
    doomed = {ending.job: None for ending in todo}
    """Jobs whose end is decided, here or before."""
    while todo:
        ending = todo.pop()
        if ending.job in over:
            continue
        over[ending.job] = None
        events.append(ending)
        member = split_member(ending.job)
        if member is not None and (array := state.jobs.get(member[0])) is not None:
            live[array.id] = live.get(array.id, _live(array)) - 1
            spent[array.id] = spent.get(array.id, array.cost) + ending.cost
            ended.setdefault(array.id, []).append(ending.state)
            given_up = dropped.get(array.id)
            if live[array.id] == 0 and not _pending(array, given_up):
                counts = _counts(array, ended[array.id], given_up)
                todo.append(_end_of_array(array, now, counts, spent[array.id], ending.why))
        for waiter in state.waiters.get(ending.job, ()):
            job = state.jobs[waiter]
            if waiter in doomed:
                continue
            wanted = next(each for each in job.extra.after if each.job == ending.job)
            if wanted.on is On.SUCCESS and ending.state is not JobState.SUCCEEDED:
                doomed[waiter] = None
                why = DependencyFailed(ending.job)
                events += drop_pending(job, now, JobState.CANCELLED, ITSELF, dropped.get(waiter))
                todo.append(end_unplaced(waiter, job.attempt, job.seq, now, JobState.CANCELLED, why))
                continue
            events.append(DependencyEnded(waiter, ending.job))
            left = after.setdefault(waiter, [each.job for each in job.extra.after])
            left.remove(ending.job)
            if not left and may_queue(job, now):
                events.append(JobReleased(waiter, now, ITSELF))
    return events


def may_queue(job: Job, now: int) -> bool:
    """Whether nobody holds a waiting job and its time has come; other jobs are looked at apart."""
    not_before = job.extra.not_before
    return type(job.phase) is Waiting and job.phase.by is None and (not_before is None or not_before <= now)


def drop_pending(
    job: Job, now: int, ended: JobState, who: str, dropped: MembersDropped | None = None
) -> list[AnyEvent]:
    """Give up all members of an array that have not been placed, and were not given up before."""
    if job.extra.members is None:
        return []
    pending = ranges.minus(job.extra.members.pending, dropped.members if dropped is not None else ())
    return [MembersDropped(job.id, now, pending, ended, who)] if pending else []


def end_of_dropped(array: Job, now: int, ended: JobState, why: Reason) -> list[JobEnded]:
    """The end of an array whose pending members are given up, if none of its members goes on."""
    if _live(array):
        return []
    return [end_unplaced(array.id, array.attempt, array.seq, now, ended, why, array.cost)]


def drop_members(
    array: Job, now: int, members: ranges.Ranges, who: str
) -> tuple[MembersDropped, list[JobEnded]]:
    """Cancel some pending members of an array, and the array with them if nothing of it is left."""
    dropped = MembersDropped(array.id, now, members, JobState.CANCELLED, who)
    if _live(array) or _pending(array, dropped):
        return dropped, []
    why = CancelledBy(who)
    return dropped, [_end_of_array(array, now, _counts(array, [], dropped), array.cost, why)]


def _counts(array: Job, last: list[JobState], dropped: MembersDropped | None) -> dict[JobState, int]:
    """How the members of an array ended, once the last ones have and what was pending is given up."""
    counts = dict(array.extra.members.ended) if array.extra.members is not None else {}
    for state in last:
        counts[state] = counts.get(state, 0) + 1
    if dropped is not None:
        counts[dropped.state] = counts.get(dropped.state, 0) + ranges.size(dropped.members)
    return counts


def _end_of_array(
    array: Job, now: int, counts: dict[JobState, int], cost: int, last: Reason | None
) -> JobEnded:
    """The end of an array whose members ended so, the last one for this reason."""
    failed = sum(count for state, count in counts.items() if state is not JobState.SUCCEEDED)
    if not failed:
        return JobEnded(array.id, now, JobState.SUCCEEDED, 1, array.seq + 1, None, None, None, cost, Usage())
    worst = next(
        each for each in (JobState.CANCELLED, JobState.TIMED_OUT, JobState.FAILED) if counts.get(each)
    )
    why = last if worst is JobState.CANCELLED and type(last) is CancelledBy else MembersFailed(failed)
    return end_unplaced(array.id, 1, array.seq, now, worst, why, cost)


def _live(array: Job) -> int:
    return array.extra.members.live if array.extra.members is not None else 0


def _pending(array: Job, dropped: MembersDropped | None) -> int:
    """How many members are still to be placed, once some were given up."""
    if array.extra.members is None:
        return 0
    return ranges.size(array.extra.members.pending) - (
        ranges.size(dropped.members) if dropped is not None else 0
    )
