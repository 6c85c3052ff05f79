"""The jobs that wait for owned capacity, in order, for wait policies that look ahead."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from spillover.core.learned.estimates import estimate
from spillover.core.records.jobs import Job, Kind, Queued
from spillover.core.state import State
from spillover.deciding.forecast.starts import Waiter
from spillover.deciding.queue.lanes import Entry
from spillover.deciding.queue.ranking import Ranking
from spillover.model.ids import JobId
from spillover.model.job import Burst, Shape
from spillover.model.units import FOREVER
from spillover.model.where import Where


class WaitQueue:
    """Jobs that wait for owned capacity, updated with every event."""

    def __init__(
        self,
        state: State,
        entry: Callable[[Job], Entry],
        runs: Callable[[Job], int],
        ranking: Ranking | None,
    ) -> None:
        self._state = state
        self._entry = entry
        """Returns the sort entry of a job."""
        self._runs = runs
        """Returns the runtime of a job that forecasts use."""
        self._ranking = ranking
        self._places: dict[JobId, tuple[Entry, Waiter]] = {}
        self._in_order: list[tuple[Entry, Waiter]] | None = None
        """The values of `_places`, sorted; None until all jobs are present, because they are then sorted once."""

    def copy(
        self,
        state: State,
        entry: Callable[[Job], Entry],
        runs: Callable[[Job], int],
        ranking: Ranking | None,
    ) -> "WaitQueue":
        """Return a copy for another state."""
        own = WaitQueue(state, entry, runs, ranking)
        own._places = self._places.copy()
        own._in_order = None if self._in_order is None else self._in_order.copy()
        return own

    def sort(self) -> None:
        """Sort once, when all jobs are present; later changes keep the order."""
        if self._in_order is None:
            self._in_order = sorted(self._places.values())

    def keep(self, job: Job) -> None:
        """Add or update a queued job, if it waits for owned capacity."""
        latest = self._state.latest(job)
        if latest is None or job.kind.shape.burst is Burst.ALWAYS:
            return
        self.drop(job.id)
        one = self._places[job.id] = (self._entry(job), self._waiter(job, latest))
        if self._in_order is not None:
            insort(self._in_order, one)

    def drop(self, job: JobId) -> None:
        """Remove a job."""
        one = self._places.pop(job, None)
        if one is not None and self._in_order is not None:
            del self._in_order[bisect_left(self._in_order, one)]

    def with_newcomers(self, admitted: Mapping[JobId, int], most: int) -> list[Waiter]:
        """Return the first waiting jobs, together with the first of those that a cycle has just admitted."""
        jobs, waited = self._state.jobs, self._in_order or []
        newcomers = [
            (self._entry(jobs[each]), self._waiter(jobs[each], latest))
            for each, latest in admitted.items()
            if type(jobs[each].phase) is Queued and jobs[each].kind.shape.burst is not Burst.ALWAYS
        ]
        if (ranking := self._ranking) is None:
            waiting = waited[:most]
            if len(newcomers) == 1:  # as in most cycles
                insort(waiting, newcomers[0])
            else:
                waiting += heapq.nsmallest(most, newcomers)
                waiting.sort()
        else:
            ranked = [
                (ranking.ranked(entry, jobs[waiter.job].kind.project), waiter)
                for entry, waiter in (*waited, *newcomers)
            ]
            waiting = heapq.nsmallest(2 * most, ranked)
        return [waiter for _, waiter in waiting]

    def _waiter(self, job: Job, latest: int) -> Waiter:
        """Describe a waiting job for the forecast."""
        known = estimate(job, 0).source != "default"
        rentable = latest < FOREVER and (job.due is None or job.partly_due)
        shape = _avoiding(job.kind) if job.kind.backing_off else job.kind.shape
        return Waiter(job.id, shape, self._runs(job), known, job.arrived, latest, 1, rentable)


def _avoiding(kind: Kind) -> Shape:
    """Return the shape of a job, with clusters that it backs off from as clusters to avoid."""
    where = kind.shape.where or Where()
    return replace(kind.shape, where=replace(where, avoid=tuple(sorted({*where.avoid, *kind.backing_off}))))
