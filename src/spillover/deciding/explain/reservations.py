"""Lists the reservations that the scheduler makes now. A cycle makes no more than it needs; here all are made."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.deciding.backfill.reservation import Reservation, Span
from spillover.deciding.backfill.reservations import Reservations
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.forecast.estimates import late_on
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Lane, Walk
from spillover.model.cluster import Role
from spillover.model.ids import JobId


class Scheduling(Protocol):
    """What the list needs: an engine that has placed all jobs that can start."""

    state: State

    @property
    def index(self) -> SchedulingIndex:
        """The scheduling index."""
        ...

    @property
    def policies(self) -> Policies:
        """The current policies."""
        ...


class Reserved(Struct, frozen=True):
    """The reservation of one job, or of one member of an array."""

    job: JobId
    """The array, if it is for a member."""
    span: Span


def reservations(engine: Scheduling, now: int) -> list[Reserved]:
    """Return the reservations for waiting jobs, in the order of the queue."""
    index, policies = engine.index, engine.policies
    most = policies.backfill.reservations
    if index.ends is None or most <= 0:
        return []
    draft = Draft(engine.state, now, 0)

    def kept(job: Job) -> bool:
        return policies.keeps_room_for(job) and not draft.may_be_rented(job)

    def due(job: Job) -> int:
        return max(0, draft.patient(job)) if kept(job) else 0

    if most == 1:
        made = Reservation(index, index.ends, policies, now)
    else:
        made = Reservations(index, index.ends, policies, now, due)
    _keep(made, engine, now, kept)
    return [Reserved(job, span) for job, span in made.made()]


def _keep(made: Reservation, engine: Scheduling, now: int, kept: Callable[[Job], bool]) -> None:
    """Offer reservations to the first job of each lane, like a cycle in which nothing fits."""
    index, jobs = engine.index, engine.state.jobs
    walk = Walk(index.queue.startable(), index.queue.jobs, engine.policies.depth, len(index.queue.first))
    while not made.is_full and (found := walk.next()) is not None:
        entry, lane = found
        job = jobs[entry[2]]
        if lane.kind.shape.reservation or lane.is_held_back:
            continue  # its time is set, or others of its queue must end first
        if job.extra.deadline is not None and _is_late(index, lane, job, now):
            walk.go_on(lane)
            continue
        made.keep_for(job, lane, kept=kept(job))
        walk.stuck()


def _is_late(index: SchedulingIndex, lane: Lane, job: Job, now: int) -> bool:
    """Return whether a job would miss its deadline on every owned cluster."""
    owned = index.finder.clusters_for(lane, Role.OWNED)
    return all(late_on(job, each.spec, now) is not None for each in owned)
