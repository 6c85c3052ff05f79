"""Jobs as events find them, and how they are counted into and out of the queue."""

from spillover.core import ranges
from spillover.core.events import AnyEvent
from spillover.core.state import QUEUED, Job, Queued, State
from spillover.core.transitions import JOB, Impossible
from spillover.model.ids import JobId


def job_of(state: State, job: JobId, event: AnyEvent) -> Job:
    """The job of an event, if its state allows such an event."""
    found = state.jobs.get(job)
    if found is None or (found.state, type(event)) not in JOB:
        raise Impossible(f"{type(event).__name__} on {found or job!r}: {event}")
    state.touch_job(job)
    return found


def weight(job: Job) -> int:
    """What a queued job counts: 1, or the pending members of an array."""
    members = job.extra.members
    return 1 if members is None else ranges.size(members.pending)


def leave_queue(state: State, job: Job) -> None:
    """Count a job out of the queue, if it is there."""
    if type(job.phase) is Queued:
        state.queued -= weight(job)


def enter_queue(state: State, job: Job) -> None:
    """Let a job be scheduled from now on; a cycle will give it a new wait."""
    job.phase = QUEUED
    job.latest = None
    job.due = None
    if job.extra.members is not None:
        job.extra.members.due = 0
    state.queued += weight(job)
