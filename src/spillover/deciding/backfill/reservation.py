"""Capacity that a cycle keeps for the first job that does not fit, so that whoever passes it does not delay it."""

import heapq
from collections.abc import Collection
from operator import attrgetter

from spillover.core.jobs import Job
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import HeldCapacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.forecast.ends import End, Ends, Release, ReservedCapacity, reserve
from spillover.deciding.protocols import Place, Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Lane
from spillover.model.cluster import Role

LOOKS = 1000
"""Jobs behind one of their lane that is blocked, at which a cycle looks for shorter ones."""
_AT = attrgetter("at")


class Reservation:
    """Lives for one cycle, where a policy looks ahead."""

    def __init__(self, index: SchedulingIndex, ends: Ends, policies: Policies, now: int) -> None:
        self._index = index
        self._ends = ends
        self._place: Place = policies.place
        self._now = now
        self._planned: list[End] = []
        """When what this cycle places on owned capacity is expected to end."""
        self._kept: tuple[ReservedCapacity | None] | None = None
        """What is kept for the head; None until somebody asked."""
        self._lane: Lane | None = None
        """Of the head."""
        self.keeps = False
        """Whether there is a head."""
        self.blocked = False
        """Whether the job looked at last would fit, but for what is kept."""
        self.waits_for_end = False
        """Whether any job would have fitted, but for what is kept."""
        self._blocked: dict[Lane, None] = {}
        """Lanes of which a job would have fitted, but for what is kept."""
        self.looks = LOOKS
        """At how many more jobs of those lanes the cycle looks."""

    def keep_for(self, lane: Lane) -> None:
        """Keep what the first job that does not fit will need, if it ever fits anywhere."""
        self.keeps, self._lane = True, lane

    def best(self, job: Job, candidates: Candidates, first: Machine) -> Machine | None:
        """The machine to take so that the head is not delayed, if there is one; `first` is the best of all."""
        kept = self._reservation()
        if kept is None or kept.cluster is not candidates.cluster:
            return first
        until, barred, passed = self._until(job), set[int](), list[tuple[int, int]]()
        machine: Machine | None = first
        while machine is not None and not kept.allows(machine, candidates.wants, until):
            barred.add(machine.index)
            machine = candidates.best(self._place, barred, passed)
        candidates.put_back(passed)
        if machine is not None:
            kept.took(machine, candidates.wants, until)
        else:
            self.blocked = True
        return machine

    def block(self, lane: Lane) -> None:
        """A job of a lane was blocked: so is every other of it that would end after the head is to start."""
        self.blocked, self.waits_for_end = False, True
        self._blocked[lane] = None

    def is_blocked(self, job: Job, lane: Lane) -> bool:
        """Whether a job need not be tried, as another of its lane was blocked that would not end in time either."""
        if lane not in self._blocked:
            return False
        kept = self._reservation()
        self.looks -= 1
        return kept is not None and self._until(job) > kept.at

    def barred(self, job: Job, cluster: Capacity) -> Collection[int]:
        """Machines that a gang must not touch so that the head is not delayed."""
        kept = self._reservation() if self.keeps else None
        return (
            () if kept is None or kept.cluster is not cluster or self._until(job) <= kept.at else kept.spare
        )

    def took(self, job: Job, held: tuple[HeldCapacity, ...]) -> None:
        """A job was given room."""
        number = -1 - len(
            self._planned
        )  # of its own: ends of one moment must not be told apart by their machines
        self._planned.append(End(self._until(job), number, job.id, self._now, held))

    def ends(self) -> list[End]:
        """When what runs is expected to end, with what this cycle places."""
        return sorted([*self._ends.sorted, *self._planned]) if self._planned else self._ends.sorted

    def again(self) -> int:
        """When ends come to be expected otherwise, which could let a job start that waits for what is kept."""
        return self._ends.next_turn(self._now)

    def _reservation(self) -> ReservedCapacity | None:
        """What is kept for the head; found out when somebody behind it could start."""
        if self._lane is None:
            return None
        if self._kept is None:
            shape = self._lane.kind.shape
            clusters = [
                each
                for each in self._index.finder.clusters_for(self._lane, Role.OWNED)
                if shape.tasks == 1 or each.spec.gangs
            ]
            planned = [Release(end.at, held) for end in sorted(self._planned) for held in end.held]
            releases = heapq.merge(self._ends.releases(self._now), planned, key=_AT)
            self._kept = (reserve(shape, clusters, releases, self._place),)
        return self._kept[0]

    def _until(self, job: Job) -> int:
        """When a job would be expected to end if it started now."""
        return self._now + self._index.runs(job)
