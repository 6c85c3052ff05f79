"""Decides what an outcome means for a job: a retry, or an end."""

from typing import Final

from spillover.core.deciders.endings import attempt_cost, elapsed
from spillover.core.events import (
    Back,
    JobEnded,
    JobRequeued,
    JobState,
    Outcome,
    Stop,
    TaskEnd,
    Usage,
)
from spillover.core.proposals import Result
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.model.reasons import (
    CancelledBy,
    CouldNotStart,
    Exited,
    LostTooOften,
    NoSecret,
    OutOfMemory,
    OutputsNotKept,
    PastCap,
    PastDeadline,
    PastWalltime,
    Reason,
    ReportUnusable,
)

_BY_ITS_TASKS: Final = frozenset({Stop.TASK_FAILED, Stop.TASK_SUCCEEDED, Stop.UNPREPARED})


def again(job: Job, outcome: Outcome, exit_code: int | None) -> Back | None:
    """Return why to retry a job; None if it ends."""
    stopping = stop_of(job)
    match outcome:
        case Outcome.EXITED | Outcome.NOT_STARTED | Outcome.OUT_OF_MEMORY | Outcome.UNKEPT | Outcome.UNUSABLE:
            bad = exit_code != 0 or outcome in {Outcome.UNKEPT, Outcome.UNUSABLE}
            if stopping is Stop.REQUEUE and bad:
                return Back.REQUESTED  # the task ended before the request reached it
            if stopping is Stop.INTERRUPT and bad:
                return Back.INTERRUPTED  # as above
            if stopping is None and bad and job.exits < job.terms.retry.exit:
                return Back.EXIT
        case Outcome.LOST | Outcome.STOPPED if stopping is Stop.INTERRUPT:
            return Back.INTERRUPTED
        case Outcome.LOST:
            if stopping in {None, Stop.REQUEUE, Stop.RETURN} and job.lost < job.terms.retry.lost:
                return Back.LOST
        case Outcome.STOPPED:
            if stopping is Stop.RETURN:
                return Back.RETURNED
            if stopping in {None, Stop.REQUEUE}:
                return Back.REQUESTED  # also when its agent shut down in an orderly way
        case Outcome.WALLTIME | Outcome.RELEASED | Outcome.NO_SECRET:
            pass
    return None


def stop_of(job: Job) -> Stop | None:
    """Return why a whole job is being stopped; None if not, or if one task only stops the others of its gang."""
    stopping = job.phase.stopping if isinstance(job.phase, Placed | Running) else None
    return None if stopping in _BY_ITS_TASKS else stopping


def verdict(  # noqa: C901, PLR0911 - one answer for each outcome
    job: Job, outcome: Outcome, report: Result | TaskEnd | None = None, because: str = ""
) -> tuple[JobState, Reason | None]:
    """Return the terminal state and the reason for an outcome; without a report the job was lost."""
    phase = job.phase
    stopping, by = (phase.stopping, phase.by) if isinstance(phase, Placed | Running) else (None, "")
    if outcome is Outcome.WALLTIME:
        return JobState.TIMED_OUT, _past_walltime(job)
    if outcome in {Outcome.STOPPED, Outcome.LOST} and stopping is not None:
        match stopping:
            case Stop.CANCEL:
                return JobState.CANCELLED, CancelledBy(by)
            case Stop.DEADLINE:
                return JobState.TIMED_OUT, PastDeadline()
            case Stop.WALLTIME:
                return JobState.TIMED_OUT, _past_walltime(job)
            case (
                Stop.REQUEUE
                | Stop.RETURN
                | Stop.TASK_FAILED
                | Stop.TASK_SUCCEEDED
                | Stop.UNPREPARED
                | Stop.INTERRUPT
            ):
                pass
    if outcome is Outcome.LOST:
        return JobState.FAILED, LostTooOften(job.lost + 1, report.message if report is not None else because)
    exit_code, signal = (report.exit_code, report.signal) if report is not None else (None, None)
    if outcome is Outcome.NOT_STARTED:
        message = report.message if report is not None else ""
        return JobState.FAILED, CouldNotStart(message or "no reason was given", _where(job, report))
    if outcome is Outcome.NO_SECRET:
        return JobState.FAILED, NoSecret(report.message if report is not None else "")
    if outcome is Outcome.OUT_OF_MEMORY:
        peak = report.usage.peak_memory if report is not None else 0
        return JobState.FAILED, OutOfMemory(job.kind.shape.resources.memory, peak)
    if outcome is Outcome.UNKEPT:
        return JobState.FAILED, OutputsNotKept(report.message if report is not None else "")
    if outcome is Outcome.UNUSABLE:
        return JobState.FAILED, ReportUnusable(
            report.message if report is not None else "", _where(job, report)
        )
    if exit_code == 0:
        return JobState.SUCCEEDED, None
    return JobState.FAILED, Exited(exit_code, signal, report.rank if isinstance(report, TaskEnd) else None)


def _where(job: Job, report: Result | TaskEnd | None) -> str:
    """Return the node of the task that was reported; that of the first task if the report does not say which."""
    phase = job.phase
    if not isinstance(phase, Placed | Running):
        return ""
    return f"{phase.cluster}/{job.tasks[report.rank].node if isinstance(report, TaskEnd) else phase.node}"


def _past_walltime(job: Job) -> Reason:
    """Return the reason for a job that used up its time: its walltime, or the limit that its cap pays for."""
    return PastWalltime() if job.terms.walltime is not None or job.walltime is None else PastCap(job.walltime)


def lost(
    state: State, job: Job, now: int, because: str = "", *, interrupted: bool = False
) -> JobRequeued | JobEnded:
    """Decide on a job whose lease is void while its task may have run; `interrupted` if its machine was taken back."""
    ran = elapsed(state, job, now)
    cost = job.cost + (attempt_cost(state, job, ran) if type(job.phase) is Running else 0)
    back = again(job, Outcome.LOST, None)
    if interrupted and back in {None, Back.LOST} and stop_of(job) is None:
        back = Back.INTERRUPTED
    if back is not None:
        attempt, seq, began = job.attempt + 1, job.seq + 1, type(job.phase) is Running
        return JobRequeued(job.id, now, back, attempt, seq, cost, because=because, began=began)
    return _end_lost(job, now, ran, cost, because)


def released(job: Job, now: int, because: str = "", backoff: int = 0) -> JobRequeued | JobEnded:
    """Requeue a job that did not start, with the same attempt and a backoff; a job that is being stopped ends."""
    if stop_of(job) not in {None, Stop.INTERRUPT} and type(job.phase) is Placed:
        if (back := again(job, Outcome.STOPPED, None)) is not None:
            return JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, job.cost)
        return _end_lost(job, now, 0, job.cost)
    return requeued(job, now, because, backoff)


def requeued(job: Job, now: int, because: str = "", backoff: int = 0) -> JobRequeued:
    """Requeue a job that did not start, with the same attempt and a backoff."""
    backing_off = job.phase.cluster if backoff > 0 and isinstance(job.phase, Placed) else None
    return JobRequeued(
        job.id,
        now,
        Back.RELEASED,
        job.attempt,
        job.seq + 1,
        job.cost,
        because=because,
        backing_off=backing_off,
        until=now + backoff if backing_off is not None else 0,
    )


def _end_lost(job: Job, now: int, ran: int, cost: int, because: str = "") -> JobEnded:
    """Return the end of a job whose task is gone and is not retried."""
    ended, why = verdict(job, Outcome.LOST, because=because)
    since = job.phase.since if type(job.phase) is Running else None
    return JobEnded(job.id, now, ended, job.attempt, job.seq + 1, since, None, None, cost, Usage(ran), why)
