"""Until when jobs wait for owned capacity, before they may be rented."""

import heapq
from typing import TypeAlias

from spillover.core.records.jobs import Job, Queued
from spillover.core.state import State
from spillover.deciding.queue.heaps import SPARE
from spillover.deciding.queue.prefetched import is_ahead
from spillover.model.ids import JobId
from spillover.model.job import Burst
from spillover.model.units import FOREVER

Wait: TypeAlias = tuple[int, int, JobId]
"""The latest start of a job in steady time, the number of the job, and the job."""


class Waits:
    """The waits of queued jobs, and of jobs with a prefetched lease, soonest first."""

    __slots__ = ("_bounded", "_state", "heap", "patient")

    def __init__(self, state: State, *, bounded: bool) -> None:
        self._state = state
        self._bounded = bounded
        """Whether the number of waiting jobs is bounded, and they could be rented."""
        self.heap: list[Wait] = []
        """Some entries are void."""
        self.patient: dict[JobId, None] = {}
        """Jobs that wait and could be rented instead; filled only if their number is bounded."""

    def copy(self, state: State) -> "Waits":
        """Return a copy for another state."""
        own = Waits(state, bounded=self._bounded)
        own.heap, own.patient = self.heap.copy(), self.patient.copy()
        return own

    def add(self, job: Job) -> None:
        """Record until when a job waits."""
        latest = job.latest
        if latest is None or (job.round != self._state.facts.rounds and self._state.latest(job) is None):
            return
        if latest < FOREVER:
            heapq.heappush(self.heap, (latest, job.number, job.id))
            if len(self.heap) > 2 * len(self._state.jobs) + SPARE:
                self.heap = [each for each in dict.fromkeys(self.heap) if self.job_of(each) is not None]
                heapq.heapify(self.heap)
        if self.counts(job):
            self.patient[job.id] = None

    def counts(self, job: Job) -> bool:
        """Return whether a job counts against the bound while it waits."""
        return self._bounded and job.kind.shape.burst is not Burst.NEVER and type(job.phase) is Queued

    def job_of(self, wait: Wait) -> Job | None:
        """Return the job of an entry; None if it no longer waits that way."""
        job = self._state.jobs.get(wait[2])
        if job is None or job.latest != wait[0] or (job.due is not None and not job.partly_due):
            return None
        if type(job.phase) is Queued:
            void = job.round != self._state.facts.rounds and self._state.latest(job) is None
            return None if void else job
        return job if is_ahead(self._state, job) else None

    def settle(self) -> None:
        """Drop void entries from the front."""
        while self.heap and self.job_of(self.heap[0]) is None:
            heapq.heappop(self.heap)
