"""What an outcome means for a job: that it is tried again, or how it ends."""

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
from spillover.core.jobs import Job, Placed, Running
from spillover.core.proposals import Result
from spillover.core.state import State
from spillover.model.reasons import (
    CancelledBy,
    CouldNotStart,
    Exited,
    LostTooOften,
    OutOfMemory,
    OutputsNotKept,
    PastCap,
    PastDeadline,
    PastWalltime,
    Reason,
    ReportUnusable,
)


def again(job: Job, outcome: Outcome, exit_code: int | None) -> Back | None:
    """Why the job is to be tried again; None if it is not."""
    stopping = stop_of(job)
    match outcome:
        case Outcome.EXITED | Outcome.NOT_STARTED | Outcome.OUT_OF_MEMORY | Outcome.UNKEPT | Outcome.UNUSABLE:
            bad = exit_code != 0 or outcome in {Outcome.UNKEPT, Outcome.UNUSABLE}
            if stopping is Stop.REQUEUE and bad:
                return Back.REQUESTED  # the task was faster than the request
            if stopping is None and bad and job.exits < job.terms.retry.exit:
                return Back.EXIT
        case Outcome.LOST:
            if stopping in {None, Stop.REQUEUE, Stop.RETURN} and job.lost < job.terms.retry.lost:
                return Back.LOST
        case Outcome.STOPPED:
            if stopping is Stop.RETURN:
                return Back.RETURNED
            if stopping in {None, Stop.REQUEUE}:
                return Back.REQUESTED  # also when its agent was shut down in good order
        case Outcome.WALLTIME | Outcome.RELEASED:
            pass
    return None


def stop_of(job: Job) -> Stop | None:
    """Why a placed job as a whole is being stopped; that a task of a gang failed stops the others, and says nothing of the job."""
    stopping = job.phase.stopping if isinstance(job.phase, Placed | Running) else None
    return None if stopping is Stop.TASK_FAILED else stopping


def verdict(  # noqa: C901, PLR0911 - one answer for each outcome
    job: Job, outcome: Outcome, told: Result | TaskEnd | None = None, because: str = ""
) -> tuple[JobState, Reason | None]:
    """The terminal state that an outcome means, and why; a job that nobody told of was lost."""
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
            case Stop.REQUEUE | Stop.RETURN | Stop.TASK_FAILED:
                pass
    if outcome is Outcome.LOST:
        return JobState.FAILED, LostTooOften(job.lost + 1, told.message if told is not None else because)
    exit_code, signal = (told.exit_code, told.signal) if told is not None else (None, None)
    if outcome is Outcome.NOT_STARTED:
        message = told.message if told is not None else ""
        return JobState.FAILED, CouldNotStart(message or "no reason was given", _where(job, told))
    if outcome is Outcome.OUT_OF_MEMORY:
        peak = told.usage.peak_memory if told is not None else 0
        return JobState.FAILED, OutOfMemory(job.kind.shape.resources.memory, peak)
    if outcome is Outcome.UNKEPT:
        return JobState.FAILED, OutputsNotKept(told.message if told is not None else "")
    if outcome is Outcome.UNUSABLE:
        return JobState.FAILED, ReportUnusable(told.message if told is not None else "", _where(job, told))
    if exit_code == 0:
        return JobState.SUCCEEDED, None
    return JobState.FAILED, Exited(exit_code, signal)


def _where(job: Job, told: Result | TaskEnd | None) -> str:
    """The node of the task that something was told of; that of the first task if it is not said which."""
    phase = job.phase
    if not isinstance(phase, Placed | Running):
        return ""
    return f"{phase.cluster}/{job.tasks[told.rank].node if isinstance(told, TaskEnd) else phase.node}"


def _past_walltime(job: Job) -> Reason:
    """That it ran as long as it may, and who says how long."""
    return PastWalltime() if job.terms.walltime is not None or job.walltime is None else PastCap(job.walltime)


def lost(state: State, job: Job, now: int, because: str = "") -> JobRequeued | JobEnded:
    """What becomes of a job whose lease is void while its task may have run."""
    ran = elapsed(state, job, now)
    cost = job.cost + (attempt_cost(state, job, ran) if type(job.phase) is Running else 0)
    back = again(job, Outcome.LOST, None)
    if back is not None:
        return JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, cost, because=because)
    return _end_lost(job, now, ran, cost, because)


def released(job: Job, now: int, because: str = "", backoff: int = 0) -> JobRequeued | JobEnded:
    """Back to the queue with the same attempt, not to be tried there for a while; a job that is being stopped ends here."""
    if stop_of(job) is not None and type(job.phase) is Placed:
        if (back := again(job, Outcome.STOPPED, None)) is not None:
            return JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, job.cost)
        return _end_lost(job, now, 0, job.cost)
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
    """The end of a job whose task is gone and that is not tried again."""
    ended, why = verdict(job, Outcome.LOST, because=because)
    since = job.phase.since if type(job.phase) is Running else None
    return JobEnded(job.id, now, ended, job.attempt, job.seq + 1, since, None, None, cost, Usage(ran), why)
