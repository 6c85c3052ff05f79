"""Reserves capacity for the first job that does not fit, so that backfilled jobs do not delay it."""

import heapq
from collections.abc import Collection
from operator import itemgetter
from typing import NamedTuple

from spillover.core.records.jobs import Job
from spillover.deciding.backfill.booking import Booker
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import HeldCapacity, grouped
from spillover.deciding.capacity.gangs import GangCandidates, Part
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.timeline import Timeline
from spillover.deciding.forecast.ends import End, Ends, ReservedCapacity, next_turn, reserve
from spillover.deciding.protocols import Place, Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Lane
from spillover.model.cluster import Role
from spillover.model.ids import ClusterName, JobId, NodeName

LOOKS = 1000
"""How many jobs of blocked lanes a cycle checks, in search of shorter ones."""
_AT = itemgetter(0)


class Span(NamedTuple):
    """When and where a job with a reservation is expected to run."""

    start: int
    """Nanoseconds UTC."""
    end: int
    """Nanoseconds UTC."""
    cluster: ClusterName
    nodes: tuple[NodeName, ...]


class Reservation:
    """The reservation of one cycle, used if a policy looks ahead."""

    def __init__(self, index: SchedulingIndex, ends: Ends, policies: Policies, now: int) -> None:
        self._index = index
        self._ends = ends
        self._place: Place = policies.place
        self._now = now
        self._placed: list[tuple[Job, tuple[HeldCapacity, ...]]] = []
        """What this cycle places on owned capacity. Few cycles ask when it ends: see `_planned`."""
        self._kept: tuple[ReservedCapacity | None] | None = None
        """The reserved capacity, in a tuple; None until it is computed."""
        self._lane: Lane | None = None
        """The lane of the head: the job with the reservation."""
        self._head: Job | None = None
        self.keeps = False
        """Whether a job has the reservation."""
        self.blocked = False
        """Whether the last job tried would fit without the reservation."""
        self.waits_for_end = False
        """Whether any job would have fitted without the reservation."""
        self._blocked: dict[Lane, None] = {}
        """Lanes with a job that would have fitted without the reservation."""
        self.looks = LOOKS
        """How many more jobs of those lanes the cycle checks."""

    @property
    def is_full(self) -> bool:
        """Whether no more jobs get a reservation."""
        return self.keeps

    def keep_for(self, job: Job, lane: Lane, *, kept: bool) -> None:
        """Give the reservation to a job that does not fit, if it may have one."""
        if kept:
            self.keeps, self._lane, self._head = True, lane, job

    def best(
        self, job: Job, candidates: Candidates, first: Machine, closed: Collection[int] = ()
    ) -> Machine | None:
        """Return the best machine that does not delay the head, or None; `first` is the best machine overall.

        Machines in `closed` must not be used, because advance reservations have them.
        """
        kept = self._reservation()
        if kept is None or kept.cluster is not candidates.cluster:
            return first
        until = self._until(job)
        barred: set[int] = set(closed)
        passed: list[tuple[int, int]] = []
        machine: Machine | None = first
        while machine is not None and not kept.allows(machine, candidates.held(machine), until):
            barred.add(machine.index)
            machine = candidates.best(self._place, barred, passed)
        candidates.put_back(passed)
        if machine is not None:
            kept.took(machine, candidates.held(machine), until)
        else:
            self.blocked = True
        return machine

    def block(self, lane: Lane) -> bool:
        """Mark a lane as blocked: its other jobs that end after the reserved start are blocked too.

        Return whether to try the next job of the lane.
        """
        self.blocked, self.waits_for_end = False, True
        self._blocked[lane] = None
        return True

    def is_blocked(self, job: Job, lane: Lane) -> bool:
        """Return whether to skip a job: another of its lane was blocked, and this one would not end in time either."""
        if lane not in self._blocked:
            return False
        kept = self._reservation()
        self.looks -= 1
        return kept is not None and self._until(job) > kept.at

    def take_gang(
        self, job: Job, lane: Lane, gang: GangCandidates, closed: Collection[int] = (), tasks: int = 0
    ) -> list[Part]:
        """Take capacity for all tasks of a gang where it does not delay the head; take nothing otherwise.

        `tasks` is the size of a gang of elastic size; 0 is its least.
        """
        del lane
        if not gang.cluster.may_hold(gang.total):
            return []  # spares most cycles the search for the reserved start
        barred = self._barred(job, gang.cluster)
        if closed:
            barred = {*barred, *closed}
        parts = gang.take(self._place, barred, tasks)
        self.blocked = self.blocked or (bool(barred) and not parts)
        return parts

    def _barred(self, job: Job, cluster: Capacity) -> Collection[int]:
        """Return the machines that a gang must not use, so that it does not delay the head."""
        kept = self._reservation() if self.keeps else None
        return (
            () if kept is None or kept.cluster is not cluster or self._until(job) <= kept.at else kept.spare
        )

    def took(self, job: Job, held: tuple[HeldCapacity, ...]) -> None:
        """Record the expected end of a job that was just placed."""
        self._placed.append((job, held))

    def _planned(self) -> list[End]:
        """Return the expected ends of what this cycle places on owned capacity."""
        # Unique numbers, so that a sort of ends at the same time never compares machines.
        return [
            End(self._until(job), -1 - at, job.id, self._now, held, grouped(held))
            for at, (job, held) in enumerate(self._placed)
        ]

    def ends(self) -> list[End]:
        """Return the expected ends of running jobs, including those that this cycle places."""
        return sorted([*self._ends.sorted, *self._planned()]) if self._placed else self._ends.sorted

    def made(self) -> list[tuple[JobId, Span]]:
        """Return all reservations, in the order of the queue."""
        kept = self._reservation()
        if kept is None or self._head is None:
            return []
        nodes = tuple([kept.cluster.slots[each].name for each in kept.spare])
        end = kept.at + max(1, self._index.runs(self._head))
        return [(self._head.id, Span(kept.at, end, kept.cluster.name, nodes))]

    def again(self, *, started: bool) -> int:
        """Return when the forecast changes, so that a job blocked by the reservation could start.

        With `started`, the jobs that this cycle places count as running.
        """
        return next_turn(self.ends() if started else self._ends.sorted, self._now)

    def _reservation(self) -> ReservedCapacity | None:
        """Return the reserved capacity, computed when a job behind the head could start."""
        if self._lane is None:
            return None
        if self._kept is None:
            shape = self._lane.kind.shape
            clusters = [
                each
                for each in self._index.finder.clusters_for(self._lane, Role.OWNED)
                if not shape.is_gang or each.spec.gangs
            ]
            if self._index.windowed:
                self._kept = (self._reserve_around_windows(self._lane),)
                return self._kept[0]
            coming = self._ends.coming(self._now)
            if self._placed:
                planned = [(end.at, end) for end in sorted(self._planned())]
                coming = heapq.merge(coming, planned, key=_AT)
            self._kept = (reserve(shape, clusters, coming, self._place),)
        return self._kept[0]

    def _reserve_around_windows(self, lane: Lane) -> ReservedCapacity | None:
        """Reserve capacity for the head where advance reservations leave it time enough."""
        booker, head = self._new_booker(), self._head
        booked = head and booker.book(lane, self._runtime(head), self._now + 1, self._index.requester(head))
        if not booked:
            return None
        spare = {
            share.machine.index: list(booker.timeline.free_at(share.machine, booked.start))
            for share in booked.shares
        }
        return ReservedCapacity(booked.start, booked.cluster, spare)

    def _new_booker(self) -> Booker:
        """Return a booker on a timeline of what runs and what this cycle places."""
        ends, now = self._ends, self._now
        timeline = Timeline(now, ends.releases(now), lambda machine: ends.on(machine, now), ends.same_on)
        if self._index.windowed:
            timeline.reserve(self._index.capacity.values())
        for job, held in self._placed:
            self._begin(timeline, held, self._until(job))
        return Booker(timeline, self._index.finder, self._place)

    def _begin(self, timeline: Timeline, held: tuple[HeldCapacity, ...], until: int) -> None:
        for each in held:
            timeline.begin(each, max(until, self._now + 1))

    def _runtime(self, job: Job) -> int:
        """Return how long a job is expected to run. With advance reservations, its walltime counts."""
        index = self._index
        return max(1, index.length(job) if index.windowed else index.runs(job))

    def _until(self, job: Job) -> int:
        """Return when a job would end if it started now."""
        return self._now + self._index.runs(job)
