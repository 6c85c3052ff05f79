"""Explains which advance reservation keeps a job from free machines, and what would change that."""

from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.windows import Windows
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.reasons import ReservationClosed, Reserved


def closed_reservation(state: State, job: Job, now: int) -> ReservationClosed | None:
    """Return why a job may not start now in the reservation that it names; None if it may."""
    name, walltime = job.kind.shape.reservation, job.terms.walltime
    known = state.reservations.get(name)
    if known is None or known.project != job.kind.project:  # another project may use the name later
        return ReservationClosed(name, None, None)
    if now < known.start or (walltime is not None and now + walltime > known.end):
        return ReservationClosed(name, known.start, known.end, begun=now >= known.start)
    return None


def reserved_for_others(
    index: SchedulingIndex, cluster: Capacity, windows: Windows, job: Job, now: int
) -> Reserved | None:
    """Return which reservation keeps a job from machines; None if it fits beside it, or waits for other machines too."""
    closed = index.closed_on(cluster, job, now)
    shape = job.kind.shape
    if not closed or matching.fits_beside(cluster, shape, closed):
        return None
    large = [machine for machine in cluster.machines if machine.could_fit(shape.least)]
    if not cluster.fits(shape) and any(machine.index not in closed for machine in large):
        return None
    requester, until = index.requester(job), now + cluster.spec.startup + index.length(job)
    barring = [window for window in windows if window.bars(requester, now, until)]
    if not barring:
        return None
    first = barring[0]
    longest = first.start - now - cluster.spec.startup
    return Reserved(first.name, cluster.name, first.start, first.end, first.project, max(0, longest))
