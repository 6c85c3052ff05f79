"""Which jobs are kept off spot machines: those that could not run again in time if the machine were taken back.

A job with a deadline needs time for more than one run on a spot machine: it may be interrupted at its end, and then
another machine must boot and the job must run again. Slow boots count, and each plan judges anew. If no machine on demand
would be ready in time any more, such a job takes what there is: a spot machine may be taken back, but the deadline would
be missed for sure without one.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spillover.core.appliers.jobs import MOST_INTERRUPTIONS
from spillover.core.learned.estimates import foreseen
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.renting.offers import OpenOffer, open_offers
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import JobId
from spillover.model.units import FOREVER

if TYPE_CHECKING:
    from spillover.deciding.queue.index import SchedulingIndex

AGAIN: Final = 3
"""A spot machine needs this many runtimes before the deadline: one that is interrupted, another one, and one to spare."""
NO_SPOT: Final = -1
"""The slack of a job that gets no spot machine, however much time there is."""


class _Option(Struct, frozen=True):
    """Machines on demand that a job could have: new ones of an open offer, or those that were ordered."""

    offer: OpenOffer
    ready: int
    """When half of such machines would be ready, nanoseconds UTC."""
    late: int
    """When nine of ten would be."""
    coming: bool
    gang: JobId | None
    """The gang that they were ordered for, if any."""


class SpotSlack:
    """Judges the slack of jobs in one cycle."""

    def __init__(self, state: State, index: "SchedulingIndex", now: int) -> None:
        self._state = state
        self._index = index
        self._now = now
        self._options: list[_Option] | None = None
        """What could be had on demand; None until somebody asks."""
        self.most = max([late_boot(state, each.spec) for each in index.capacity.values()], default=0)
        """Nanoseconds in which nine of ten boots of any spot offer are ready."""
        self.again = FOREVER
        """When a job that was kept off may use spot machines, because those on demand would be too late."""

    def of(self, job: Job, runs: int) -> int:
        """Return how long the boots of a job's machines may take that it needs before its deadline.

        That is FOREVER for a job that may use any spot machine, and less than nothing for one that may use none.
        """
        if job.extra.interrupted >= MOST_INTERRUPTIONS:
            return NO_SPOT
        slack = self._left(job, runs)
        if slack >= 2 * self.most:
            return slack
        deadline, boot = job.extra.deadline or 0, foreseen(job)
        in_time = any(each.ready + boot <= deadline for each in self._options_of(job))
        return max(NO_SPOT, slack) if in_time else FOREVER

    def keeps_off(self, job: Job) -> bool:
        """Return whether a job must not start on a spot machine that is ready now."""
        if job.extra.deadline is None or self._left(job, max(1, self._index.runs(job))) >= self.most:
            return False
        until = self._until(job)
        if until < self._now:
            return False
        self.again = min(self.again, until + 1)
        return True

    def closed(self, job: Job, cluster: Capacity) -> Collection[int]:
        """Return the machines of a cluster that a job must not start on."""
        return cluster.spots.keys() if cluster.spots and self.keeps_off(job) else ()

    def _left(self, job: Job, runs: int) -> int:
        """Return the time that a job has beyond its runs, in nanoseconds."""
        deadline = job.extra.deadline
        return FOREVER if deadline is None else deadline - self._now - AGAIN * runs

    def _until(self, job: Job) -> int:
        """Return until when a machine on demand would be ready in time, nanoseconds UTC, even if it boots slowly."""
        latest, until = (job.extra.deadline or 0) - foreseen(job), 0
        for each in self._options_of(job):
            if each.late <= latest:
                # An order that is later than nine of ten may never come.
                until = max(until, each.late if each.coming else latest - each.late + self._now)
        return until

    def _options_of(self, job: Job) -> list[_Option]:
        if self._options is None:
            self._options = self._find_options()
        return [each for each in self._options if each.gang in {None, job.id} and each.offer.admits(job)]

    def _find_options(self) -> list[_Option]:
        state, now, found = self._state, self._now, []
        for cluster in self._index.capacity.values():
            spec, pool = cluster.spec, cluster.spec.pool
            if pool is None:
                continue
            record = state.pool(spec.name)
            if len(state.live_rented.get(spec.name, ())) < pool.max:
                for offer in open_offers(state, spec, now, self._index.imagined):
                    if not offer.offer.spot:
                        late = now + record.boot(pool, offer.offer.key, 90)
                        found.append(_Option(offer, now + offer.boot, late, False, None))
            for machine in state.unsettled_machines(spec.name):
                if machine.is_coming and not machine.offer.spot:
                    offer = OpenOffer(spec, pool, record, machine.offer, self._index.imagined)
                    late = machine.wanted_at + record.boot(pool, machine.offer.key, 90)
                    gang = JobId(machine.group) if machine.group else None
                    found.append(_Option(offer, max(now, machine.wanted_at + offer.boot), late, True, gang))
        return found


def late_boot(state: State, spec: ClusterSpec) -> int:
    """Return the nanoseconds in which nine of ten boots of the spot machines of a cluster are ready."""
    rents = state.clusters.get(spec.made_by or spec.name)
    if rents is None or rents.pool is None:
        return 0
    record = state.pool(rents.name)
    return max([record.boot(rents.pool, each.key, 90) for each in rents.pool.offers if each.spot], default=0)
