"""Queued jobs that no cycle has admitted yet. A cycle looks at each of them, and at most at so many."""

import heapq
from collections.abc import Iterator

from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.deciding.queue.heaps import in_order
from spillover.model.ids import JobId

FEW = 1000
"""Up to this many new jobs, sorting them is faster than keeping a heap."""


class Newcomers(dict[JobId, None]):
    """The new jobs, in any order; `first` has their order. It is a dict, because it is read for every event."""

    __slots__ = ("_state", "heap")

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.heap: list[tuple[int, JobId]] = []
        """Heap of the same jobs by number, if they are many. Those that are no longer new are void."""

    def copy_for(self, state: State) -> "Newcomers":
        """Return a copy for another state."""
        own = Newcomers(state)
        own.update(self)
        own.heap = self.heap.copy()
        return own

    def add(self, job: Job) -> None:
        """Add a new job."""
        self[job.id] = None
        if len(self) <= FEW:
            return
        if not self.heap:
            jobs = self._state.jobs
            self.heap = [(jobs[each].number, each) for each in self]
            heapq.heapify(self.heap)
        else:
            heapq.heappush(self.heap, (job.number, job.id))

    def first(self) -> Iterator[JobId]:
        """Yield new jobs, each once, in the order of submission."""
        if not self.heap:
            yield from sorted(self, key=lambda job: (self._state.jobs[job].number, job))
            return
        previous: JobId | None = None
        for _, job in in_order(self.heap):
            if job != previous and job in self:
                previous = job
                yield job

    def settle(self) -> None:
        """Drop jobs that are no longer new from the front of the heap."""
        if len(self) <= FEW:
            self.heap = []
        while self.heap and self.heap[0][1] not in self:
            heapq.heappop(self.heap)
