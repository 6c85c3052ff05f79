"""Decides on gangs whose tasks report separately. A failed task stops the others, and the job ends with the last."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from spillover.core.deciders.endings import ITSELF, attempt_cost, elapsed
from spillover.core.deciders.verdicts import again, released, requeued, stop_of, verdict
from spillover.core.events import (
    AnyEvent,
    Back,
    JobEnded,
    JobRequeued,
    JobState,
    JobStopping,
    Outcome,
    Stop,
    TaskEnd,
    TasksEnded,
    Usage,
)
from spillover.core.proposals import Done, GangOverdue, Reply
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.tasks import (
    LEADER,
    Gang,
    JobTask,
    deciding_end,
    ends_gang,
    fails_gang,
    usage_of,
)
from spillover.core.state import State
from spillover.model.job import OnTaskFailure, Terms
from spillover.model.units import SECOND

UNPREPARED_BACKOFF: Final = 5 * SECOND
"""Nanoseconds for which a gang backs off from its cluster after its first try, and so much more after each other."""
TOO_LATE: Final = "not all of its nodes prepared their tasks in time"
_DEFAULTS: Final = Terms()
_BY_ITSELF: Final = frozenset({Outcome.EXITED, Outcome.OUT_OF_MEMORY})
"""Outcomes of tasks that failed by themselves, so that they can start again in their place."""
_BEFORE_START: Final = frozenset({Outcome.NOT_STARTED, Outcome.RELEASED, Outcome.LOST, Outcome.NO_SECRET})
"""Outcomes of tasks that may never have run."""
_OVER: Final = frozenset({Outcome.STOPPED, Outcome.LOST})
"""Outcomes of gangs that were stopped."""


def tasks_end(state: State, job: Job, ends: Sequence[TaskEnd], now: int) -> list[AnyEvent]:
    """Return the events that follow when these live tasks of a gang end.

    A `JobEnded` is always the last event. It has consequences for other jobs, see `finish`.
    """
    gang, phase = job.extra.gang, job.phase
    if gang is None or not isinstance(phase, Placed | Running):
        raise TypeError(job)
    events: list[AnyEvent] = [TasksEnded(job.id, now, job.attempt, job.seq, tuple(ends))]
    if gang.live == len(ends):
        return [*events, _conclusion(state, job, _all_ends(gang, ends), now)]
    if phase.stopping is None and (why := _stops_others(job, ends)) is not None:
        events.append(JobStopping(job.id, now, why, ITSELF))
    return events


def _stops_others(job: Job, ends: Sequence[TaskEnd]) -> Stop | None:
    """Return why the tasks that still run must stop when these have ended; None if they go on."""
    if any(ends_gang(end, job.terms) for end in ends):
        return Stop.TASK_SUCCEEDED
    if any(fails_gang(end, job.terms) or _never_began(job, end) for end in ends):
        return Stop.TASK_FAILED
    return None


def starts_again(job: Job, end: TaskEnd) -> bool:
    """Return whether a task that ended this way starts again in its place, while the others go on."""
    if job.terms.on_task_failure is not OnTaskFailure.RESTART or job.exits >= job.terms.retry.exit:
        return False
    stopping = job.phase.stopping if isinstance(job.phase, Placed | Running) else None
    return stopping is None and end.state is JobState.FAILED and end.outcome in _BY_ITSELF


def _never_began(job: Job, end: TaskEnd) -> bool:
    """Return whether a task ended before any of its gang began: then the gang cannot start as a whole."""
    return type(job.phase) is Placed and end.outcome in _BEFORE_START


def given_up(state: State, job: Job, task: JobTask, now: int, because: str = "", backoff: int = 0) -> TaskEnd:
    """Return the end of a task that its agent does not have: released if it never started, otherwise lost."""
    if task.state is JobState.PLACED:
        return TaskEnd(task.rank, now, JobState.CANCELLED, Outcome.RELEASED, message=because, backoff=backoff)
    return lost_task(state, job, task, now, because)


def lost_task(state: State, job: Job, task: JobTask, now: int, because: str = "") -> TaskEnd:
    """Return the end of a task whose lease is void while it may have run."""
    ran = elapsed(state, job, now)
    if task.started is None:
        ran = 0
    elif isinstance(job.phase, Running):
        ran = max(0, ran - (task.started - job.phase.since))
    return TaskEnd(task.rank, now, JobState.FAILED, Outcome.LOST, usage=Usage(ran), message=because)


def starts_still(job: Job) -> bool:
    """Return whether some tasks of a placed gang have not started."""
    gang = job.extra.gang
    return gang is not None and any(task.state is JobState.PLACED for task in gang.tasks)


def overdue(state: State, proposal: GangOverdue, now: int) -> tuple[list[AnyEvent], Reply]:
    """Give back a gang of which not all tasks have started in time."""
    job = state.jobs.get(proposal.lease.job)
    if job is None or job.lease != proposal.lease or not isinstance(job.phase, Placed | Running):
        return [], Done()
    if job.phase.stopping is not None or not (proposal.external or starts_still(job)):
        return [], Done()
    return [JobStopping(job.id, now, Stop.UNPREPARED, ITSELF)], Done()


def was_late(job: Job, outcome: Outcome) -> bool:
    """Return whether a gang ended because its server stopped it as overdue."""
    stopping = job.phase.stopping if isinstance(job.phase, Placed | Running) else None
    return stopping is Stop.UNPREPARED and outcome in _OVER


def in_part(job: Job) -> str:
    """Return how much of a gang has started, for one that was stopped as overdue and whose driver says no more."""
    started = sum(task.started is not None for task in job.tasks)
    return f"only {started} of its {len(job.tasks)} tasks had started in time"


def may_try_again(job: Job) -> bool:
    """Return whether a gang that could not be prepared is tried again."""
    return stop_of(job) is None and job.lost < job.terms.retry.lost


def _all_ends(gang: Gang, last: Sequence[TaskEnd]) -> list[TaskEnd]:
    """Return the ends of all tasks of a gang, including the last ones."""
    return [*(task.end for task in gang.tasks if task.end is not None), *last]


def _conclusion(state: State, job: Job, ends: Sequence[TaskEnd], now: int) -> JobRequeued | JobEnded:
    """Decide on a job all of whose tasks have ended."""
    # What a job says about its tasks does not count against whoever stops all of it.
    end, used = deciding_end(ends, job.terms if stop_of(job) is None else _DEFAULTS), usage_of(ends)
    leader = next(each for each in ends if each.rank == LEADER)
    phase, outcome = job.phase, end.outcome or Outcome.EXITED
    began = type(phase) is Running or used.ran > 0
    cost = job.cost + (attempt_cost(state, job, used.ran) if began else 0)
    if (why_not := _unprepared(job, end, began=began)) is not None:
        if may_try_again(job):
            failed = [job.tasks[each.rank].node for each in ends if each.outcome is Outcome.NOT_STARTED]
            return replace(given_back(job, now, cost, why_not), unprepared=tuple(dict.fromkeys(failed)))
        outcome, end = Outcome.NOT_STARTED, replace(end, state=JobState.FAILED, message=why_not)
    if outcome is Outcome.RELEASED:
        if not began:
            back = released(job, now, end.message, max(each.backoff for each in ends))
            return replace(back, rank=end.rank) if type(back) is JobEnded else back
        outcome = Outcome.STOPPED  # other tasks had begun, so the attempt counts
    if end.state is not JobState.SUCCEEDED:
        why_back = again(job, outcome, end.exit_code)
        if why_back is Back.INTERRUPTED and not began:
            return requeued(job, now, end.message)
        if why_back is not None:
            attempt, seq, saved = job.attempt + 1, job.seq + 1, _saved(ends)
            return JobRequeued(
                job.id,
                now,
                why_back,
                attempt,
                seq,
                cost,
                leader.outputs,
                end.message,
                saved=saved,
                began=began,
            )
    finished = max(each.at for each in ends)
    since = phase.since if type(phase) is Running else None
    if since is None and began:
        since = max(job.submitted, finished - used.ran)
    ended, why = verdict(job, outcome, end)
    return JobEnded(
        job.id,
        finished if since is None else max(since, finished),
        ended,
        job.attempt,
        job.seq,
        since,
        end.exit_code,
        end.signal,
        cost,
        used,
        why,
        leader.value,
        leader.value_digest,
        leader.outputs,
        end.rank,
        () if ended is JobState.SUCCEEDED else _saved(ends),
    )


def _saved(ends: Sequence[TaskEnd]) -> tuple[str, ...]:
    """Return what tasks saved for later attempts, by rank; nothing if none did."""
    saved = tuple([end.saved for end in sorted(ends, key=lambda end: end.rank)])
    return saved if any(saved) else ()


def given_back(job: Job, now: int, cost: int, because: str, backoff: int = 0) -> JobRequeued:
    """Requeue a gang that could not start. It backs off from its cluster, so that it does not try the same at once."""
    cluster = job.phase.cluster if isinstance(job.phase, Placed | Running) else None
    until = now + (backoff or UNPREPARED_BACKOFF * (job.lost + 1))
    attempt, seq = job.attempt + 1, job.seq + 1
    return JobRequeued(
        job.id,
        now,
        Back.UNPREPARED,
        attempt,
        seq,
        cost,
        because=because,
        backing_off=cluster,
        until=until if cluster is not None else 0,
    )


def _unprepared(job: Job, end: TaskEnd, *, began: bool) -> str | None:
    """Return why a gang could not start as a whole; None if that is not why it ended."""
    if end.outcome is Outcome.NOT_STARTED and not began:
        return end.message
    late = isinstance(job.phase, Placed | Running) and job.phase.stopping is Stop.UNPREPARED
    return TOO_LATE if late else None
