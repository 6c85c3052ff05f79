"""Looks up the jobs of events, and counts jobs in and out of the queue."""

from spillover.core.events import AnyEvent
from spillover.core.records.jobs import NO_EXTRA, QUEUED, STATE_OF, Ended, Job, Queued
from spillover.core.state import State
from spillover.core.transitions import JOB, Impossible
from spillover.model import ranges
from spillover.model.ids import JobId
from spillover.model.reasons import Reason
from spillover.model.units import FOREVER

_ALLOWED: dict[type, frozenset[type]] = {
    Ended: frozenset(),
    **{phase: frozenset(event for of, event in JOB if of is state) for phase, state in STATE_OF.items()},
}
"""The table of job transitions, by phase instead of state, because it is used for every event."""


def job_of(state: State, job: JobId, event: AnyEvent) -> Job:
    """Return the job of an event; raise Impossible if its state does not allow such an event."""
    found = state.jobs.get(job)
    if found is None or type(event) not in _ALLOWED[type(found.phase)]:
        raise Impossible(f"{type(event).__name__} on {found or job!r}: {event!r}")
    state.dirty["job"][job] = None
    return found


def weight(job: Job) -> int:
    """Return the weight of a queued job: 1, or the pending members of an array."""
    members = job.extra.members
    return 1 if members is None else ranges.size(members.pending)


def live_of(job: Job) -> int:
    """Return how many live jobs a record stands for: 1, or the pending members of an array; 0 if it has ended."""
    members = job.extra.members
    if members is not None:
        return ranges.size(members.unplaced)
    return 0 if type(job.phase) is Ended else 1


def expected_of(job: Job) -> int:
    """Return the expected runtime of a job in nanoseconds, without defaults; 0 if unknown."""
    terms = job.terms
    return terms.estimate or terms.walltime or job.predicted or 0


def count_wait(state: State, job: Job, seq: int, at: int) -> None:
    """Add the wait, granted wait and expected runtime of a job that gets a lease with this `seq` to the tally.

    Only the first placement counts, or the first one since the job returned from rented capacity. Lost or returned
    leases do not count again.
    """
    if seq != job.extra.came_back + 1:
        return
    facts = state.facts
    tally = facts.tally
    waited = at - facts.jumped - job.arrived
    if waited > 0:
        tally.waited += waited
    if job.latest is not None:
        tally.settled += granted(state, job)
    if not job.extra.returned:
        tally.ran += expected_of(job)


def leave_queue(state: State, job: Job) -> None:
    """Count a job out of the queue, if it is queued."""
    if type(job.phase) is Queued:
        if job.latest is not None:
            grant(state, job, None)
        state.queued -= 1 if job.extra is NO_EXTRA else weight(job)


def grant(state: State, job: Job, latest: int | None) -> None:
    """Let a queued job wait until a steady time; None removes its wait."""
    more = 0 if job.latest is None else -granted(state, job)
    job.latest = latest
    job.round = state.facts.rounds
    if latest is not None:
        more += granted(state, job)
    state.facts.tally.granted += more
    if job.due is not None:
        state.granted_due += more


def count_granted(state: State, job: Job, more: int) -> None:
    """Add a difference to the sum of granted waits."""
    state.facts.tally.granted += more
    if job.due is not None:
        state.granted_due += more


def granted(state: State, job: Job) -> int:
    """Return the granted wait in nanoseconds, for all pending members of an array together; 0 if unlimited."""
    latest = job.latest
    if latest is None or latest >= FOREVER or (job.round != state.facts.rounds and state.latest(job) is None):
        return 0
    return (latest - job.arrived) * weight(job)


def let_rent(state: State, job: Job, why: Reason | None) -> None:
    """Let a job be rented for a reason; without a reason, make it wait for owned capacity."""
    state.granted_due -= 0 if job.due is None or type(job.phase) is not Queued else granted(state, job)
    job.due = why
    state.granted_due += 0 if why is None or type(job.phase) is not Queued else granted(state, job)


def enter_queue(state: State, job: Job) -> None:
    """Queue a job; a cycle will give it a new wait."""
    job.phase = QUEUED
    job.latest = None
    job.due = None
    if job.extra is NO_EXTRA:
        state.queued += 1
        return
    if job.extra.members is not None:
        job.extra.members.due = 0
    state.queued += weight(job)
