"""Which jobs are kept off spot machines: those that could not run again in time if the machine were taken back.

A job with a deadline needs time for more than one run on a spot machine: it may be interrupted at its end, and then
another machine must boot and the job must run again. Slow boots count, and each plan judges anew. If no machine on demand
would be ready in time any more, such a job takes what there is: a spot machine may be taken back, but the deadline would
be missed for sure without one.
"""

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spillover.core.appliers.jobs import MOST_INTERRUPTIONS
from spillover.core.learned.estimates import foreseen
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.renting.offers import OpenOffer, open_offers
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.pools import OfferKey
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


class LateBoots:
    """The nanoseconds in which nine of ten boots of a pool's spot machines are ready.

    Each pool is looked at once: a plan asks for every machine that boots, and a pool may have hundreds of offers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[ClusterName, int] = {}

    def of(self, spec: ClusterSpec) -> int:
        """Return that time for a cluster, or for the template that made it; 0 if it rents no spot machines."""
        name = spec.made_by or spec.name
        late = self._known.get(name)
        if late is None:
            late = self._known[name] = self._look_up(name)
        return late

    def _look_up(self, name: ClusterName) -> int:
        rents = self._state.clusters.get(name)
        if rents is None or rents.pool is None:
            return 0
        record, pool = self._state.pool(name), rents.pool
        return max([record.boot(pool, each.key, 90) for each in pool.offers if each.spot], default=0)


class SpotSlack:
    """Judges the slack of jobs in one cycle."""

    def __init__(self, state: State, index: "SchedulingIndex", now: int) -> None:
        self._state = state
        self._index = index
        self._now = now
        self._admitting: dict[tuple[Shape, tuple[ClusterName, ...]], list[_Option]] = {}
        """Of what could be had on demand, what a job of a shape may use that backs off from some clusters."""
        self.again = FOREVER
        """When a job that was kept off may use spot machines, because those on demand would be too late."""

    @cached_property
    def most(self) -> int:
        """Nanoseconds in which nine of ten boots of any spot offer are ready."""
        late = LateBoots(self._state)
        return max([late.of(each.spec) for each in self._index.capacity.values()], default=0)

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
        key = job.kind.shape, job.kind.backing_off
        found = self._admitting.get(key)
        if found is None:
            found = self._admitting[key] = [each for each in self._options if each.offer.admits(job)]
        return [each for each in found if each.gang in {None, job.id}]

    @cached_property
    def _options(self) -> list[_Option]:
        """What could be had on demand."""
        state, now = self._state, self._now
        found: dict[_Option, None] = {}  # machines that were ordered together are one option
        for cluster in self._index.capacity.values():
            spec, pool = cluster.spec, cluster.spec.pool
            if pool is None:
                continue
            record = state.pool(spec.name)
            if len(state.live_rented.get(spec.name, ())) < pool.max:
                for offer in open_offers(state, spec, now, self._index.imagined):
                    if not offer.offer.spot:
                        found[_Option(offer, now + offer.boot, now + offer.late, False, None)] = None
            ordered: dict[OfferKey, OpenOffer] = {}
            for machine in state.unsettled_machines(spec.name):
                if not machine.is_coming or machine.offer.spot:
                    continue
                key = machine.offer.key
                known = ordered.get(key)
                if known is None or known.configured != machine.offer:
                    known = ordered[key] = OpenOffer(spec, pool, record, machine.offer, self._index.imagined)
                ready = max(now, machine.wanted_at + known.boot)
                gang = JobId(machine.group) if machine.group else None
                found[_Option(known, ready, machine.wanted_at + known.late, True, gang)] = None
        return list(found)
