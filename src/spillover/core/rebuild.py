"""A state from its records: what a checkpoint kept, with the indexes that are derived from it."""

from collections.abc import Iterable

from spillover.core import ranges
from spillover.core.state import NO_EXTRA, Ended, Facts, Job, Kind, Node, Queued, Running, State
from spillover.model.ids import JobId


def rebuild(records: Iterable[tuple[str, Facts | Job | Node]]) -> State:
    """The state that these records describe, jobs in the order of their submission."""
    state = State()
    jobs: list[Job] = []
    for _, record in records:
        match record:
            case Facts():
                state.facts = record
                state.clusters = {spec.name: spec for spec in record.clusters}
            case Node():
                state.nodes[record.key] = record
            case Job():
                jobs.append(record)
    jobs.sort(key=lambda job: (job.number, job.id))
    for job in jobs:
        _index(state, job)
    return state


def _index(state: State, job: Job) -> None:
    """Take a job into the state, sharing what it has in common with others."""
    job.kind = state.share(Kind(job.kind.shape, state.share(job.kind.queue), state.share(job.kind.project)))
    job.terms = state.share(job.terms)
    job.user = state.share(job.user)
    job.name = state.share(job.name)
    if job.extra == NO_EXTRA:
        job.extra = NO_EXTRA
    state.jobs[JobId(job.id)] = job
    members = job.extra.members
    match job.phase:
        case Queued():
            state.queued += 1 if members is None else ranges.size(members.pending)
        case Running():
            state.running += 1
        case Ended():
            pass
    if job.extra.key is not None:
        state.keys[job.extra.key] = job.id
    for wanted in job.extra.after:
        state.waiters.setdefault(wanted.job, []).append(job.id)
