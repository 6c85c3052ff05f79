"""Who waits for owned capacity, in order, as a policy that looks ahead sees it."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from spillover.core.estimates import estimate
from spillover.core.jobs import Job, Kind, Queued
from spillover.core.state import State
from spillover.deciding.forecast.starts import Waiter
from spillover.deciding.queue.lanes import Entry
from spillover.deciding.queue.ranking import Ranking
from spillover.model.ids import JobId
from spillover.model.job import Burst, Shape
from spillover.model.units import FOREVER
from spillover.model.where import Where


class WaitQueue:
    """Jobs that wait for owned capacity, kept up with every event."""

    def __init__(
        self,
        state: State,
        entry: Callable[[Job], Entry],
        runs: Callable[[Job], int],
        ranking: Ranking | None,
    ) -> None:
        self._state = state
        self._entry = entry
        """How a job sorts."""
        self._runs = runs
        """How long a job is taken to run."""
        self._ranking = ranking
        self._places: dict[JobId, tuple[Entry, Waiter]] = {}
        self._in_order: list[tuple[Entry, Waiter]] | None = None
        """The same; None until all jobs are there, as it is sorted once then."""

    def copy(
        self,
        state: State,
        entry: Callable[[Job], Entry],
        runs: Callable[[Job], int],
        ranking: Ranking | None,
    ) -> "WaitQueue":
        """The same, of a book of its own."""
        own = WaitQueue(state, entry, runs, ranking)
        own._places = self._places.copy()
        own._in_order = None if self._in_order is None else self._in_order.copy()
        return own

    def sort(self) -> None:
        """All jobs are there: from now on their order is kept up."""
        if self._in_order is None:
            self._in_order = sorted(self._places.values())

    def keep(self, job: Job) -> None:
        """Note how a queued job waits for owned capacity now, if it does."""
        latest = self._state.latest(job)
        if latest is None or job.kind.shape.burst is Burst.ALWAYS:
            return
        self.drop(job.id)
        one = self._places[job.id] = (self._entry(job), self._waiter(job, latest))
        if self._in_order is not None:
            insort(self._in_order, one)

    def drop(self, job: JobId) -> None:
        """A job does not wait any more, or waits otherwise."""
        one = self._places.pop(job, None)
        if one is not None and self._in_order is not None:
            del self._in_order[bisect_left(self._in_order, one)]

    def with_newcomers(self, admitted: Mapping[JobId, int], most: int) -> list[Waiter]:
        """Jobs that waited before, and those that a cycle has just admitted until then; of each the first ones."""
        jobs, waited = self._state.jobs, self._in_order or []
        newcomers = [
            (self._entry(jobs[each]), self._waiter(jobs[each], latest))
            for each, latest in admitted.items()
            if type(jobs[each].phase) is Queued and jobs[each].kind.shape.burst is not Burst.ALWAYS
        ]
        if (ranking := self._ranking) is None:
            waiting = sorted([*waited[:most], *heapq.nsmallest(most, newcomers)])
        else:
            ranked = [
                (ranking.ranked(entry, jobs[waiter.job].kind.project), waiter)
                for entry, waiter in (*waited, *newcomers)
            ]
            waiting = heapq.nsmallest(2 * most, ranked)
        return [waiter for _, waiter in waiting]

    def _waiter(self, job: Job, latest: int) -> Waiter:
        """A job that waits until then, as looking ahead sees it."""
        known = estimate(job, 0).source != "default"
        rentable = latest < FOREVER and (job.due is None or job.partly_due)
        shape = _avoiding(job.kind) if job.kind.backing_off else job.kind.shape
        return Waiter(job.id, shape, self._runs(job), known, job.arrived, latest, 1, rentable)


def _avoiding(kind: Kind) -> Shape:
    """The shape of jobs that back off from clusters, as of those that ask for other ones."""
    where = kind.shape.where or Where()
    return replace(kind.shape, where=replace(where, avoid=tuple(sorted({*where.avoid, *kind.backing_off}))))
