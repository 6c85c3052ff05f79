"""Finds the waiting jobs with which a gang of elastic size shares what is free, for size policies."""

import heapq
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

from spillover.core.records.jobs import Job
from spillover.deciding.capacity.counts import counts_in
from spillover.deciding.capacity.gangs import GangCandidates
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.protocols import Place, SizeCase
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Lane
from spillover.model.cluster import OWNED, Role
from spillover.model.job import Shape

MOST: Final = 256
"""The most jobs that share with a gang, and the most lanes in which they are looked for."""


class Sharers:
    """The waiting jobs of one cycle."""

    __slots__ = ("_draft", "_index", "_lanes", "_place")

    def __init__(self, index: SchedulingIndex, draft: Draft, place: Place) -> None:
        self._index = index
        self._draft = draft
        self._place = place
        self._lanes: dict[Role, list[Lane]] = {}
        """The first lanes in order, sorted once in a cycle."""

    def case(self, job: Job, gang: GangCandidates, role: Role) -> SizeCase:
        """Describe a gang of which the least size has been taken, and the jobs that fit beside it."""
        shape = job.kind.shape
        free = shape.tasks + sum(counts_in(gang.cluster, shape).tasks.values())
        others: list[int] = []
        for lane in self._in_order(role):
            asked = _in_tasks(shape, lane.kind.shape)
            if not asked or lane.is_held_back or not self._fits(lane, gang, role):
                continue
            for many in self._waiting(lane, job, role):
                others += [asked] * min(many, MOST - len(others))
                if len(others) >= MOST:
                    return SizeCase(shape, free, tuple(others))
        return SizeCase(shape, free, tuple(others))

    def _in_order(self, role: Role) -> list[Lane]:
        """Return the first lanes with jobs that may start on clusters of a role."""
        lanes = self._lanes.get(role)
        if lanes is None:
            index, draft = self._index, self._draft
            first = (index.queue if role is OWNED else index.due).first
            found = heapq.nsmallest(MOST, [(entry, lane) for lane, entry in first.items()])
            lanes = self._lanes[role] = [lane for _, lane in found]
            if role is not OWNED:  # those whose wait has just ended
                newly = [index.lane_of(draft.state.jobs[each]) for each in islice(draft.expired, MOST)]
                lanes += [lane for lane in dict.fromkeys(newly) if lane not in lanes]
        return lanes

    def _waiting(self, lane: Lane, gang: Job, role: Role) -> Iterator[int]:
        """Yield how much of each job of a lane waits, without the gang itself."""
        draft = self._draft
        for _, _, each in islice(self._index.queue.jobs(lane), 4 * MOST):
            job = draft.state.jobs[each]
            if job is gang or (role is not OWNED and job.due is None and each not in draft.expired):
                continue
            yield max(0, draft.left(job, role))

    def _fits(self, lane: Lane, gang: GangCandidates, role: Role) -> bool:
        """Return whether a job of a lane fits on the cluster of a gang now."""
        finder = self._index.finder
        if not lane.kind.shape.is_gang:
            found = [each for each in finder.candidates(lane, role) if each.cluster is gang.cluster]
            return any(each.best(self._place) is not None for each in found)
        for each in finder.gang_candidates(lane, role):
            if each.cluster is gang.cluster and (parts := each.take(self._place)):
                each.undo(parts)
                return True
        return False


@lru_cache(maxsize=4096)  # because the same few shapes meet again and again
def _in_tasks(gang: Shape, other: Shape) -> int:
    """Return what a job asks for, in tasks of a gang, rounded up."""
    one = gang.resources
    total = (other.sized(other.most) if other.most else other).total
    if one.gpu:
        return -(-total.gpu // one.gpu)
    if one.cpu:
        return -(-total.cpu // one.cpu)
    return max(other.tasks, other.most)
