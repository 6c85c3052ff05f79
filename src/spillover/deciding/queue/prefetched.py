"""Prefetched leases that a cycle may ask back: those that waited too long for their agent, and those that can be rented.

The index calls it for every such lease. It holds no facts of its own.
"""

import heapq
from collections.abc import Iterator

from spillover.core.holding import revoked_from
from spillover.core.records.jobs import Job, Placed
from spillover.core.state import State
from spillover.deciding.queue.heaps import in_order
from spillover.model.ids import JobId, job_of_task, task_key


class PrefetchedLeases:
    """When prefetched leases may be asked back, and which of their jobs may be rented."""

    __slots__ = ("_state", "due", "nodes", "rentable", "sooner")

    def __init__(self, state: State) -> None:
        self._state = state
        self.due: list[tuple[int, str]] = []
        """Heap of nodes with prefetched leases, by the earliest time at which one of them may be asked back."""
        self.nodes: dict[str, None] = {}
        """The nodes with prefetched leases."""
        self.rentable: dict[JobId, None] = {}
        """Jobs with a prefetched lease on owned capacity that may be rented; some entries are out of date."""
        self.sooner = True
        """Whether such a job, or rented capacity for one, may have appeared since the last cycle."""

    def copy(self, state: State) -> "PrefetchedLeases":
        """Return a copy for another state."""
        own = PrefetchedLeases(state)
        own.due, own.nodes, own.rentable = self.due.copy(), self.nodes.copy(), self.rentable.copy()
        own.sooner = self.sooner
        return own

    def may_decide(self, now: int) -> bool:
        """Return whether a cycle could ask some of them back."""
        return (bool(self.due) and self.due[0][0] <= now) or (self.sooner and bool(self.rentable))

    def settle(self, now: int, *, decided: bool) -> None:
        """After a cycle, record when the next ones are due, and drop jobs that could no longer be rented sooner."""
        if self.due:
            self._look_at_due(now)
        if self.rentable:
            jobs = self._state.jobs
            some = [job for each in self.rentable if (job := jobs.get(each)) is not None]
            self.rentable = {job.id: None for job in some if self.rents_sooner(job)}
            self.sooner = decided

    def _look_at_due(self, now: int) -> None:
        """After a cycle has handled due leases, record when the next ones are due."""
        looked: dict[str, None] = {}
        while self.due and self.due[0][0] <= now:
            looked[heapq.heappop(self.due)[1]] = None
        for key in looked:
            node = self._state.nodes.get(key)
            if node is not None and node.ahead:
                self.note(key)
            else:
                self.nodes.pop(key, None)

    # --- leases that wait too long

    def note(self, key: str) -> None:
        """Record when the first prefetched lease of a node may be asked back."""
        self.nodes[key] = None
        first = min([at for _, at in self._revocable(key)], default=None)
        if first is not None:
            heapq.heappush(self.due, (revoked_from(first, self._state.facts.ahead), key))

    def stuck(self, now: int) -> list[Job]:
        """Return jobs whose prefetched leases should be asked back by now."""
        keys: dict[str, None] = {}
        for at, key in in_order(self.due):
            if at > now:
                break
            keys[key] = None
        horizon = self._state.facts.ahead
        return [job for key in keys for job, at in self._revocable(key) if revoked_from(at, horizon) <= now]

    def _revocable(self, key: str) -> Iterator[tuple[Job, int]]:
        """Yield jobs whose prefetched leases a node may be asked to return, each with the time of its placement."""
        node = self._state.nodes.get(key)
        for each in () if node is None else node.ahead:
            job = self._state.jobs[job_of_task(each)]
            if type(job.phase) is Placed and _is_revocable(job.phase):
                yield job, job.phase.at

    # --- jobs that may be rented

    def note_rentable(self, job: Job) -> None:
        """Record a job that may be rented while it holds a prefetched lease."""
        if self.rents_sooner(job):
            self.rentable[job.id] = None
            self.sooner = True

    def rents_sooner(self, job: Job) -> bool:
        """Return whether a job may be rented while it holds a revocable prefetched lease on owned capacity."""
        phase = job.phase
        return (
            job.due is not None
            and type(phase) is Placed
            and _is_revocable(phase)
            and not self._state.is_rented(phase.cluster)
            and is_ahead(self._state, job)
        )


def _is_revocable(phase: Placed) -> bool:
    return not phase.revoked and phase.stopping is None and phase.thief is None


def is_ahead(state: State, job: Job) -> bool:
    """Return whether a job holds a prefetched lease, so that its wait continues."""
    if type(job.phase) is not Placed:
        return False
    node = state.nodes.get(f"{job.phase.cluster}/{job.phase.node}")
    return node is not None and task_key(job.id, job.attempt) in node.ahead
