"""Decides how a job ends, and what that means for its array and for dependent jobs."""

from collections.abc import Iterable

from spillover.core.events import (
    AnyEvent,
    DependencyEnded,
    JobEnded,
    JobReleased,
    JobState,
    MembersDropped,
    Usage,
)
from spillover.core.records.jobs import Job, Running, Waiting
from spillover.core.state import State
from spillover.model import ranges
from spillover.model.cluster import OWNED, cost_of_job
from spillover.model.ids import JobId, split_member
from spillover.model.job import WALLTIME_SLACK
from spillover.model.reasons import (
    CancelledBy,
    DependencyFailed,
    DependencySucceeded,
    MembersFailed,
    Reason,
)

ITSELF = "spillover"
"""The author of actions that no person asked for."""


def end_unplaced(
    job: JobId, attempt: int, seq: int, now: int, ended: JobState, why: Reason, cost: int = 0
) -> JobEnded:
    """Return the end of a job that has no lease."""
    return JobEnded(job, now, ended, attempt, seq + 1, None, None, None, cost, Usage(), why)


def attempt_cost(state: State, job: Job, ran: int) -> int:
    """Return the cost of the current attempt if it ran this long, at the prices of its placement."""
    spec = state.cluster_of(job)
    if spec is None or spec.role is OWNED:
        return 0  # owned capacity costs nothing extra
    return cost_of_job(spec, job.shape, ran, job.terms.data)


def elapsed(state: State, job: Job, now: int) -> int:
    """Return how long a job has run as far as the state shows, without clock jumps and at most until it is killed.

    An agent kills its tasks at their walltime even if it is unreachable.
    """
    if type(job.phase) is not Running:
        return 0
    ran = max(0, now - job.phase.since - (state.facts.jumped - job.phase.jumped))
    walltime = job.walltime
    return ran if walltime is None else min(ran, walltime + job.terms.grace + WALLTIME_SLACK)


def finish(
    state: State, endings: Iterable[JobEnded], now: int, before: Iterable[AnyEvent] = ()
) -> list[AnyEvent]:
    """Return earlier events, the endings, and what follows: arrays that end, jobs that are released or cancelled."""
    events: list[AnyEvent] = list(before)
    endings = list(endings)
    dropped = {event.array: event for event in events if type(event) is MembersDropped}
    after: dict[JobId, list[JobId]] = {}
    """The remaining dependencies of each job, after these events."""
    live: dict[JobId, int] = {}
    """The number of live members of each array, after these events."""
    spent: dict[JobId, int] = {}
    """The cost of each array, after these events."""
    ended: dict[JobId, list[JobState]] = {}
    """The end states of members of each array in these events."""
    over: dict[JobId, None] = {}
    todo = list(reversed(endings))
    doomed = {ending.job: None for ending in todo}
    """Jobs whose end is decided, here or before."""
    # An ending may cause others: of its array, and of jobs that need its success. Follow them until none is left.
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
            elif _most(array) == live[array.id] + 1 and _waits_for_members(array, given_up):
                events.append(JobReleased(array.id, now, ITSELF))
        for waiter in state.waiters.get(ending.job, ()):
            job = state.jobs[waiter]
            if waiter in doomed:
                continue
            wanted = next(each for each in job.extra.after if each.job == ending.job)
            succeeded = ending.state is JobState.SUCCEEDED
            if not wanted.on.met(succeeded=succeeded):
                doomed[waiter] = None
                why = unmet(ending.job, succeeded=succeeded)
                events += drop_pending(job, now, JobState.CANCELLED, ITSELF, dropped.get(waiter))
                todo.append(end_unplaced(waiter, job.attempt, job.seq, now, JobState.CANCELLED, why))
                continue
            events.append(DependencyEnded(waiter, ending.job))
            left = after.setdefault(waiter, [each.job for each in job.extra.after])
            left.remove(ending.job)
            if not left and may_queue(job, now):
                events.append(JobReleased(waiter, now, ITSELF))
    return events


def unmet(job: JobId, *, succeeded: bool) -> Reason:
    """Return why a job never starts that needs another end of this one."""
    return DependencySucceeded(job) if succeeded else DependencyFailed(job)


def may_queue(job: Job, now: int) -> bool:
    """Return whether a waiting job has no hold and its time has come; dependencies are checked separately."""
    not_before = job.extra.not_before
    if type(job.phase) is not Waiting or job.phase.by is not None or job.throttled:
        return False
    return not_before is None or not_before <= now


def _waits_for_members(array: Job, dropped: MembersDropped | None) -> bool:
    """Return whether only the end of a member keeps the rest of an array from the queue."""
    return type(array.phase) is Waiting and array.phase.by is None and _pending(array, dropped) > 0


def drop_pending(
    job: Job, now: int, ended: JobState, who: str, dropped: MembersDropped | None = None
) -> list[AnyEvent]:
    """Drop all pending members of an array, except those dropped before."""
    if job.extra.members is None:
        return []
    pending = ranges.minus(job.extra.members.pending, dropped.members if dropped is not None else ())
    return [MembersDropped(job.id, now, pending, ended, who)] if pending else []


def end_of_dropped(array: Job, now: int, ended: JobState, why: Reason) -> list[JobEnded]:
    """Return the end of an array whose pending members are dropped, if no member is live."""
    if _live(array):
        return []
    return [end_unplaced(array.id, array.attempt, array.seq, now, ended, why, array.cost)]


def drop_members(
    array: Job, now: int, members: ranges.Ranges, who: str
) -> tuple[MembersDropped, list[JobEnded]]:
    """Cancel some pending members of an array, and end the array if nothing of it is left."""
    dropped = MembersDropped(array.id, now, members, JobState.CANCELLED, who)
    if _live(array) or _pending(array, dropped):
        return dropped, []
    why = CancelledBy(who)
    return dropped, [_end_of_array(array, now, _counts(array, [], dropped), array.cost, why)]


def _counts(array: Job, last: list[JobState], dropped: MembersDropped | None) -> dict[JobState, int]:
    """Count the end states of the members of an array, including the last ones and the dropped ones."""
    counts = dict(array.extra.members.ended) if array.extra.members is not None else {}
    for state in last:
        counts[state] = counts.get(state, 0) + 1
    if dropped is not None:
        counts[dropped.state] = counts.get(dropped.state, 0) + ranges.size(dropped.members)
    return counts


def _end_of_array(
    array: Job, now: int, counts: dict[JobState, int], cost: int, last: Reason | None
) -> JobEnded:
    """Return the end of an array from the end states of its members; `last` is the reason of the last one."""
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


def _most(array: Job) -> int:
    """Return how many members of an array may be live at a time; 0 is all."""
    return array.extra.members.most if array.extra.members is not None else 0


def _pending(array: Job, dropped: MembersDropped | None) -> int:
    """Return how many members are pending after some were dropped."""
    if array.extra.members is None:
        return 0
    return ranges.size(array.extra.members.pending) - (
        ranges.size(dropped.members) if dropped is not None else 0
    )
