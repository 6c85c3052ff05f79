"""Applies steals and revocations of leases."""

from msgspec.structs import replace

from spillover.core.appliers import machines
from spillover.core.appliers.queue import job_of
from spillover.core.events import AnyEvent, LeaseMoved, LeasesRevoked, StealAsked, StealRefused
from spillover.core.holding import move_lease
from spillover.core.records.jobs import Job, Placed
from spillover.core.state import State
from spillover.core.transitions import Impossible
from spillover.model.ids import JobId


def asked(state: State, event: StealAsked) -> None:
    """Record that an agent wants a lease, which stays where it is."""
    job, phase = _placed(state, event.job, event)
    job.phase = replace(phase, thief=event.thief)


def refused(state: State, event: StealRefused) -> None:
    """Record that the lease is no longer wanted."""
    job, phase = _placed(state, event.job, event)
    job.phase = replace(phase, thief=None)


def revoked(state: State, event: LeasesRevoked) -> None:
    """Record that leases are asked back; each stays until its agent answers."""
    for each in event.jobs:
        job, phase = _placed(state, each, event)
        job.phase = replace(phase, revoked=True)
        state.touch_job(each)


def moved(state: State, event: LeaseMoved) -> None:
    """Move a lease and its resources to another agent."""
    job, phase = _placed(state, event.job, event)
    job.phase = replace(phase, node=event.thief, thief=None, revoked=False)
    job.seq = event.seq
    move_lease(state, job, event.cluster, event.node, event.thief)
    if state.machines:
        machines.leave_place(state, event.cluster, (event.node,), 0, event.at)
        machines.take_place(state, job)


def _placed(state: State, job_id: JobId, event: AnyEvent) -> tuple[Job, Placed]:
    """Return a placed job and its phase."""
    job = job_of(state, job_id, event)
    if type(job.phase) is not Placed:
        raise Impossible(f"{type(event).__name__} on {job}: {event!r}")
    return job, job.phase
