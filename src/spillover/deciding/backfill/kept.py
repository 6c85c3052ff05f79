"""Keeps the reservations of a cycle for later ones, while nothing changes but for new jobs behind all others.

Most jobs arrive at a full cluster, between two ends of jobs. Making all reservations again costs such a cycle as much as
one after an end, and gives the same: with the same jobs running and the same jobs ahead, a job that was blocked is
blocked a moment later too.
"""

from collections.abc import Iterable
from typing import TypeAlias

from spillover.core.records.jobs import Job, Queued
from spillover.deciding.backfill.reservations import Reservations
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.forecast.ends import overdue_among
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Entry, Lane
from spillover.model.ids import JobId

_Versions: TypeAlias = list[tuple[Capacity, int, int]]


class KeptReservations:
    """The reservations of a cycle that tried all jobs and started none on owned capacity."""

    __slots__ = ("_ends", "_versions", "arrived", "last", "made", "patience")

    def __init__(self, made: Reservations, index: SchedulingIndex, last: Entry, patience: int) -> None:
        self.made = made
        self.arrived: dict[JobId, None] = {}
        """Jobs that arrived since and had no room, so that no cycle tried them."""
        self.patience = patience
        """How many more jobs may be stuck in the walk over the queue."""
        self.last = last
        """The last job that was tried."""
        self._versions = _versions(index)
        self._ends = _ends(index)

    @staticmethod
    def can_keep(made: Reservations, index: SchedulingIndex, now: int, gone: Iterable[JobId]) -> bool:
        """Return whether time alone does not change reservations, nor jobs that left the queue or may be rented."""
        if index.ends is None or overdue_among(index.ends.sorted, now):
            return False  # expected ends of overdue jobs move with the time
        if index.windowed or index.limited or index.ranking is not None or index.finder.eager():
            return False
        jobs, reserved = index.state.jobs, made.reserved
        return all(each not in reserved for each in gone) and all(
            jobs[each].extra.members is None for each in reserved
        )

    def newcomers(
        self, index: SchedulingIndex, now: int, expired: Iterable[JobId]
    ) -> list[tuple[Entry, Lane]] | None:
        """Return the jobs that arrived since, in order; None if the reservations may be others by now."""
        if self._ends != _ends(index) or self._versions != _versions(index):
            return None
        if not self.can_keep(self.made, index, now, expired):
            return None
        jobs = index.state.jobs
        if not all(_waits(jobs.get(each)) for each in self.made.reserved):
            return None
        found: list[tuple[Entry, Lane]] = []
        for each in (*self.arrived, *index.fresh):
            job = jobs.get(each)
            if job is None or type(job.phase) is not Queued:
                continue  # it left without a reservation
            if job.extra.deadline is not None or job.extra.members is not None or job.kind.shape.reservation:
                return None
            if (spot := index.spot(job)) <= self.last:
                return None
            found.append((spot, index.lane_of(job)))
        if len(found) >= min(self.patience, self.made.looks):
            return None  # the walk over all jobs might not reach them
        return sorted(dict(found).items())


def _waits(job: Job | None) -> bool:
    return job is not None and type(job.phase) is Queued and job.due is None


def _ends(index: SchedulingIndex) -> int:
    return -1 if index.ends is None else index.ends.version


def _versions(index: SchedulingIndex) -> _Versions:
    """Return what rises whenever a machine of an owned cluster changes."""
    return [
        (each, each.forgotten + len(each.changes), each.turns)
        for each in index.capacity.values()
        if each.owned
    ]
