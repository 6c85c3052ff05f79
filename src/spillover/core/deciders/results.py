"""What agents say of tasks. A result counts once, and only under the very lease that is valid."""

from typing import Final

from spillover.core.deciders.endings import attempt_cost, elapsed, finish
from spillover.core.events import AnyEvent, Back, JobEnded, JobRequeued, JobStarted, JobState, Lease, Stop
from spillover.core.jobs import Ended, Job, Placed, Running
from spillover.core.proposals import DRIVER, Done, Outcome, Refusal, Refused, Reply, Result, Started, Verdict
from spillover.core.state import State
from spillover.model.ids import NodeKey
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

EXITED: Final = Outcome.EXITED
LOST: Final = Outcome.LOST
NOT_STARTED: Final = Outcome.NOT_STARTED
SUCCEEDED: Final = JobState.SUCCEEDED
ACCEPTED: Final = Verdict.ACCEPTED
# A name of a module is found several times as fast as a member of an enumeration, and this is asked for every job.


def holder(state: State, lease: Lease, node: NodeKey) -> Job | None:
    """The job that this node may speak for under this lease; where others run the cluster, its driver alone does."""
    job = state.jobs.get(lease.job)
    if job is None or job.seq != lease.seq or job.attempt != lease.attempt:
        return None
    phase = job.phase
    if type(phase) is not Placed and type(phase) is not Running:
        return None
    before = job.extra.placed_on
    if phase.cluster in state.conditions or (before is not None and before.external):
        return job if node == DRIVER else None
    return job if node == f"{phase.cluster}/{phase.node}" else None


def started(state: State, proposal: Started, now: int) -> tuple[list[AnyEvent], Reply]:
    """A task runs."""
    job = holder(state, proposal.lease, proposal.node)
    if job is None:
        return [], Refusal(Refused.STALE, f"{proposal.lease.job} is not leased so any more")
    if type(job.phase) is Running:
        return [], Done()
    at = max(job.submitted, now - max(0, proposal.age))
    return [JobStarted(job.id, at, job.attempt, job.seq)], Done()


def result(state: State, proposal: Result, now: int) -> tuple[list[AnyEvent], Reply]:
    """A task ended: its job ends, or is tried again."""
    lease = proposal.lease
    job = holder(state, lease, proposal.node)
    if job is None:
        known = state.jobs.get(lease.job)
        same = known is not None and (known.attempt, known.seq) == (lease.attempt, lease.seq)
        return [], Verdict.DUPLICATE if same and type(known.phase) is Ended else Verdict.FENCED  # type: ignore[union-attr]
    phase, outcome, ran = job.phase, proposal.outcome, proposal.usage.ran
    if ran < 0:
        ran = 0
    if outcome is LOST:  # its agent does not know when it ended
        ran = min(ran, elapsed(state, job, now))
    began = type(phase) is Running or (ran > 0 and outcome is not NOT_STARTED)
    cost = job.cost + (attempt_cost(state, job, ran) if began else 0)
    ended, why = SUCCEEDED, None
    if outcome is not EXITED or proposal.exit_code != 0:
        back = again(job, outcome, proposal.exit_code)
        if back is not None:
            attempt = job.attempt + 1
            requeued = JobRequeued(
                job.id, now, back, attempt, job.seq + 1, cost, proposal.outputs, proposal.message
            )
            return [requeued], ACCEPTED
        ended, why = verdict(job, outcome, proposal)
    finished = now - proposal.age if proposal.age > 0 else now
    if finished < job.submitted:
        finished = job.submitted
    since = phase.since if type(phase) is Running else None
    if since is None and began:
        since = finished - ran if finished - ran > job.submitted else job.submitted
    ending = JobEnded(
        job.id,
        finished if since is None or since < finished else since,
        ended,
        job.attempt,
        job.seq,
        since,
        proposal.exit_code,
        proposal.signal,
        cost,
        proposal.usage,
        why,
        proposal.value,
        proposal.value_digest,
        proposal.outputs,
    )
    if state.members or job.id in state.waiters:
        return finish(state, [ending], now), ACCEPTED
    return [ending], ACCEPTED  # most jobs have no array, and nobody who waits for them


def again(job: Job, outcome: Outcome, exit_code: int | None) -> Back | None:
    """Why the job is to be tried again; None if it is not."""
    stopping = job.phase.stopping if isinstance(job.phase, Placed | Running) else None
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
        case Outcome.WALLTIME:
            pass
    return None


def verdict(  # noqa: C901, PLR0911 - one answer for each outcome
    job: Job, outcome: Outcome, told: Result | None = None, because: str = ""
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
            case Stop.REQUEUE | Stop.RETURN:
                pass
    if outcome is Outcome.LOST:
        return JobState.FAILED, LostTooOften(job.lost + 1, told.message if told is not None else because)
    exit_code, signal = (told.exit_code, told.signal) if told is not None else (None, None)
    if outcome is Outcome.NOT_STARTED:
        message = told.message if told is not None else ""
        agent = f"{phase.cluster}/{phase.node}" if isinstance(phase, Placed | Running) else ""
        return JobState.FAILED, CouldNotStart(message or "no reason was given", agent)
    if outcome is Outcome.OUT_OF_MEMORY:
        peak = told.usage.peak_memory if told is not None else 0
        return JobState.FAILED, OutOfMemory(job.kind.shape.resources.memory, peak)
    if outcome is Outcome.UNKEPT:
        return JobState.FAILED, OutputsNotKept(told.message if told is not None else "")
    if outcome is Outcome.UNUSABLE:
        agent = f"{phase.cluster}/{phase.node}" if isinstance(phase, Placed | Running) else ""
        return JobState.FAILED, ReportUnusable(told.message if told is not None else "", agent)
    if exit_code == 0:
        return JobState.SUCCEEDED, None
    return JobState.FAILED, Exited(exit_code, signal)


def _past_walltime(job: Job) -> Reason:
    """That it ran as long as it may, and who says how long."""
    return PastWalltime() if job.terms.walltime is not None or job.walltime is None else PastCap(job.walltime)
