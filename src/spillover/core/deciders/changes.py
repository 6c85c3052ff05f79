"""Decides on what people and alarms do to jobs."""

from collections.abc import Iterator

from spillover.core.deciders.arrays import members_of
from spillover.core.deciders.endings import (
    drop_members,
    drop_pending,
    end_of_dropped,
    end_unplaced,
    finish,
    may_queue,
)
from spillover.core.events import (
    AnyEvent,
    BackoffEnded,
    JobEnded,
    JobHeld,
    JobReleased,
    JobReprioritised,
    JobState,
    JobStopping,
    Stop,
)
from spillover.core.proposals import Act, Change, Changed, Done, Refusal, RefusalKind, Reply, SetPriority
from spillover.core.records.jobs import Ended, Job, Placed, Queued, Running, Spread, Waiting
from spillover.core.state import State
from spillover.model import ranges
from spillover.model.ids import JobId, split_member
from spillover.model.job import Range
from spillover.model.reasons import CancelledBy, PastDeadline


def change(state: State, proposal: Change, now: int) -> tuple[list[AnyEvent], Reply]:
    """Act on jobs, all or none, or on those that are in certain states."""
    if proposal.states is not None:
        return _change_some(state, proposal, now, proposal.states)
    events: list[AnyEvent] = []
    endings: list[JobEnded] = []
    pending: dict[JobId, list[Range]] = {}
    """Pending members to cancel, by array."""
    for each in dict.fromkeys(proposal.jobs):
        job = state.jobs.get(each)
        if job is None:
            member = pending_member(state, each)
            if member is None:
                return [], Refusal(RefusalKind.UNKNOWN, f"there is no job {each} that can be changed")
            if proposal.act is not Act.CANCEL:
                return [], Refusal(
                    RefusalKind.CONFLICT,
                    f"{each} has not been placed yet; {proposal.act} its array {member[0].id} instead",
                )
            pending.setdefault(member[0].id, []).append(Range(member[1], member[1]))
            continue
        match proposal.act:
            case Act.CANCEL:
                more, ends = stop(state, job, now, Stop.CANCEL, proposal.who)
                events += more
                endings += ends
            case Act.HOLD | Act.RELEASE | Act.REQUEUE:
                done = _ACTS[proposal.act](state, job, now, proposal.who)
                if isinstance(done, Refusal):
                    return [], done
                events += done
    for array, members in pending.items():
        if array not in proposal.jobs:  # otherwise the whole array is cancelled anyway
            dropped, ends = drop_members(state.jobs[array], now, ranges.merged(members), proposal.who)
            events.append(dropped)
            endings += ends
    return finish(state, endings, now, events), Done()


def _change_some(
    state: State, proposal: Change, now: int, states: frozenset[JobState]
) -> tuple[list[AnyEvent], Reply]:
    """Act on what is in certain states: of arrays, on pending members and on live ones, each by its own state."""
    events: list[AnyEvent] = []
    endings: list[JobEnded] = []
    changed: dict[JobId, None] = {}
    for each in dict.fromkeys(proposal.jobs):
        job = state.jobs.get(each)
        if job is None or type(job.phase) is Ended:
            continue  # it ended, or it never was
        if proposal.act is Act.CANCEL:
            for part, more, ends in _cancelled(state, job, now, proposal.who, states):
                if (more or ends) and part not in changed:  # a member may also be named by itself
                    changed[part] = None
                    events += more
                    endings += ends
            continue
        for one in _parts(state, job, proposal.act, states):
            done = _ACTS[proposal.act](state, one, now, proposal.who)
            if done and not isinstance(done, Refusal) and one.id not in changed:
                changed[one.id] = None
                events += done
    return finish(state, endings, now, events), Changed(tuple(changed))


def _parts(state: State, job: Job, act: Act, states: frozenset[JobState]) -> list[Job]:
    """Return the jobs in certain states that an action on a job concerns; requeue concerns members of an array."""
    found = [job] if job.extra.members is None or act is not Act.REQUEUE else members_of(state, job)
    return [each for each in found if each.state in states]


def _cancelled(
    state: State, job: Job, now: int, who: str, states: frozenset[JobState]
) -> Iterator[tuple[JobId, list[AnyEvent], list[JobEnded]]]:
    """Yield what cancels the parts of a job that are in certain states."""
    if job.extra.members is None:
        if job.state in states:
            yield job.id, *stop(state, job, now, Stop.CANCEL, who)
        return
    stopped = False
    for member in members_of(state, job):
        if member.state in states:
            events, endings = stop(state, member, now, Stop.CANCEL, who)
            stopped = stopped or bool(endings)
            yield member.id, events, endings
    if job.state not in states or not (dropped := drop_pending(job, now, JobState.CANCELLED, who)):
        return
    # Members that end here end the array with them, if nothing else of it is left.
    yield job.id, dropped, [] if stopped else end_of_dropped(job, now, JobState.CANCELLED, CancelledBy(who))


def pending_member(state: State, job: JobId) -> tuple[Job, int] | None:
    """Return the array and index of a pending member; None if there is no such member."""
    member = split_member(job)
    array = state.jobs.get(member[0]) if member is not None else None
    if member is None or array is None or array.extra.members is None:
        return None
    return (array, member[1]) if ranges.contains(array.extra.members.unplaced, member[1]) else None


def set_priority(state: State, proposal: SetPriority, now: int) -> tuple[list[AnyEvent], Reply]:
    """Change the priority of a job that has not been placed."""
    job = state.jobs.get(proposal.job)
    if job is None:
        return [], Refusal(RefusalKind.UNKNOWN, f"there is no job {proposal.job} that can be changed")
    if not isinstance(job.phase, Queued | Waiting):
        return [], Refusal(
            RefusalKind.CONFLICT,
            f"{job.id} is {job.state}; only the priority of a waiting job can be changed",
        )
    if job.priority == proposal.priority:
        return [], Done()
    return [JobReprioritised(job.id, now, proposal.who, proposal.priority)], Done()


_GOES_ON = frozenset({None, Stop.REQUEUE, Stop.RETURN, Stop.TASK_FAILED, Stop.UNPREPARED, Stop.INTERRUPT})
"""Stops after which a job may be queued again. A final stop overrides them."""
_BOUNDS = frozenset({Stop.WALLTIME, Stop.DEADLINE})
"""Stops that still let a task upload its files after its process has exited. A cancel overrides them."""


def stop(state: State, job: Job, now: int, why: Stop, who: str) -> tuple[list[AnyEvent], list[JobEnded]]:
    """Stop a job: at once if it has no lease, otherwise through its agent. An ended job is left alone."""
    ended = JobState.CANCELLED if why is Stop.CANCEL else JobState.TIMED_OUT
    reason = CancelledBy(who) if why is Stop.CANCEL else PastDeadline()
    if job.extra.members is not None and type(job.phase) is not Ended:
        return _stop_array(state, job, now, why, who)
    match job.phase:
        case Waiting() | Queued():
            return [], [end_unplaced(job.id, job.attempt, job.seq, now, ended, reason, job.cost)]
        case Placed(stopping=before) | Running(stopping=before) if before in _GOES_ON or (
            why is Stop.CANCEL and before in _BOUNDS
        ):
            return [JobStopping(job.id, now, why, who)], []
        case _:
            return [], []


def _stop_array(
    state: State, array: Job, now: int, why: Stop, who: str
) -> tuple[list[AnyEvent], list[JobEnded]]:
    """Stop an array: drop pending members, and stop live ones one by one."""
    ended = JobState.CANCELLED if why is Stop.CANCEL else JobState.TIMED_OUT
    reason = CancelledBy(who) if why is Stop.CANCEL else PastDeadline()
    events = drop_pending(array, now, ended, who)
    endings: list[JobEnded] = []
    for member in members_of(state, array):
        more, ends = stop(state, member, now, why, who)
        events += more
        endings += ends
    return events, endings or end_of_dropped(array, now, ended, reason)


def _hold(state: State, job: Job, now: int, who: str) -> list[AnyEvent] | Refusal:
    if type(job.phase) is Spread:  # members that came back to the queue
        waits = [each for each in members_of(state, job) if isinstance(each.phase, Queued | Waiting)]
        if waits:
            return [JobHeld(each.id, now, who) for each in waits if not _is_held(each)]
    if _is_held(job):
        return []
    if not isinstance(job.phase, Queued | Waiting):
        return Refusal(RefusalKind.CONFLICT, f"{job.id} is {job.state}; only a waiting job can be held")
    return [JobHeld(job.id, now, who)]


def _is_held(job: Job) -> bool:
    """Return whether a person holds a job."""
    return type(job.phase) is Waiting and job.phase.by is not None


def _release(state: State, job: Job, now: int, who: str) -> list[AnyEvent] | Refusal:
    if type(job.phase) is Spread and (waits := [each for each in members_of(state, job) if _is_held(each)]):
        return [JobReleased(each.id, now, who) for each in waits]
    member = split_member(job.id)
    array = None if member is None else state.jobs.get(member[0])
    if array is not None and _is_held(array) and type(job.phase) is Waiting:
        return Refusal(RefusalKind.CONFLICT, f"{job.id} is held with its array; release {array.id} instead")
    if type(job.phase) is not Waiting:
        return Refusal(RefusalKind.CONFLICT, f"{job.id} is {job.state}; only a held job can be released")
    not_before = job.extra.not_before
    without = member is not None and job.phase.by is None  # it waits for other members
    if without or job.extra.after or job.waits_for_members or (not_before is not None and not_before > now):
        if job.phase.by is None:
            return Refusal(
                RefusalKind.CONFLICT, f"{job.id} has no hold to release; `spill why` shows what it waits for"
            )
        return [JobHeld(job.id, now, "", who)]
    return [JobReleased(job.id, now, who)]


def _requeue(state: State, job: Job, now: int, who: str) -> list[AnyEvent] | Refusal:
    placed = [each for each in members_of(state, job) if isinstance(each.phase, Placed | Running)]
    if placed:
        return [
            JobStopping(each.id, now, Stop.REQUEUE, who)
            for each in placed
            if isinstance(each.phase, Placed | Running) and each.phase.stopping is None
        ]
    if not isinstance(job.phase, Placed | Running):
        return Refusal(
            RefusalKind.CONFLICT, f"{job.id} is {job.state}; only a placed or running job can be requeued"
        )
    return [] if job.phase.stopping is not None else [JobStopping(job.id, now, Stop.REQUEUE, who)]


_ACTS = {Act.HOLD: _hold, Act.RELEASE: _release, Act.REQUEUE: _requeue}


def backoff_over(state: State, job_id: JobId, now: int) -> list[AnyEvent]:
    """End the backoffs of a job whose time is over."""
    job = state.jobs.get(job_id)
    if job is None or type(job.phase) is Ended:
        return []
    return [BackoffEnded(job_id, now, each.cluster) for each in job.extra.backoffs if each.until <= now]


def not_before_passed(state: State, job: JobId, now: int) -> list[AnyEvent]:
    """Release a job whose `not_before` has passed."""
    found = state.jobs.get(job)
    if found is None or found.extra.after or not may_queue(found, now):
        return []
    return [JobReleased(job, now, "spillover")]


def deadline_passed(state: State, job: JobId, now: int) -> list[AnyEvent]:
    """Stop a job whose deadline has passed."""
    found = state.jobs.get(job)
    if found is None or found.extra.deadline is None or found.extra.deadline > now:
        return []
    events, endings = stop(state, found, now, Stop.DEADLINE, "spillover")
    return finish(state, endings, now, events)


def return_due(state: State, job: JobId, now: int) -> list[AnyEvent]:
    """Stop a rented job that its wait policy returns to the queue."""
    found = state.jobs.get(job)
    if found is None or not isinstance(found.phase, Placed | Running) or found.phase.stopping is not None:
        return []
    return [JobStopping(job, now, Stop.RETURN, "spillover")]


def walltime_passed(state: State, job: JobId, now: int) -> list[AnyEvent]:
    """Stop a running job that its agent should have stopped by now."""
    found = state.jobs.get(job)
    if found is None or type(found.phase) is not Running or found.phase.stopping is not None:
        return []
    return [JobStopping(job, now, Stop.WALLTIME, "spillover")]
