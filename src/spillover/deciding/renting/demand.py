"""The jobs that may be rented and found no place, as machines are planned for them."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from spillover.core.learned.estimates import foreseen
from spillover.core.records.jobs import Job, Queued
from spillover.deciding.budgets.check import BudgetCheck
from spillover.deciding.capacity.limits import Limits
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Entry
from spillover.deciding.queue.limits import NO_LIMITS, LaneLimits
from spillover.deciding.renting.spot import SpotSlack
from spillover.model.cluster import RENTED, ClusterSpec, rate_of_job
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

MOST: Final = 2000
"""The most jobs and array members that a plan orders machines for. The next plans continue."""


class Demand(Struct, gc=False):
    """A job, or members of an array, for which machines may be ordered. Each step takes over what it can."""

    job: Job
    count: int
    """How many of it wait; at most 1 for a job that is not an array."""
    runs: int
    """Expected runtime of each, in nanoseconds."""
    limit: int
    """Until when it may wait for others to end, beyond the boot time of a machine; nanoseconds UTC."""
    patience: int
    """Nanoseconds of that from the moment when it may be rented."""
    slack: int = FOREVER
    """Nanoseconds for the boots of its machines before its deadline, if those may be spot machines. See `SpotSlack.of`."""
    alike: int = 0
    """Number of its shape in this plan: what fits for one job of a shape fits for all. Comparing shapes takes longer."""


def demand_of(draft: Draft, index: SchedulingIndex, policies: Policies, boot: int = 0) -> list[Demand]:
    """Return the jobs that may be rented and have no place after this plan, in order.

    A job that would miss its deadline on a machine that is ready after `boot` nanoseconds is left out.
    """
    check = BudgetCheck(draft.state, draft.now)
    spot = SpotSlack(draft.state, index, draft.now)
    specs = [each.spec for each in index.capacity.values() if each.spec.pool is not None]
    found: list[Demand] = []
    shapes: dict[Shape, int] = {}
    left = MOST
    room = QueueRoom(index)
    for job in due_jobs(draft, index):
        count = min(left, room.of(job, draft.left(job, RENTED)))
        if count <= 0 or job.id in draft.ahead:
            continue
        if job.kind.shape.is_gang:
            count = 1  # machines are ordered for one gang of an array at a time, and kept for that
        runs = max(1, index.runs(job))
        if check.concerns(job) and not any(check.allows(job, spec, runs) for spec in specs):
            continue  # `why` says so
        patience = _patience(draft, job, policies)
        deadline = job.extra.deadline
        if deadline is not None and draft.now + boot + foreseen(job) > deadline:
            continue
        alike = shapes.setdefault(job.kind.shape, len(shapes))
        found.append(
            Demand(job, count, runs, _due_since(draft, job) + patience, patience, spot.of(job, runs), alike)
        )
        room.take(job, count)
        left -= count
        if left <= 0:
            break
    return found


class QueueRoom:
    """What the limits of queues leave for the jobs of a plan: no machine is ordered for those beyond them."""

    def __init__(self, index: SchedulingIndex) -> None:
        self._use = index.queue_use
        self._taken: dict[Limits, tuple[int, Resources]] = {}
        """The number of jobs that count, and what they ask for."""

    def of(self, job: Job, count: int) -> int:
        """Return how many of so many jobs alike may run."""
        for limits in self._limits(job):
            jobs, taken = self._taken.get(limits, (0, Resources()))
            room = limits.room_for(job.kind.shape.total, jobs, taken)
            count = count if room is None else min(count, room)
        return count

    def take(self, job: Job, count: int) -> None:
        """Count jobs for which machines may be ordered."""
        for limits in self._limits(job):
            jobs, taken = self._taken.get(limits, (0, Resources()))
            self._taken[limits] = jobs + count, taken + job.kind.shape.total.times(count)

    def _limits(self, job: Job) -> LaneLimits:
        return NO_LIMITS if self._use is None else self._use.of(job.kind.queue, job.user)


def due_jobs(draft: Draft, index: SchedulingIndex) -> Iterator[Job]:
    """Yield the queued jobs that may be rented, including those whose wait ends with this plan, in order."""
    jobs = draft.state.jobs
    entries: dict[Entry, Job] = {}
    for _, lane in islice(index.due.startable(), MOST):
        for entry in islice(index.due.jobs(lane), MOST):
            job = jobs[entry[2]]
            entries[index.spot(job)] = job
    for each in draft.expired:
        job = jobs[each]
        if type(job.phase) is Queued:
            entries[index.spot(job)] = job
    for entry in sorted(entries):
        yield entries[entry]


def _patience(draft: Draft, job: Job, policies: Policies) -> int:
    """Return how long a job may wait for a machine that is paid anyway, rather than have another one ordered.

    The wait policy says how long a job waits to save what renting costs. It waits as long once more, from the moment
    when it may be rented.
    """
    wait = policies.wait_of(policies.case_of(job, draft.state.facts.tally))
    return 0 if wait >= FOREVER else wait


def _due_since(draft: Draft, job: Job) -> int:
    """Return since when a job may be rented, nanoseconds UTC."""
    latest = draft.state.latest(job)
    if latest is None or latest >= FOREVER or job.id in draft.expired:
        return draft.now
    return min(draft.now, latest + draft.state.facts.jumped)


def weight_of(job: Job, runs: int, spec: ClusterSpec) -> int:
    """Return how much work a job is, in units in which the work of all jobs on a cluster can be compared."""
    return max(1, rate_of_job(spec.price, job.kind.shape) * runs)
