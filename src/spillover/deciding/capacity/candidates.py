"""Machines of one cluster where a task of one shape fits, best first.

A heap that is kept up to date by reading only what changed since it was last looked at: a shape that does not fit costs next to
nothing, however many machines there are.
"""

import heapq
from collections.abc import Collection, Iterable
from typing import cast

from spillover.deciding.capacity.amounts import CPU, NOWHERE, Wants
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.protocols import Place, Route
from spillover.model.job import Shape
from spillover.model.units import FOREVER


class Candidates:
    """Where one task of jobs of one shape fits in one cluster."""

    __slots__ = (
        "_cpu",
        "_others",
        "cluster",
        "heap",
        "plain",
        "queues",
        "read",
        "scores",
        "shape",
        "turns",
        "wants",
    )

    def __init__(self, cluster: Capacity, shape: Shape) -> None:
        self.cluster = cluster
        self.shape = shape
        self.wants: Wants = NOWHERE
        self._cpu, self._others = FOREVER, NOWHERE
        """The same, in two: most machines have no CPU left."""
        self._ask()
        self.plain = not shape.needs and shape.rules is None
        """Whether it asks for amounts only; the cluster is one that it asks for."""
        self.scores: dict[int, int] = {}
        """Of the machines where it fits, by their index."""
        self.heap: list[tuple[int, int]] = []
        """(score, index) of those machines; an entry whose score is not the current one is void."""
        self.read = -1
        """How many changes of the cluster were read; -1 is none at all."""
        self.queues: tuple[Machine, ...] = ()
        """Machines that prefetch a lease of this shape, by their index, as of `turns` of the cluster."""
        self.turns = -1

    def _ask(self) -> None:
        """Find out what it asks for, in the positions that the cluster has by now."""
        self.wants = self.cluster.layout.wants(self.shape.resources)
        self._cpu, self._others = (self.wants[0][1], self.wants[1:]) if self.wants else (FOREVER, NOWHERE)

    def best(
        self, place: Place, barred: Collection[int] = (), passed: list[tuple[int, int]] | None = None
    ) -> Machine | None:
        """The machine to take, if it fits on one that is not barred.

        Barred ones that would come first are put back, or left in `passed` for who asks again and puts them back in the end.
        """
        cluster, heap, scores = self.cluster, self.heap, self.scores
        if self.read != cluster.forgotten + len(cluster.changes):
            self._read(place)
        aside: list[tuple[int, int]] = [] if passed is None else passed
        found: Machine | None = None
        while heap:
            score, index = heap[0]
            if scores.get(index) == score:
                if index not in barred:
                    found = cluster.slots[index]
                    break
                aside.append((score, index))
            heapq.heappop(heap)
        if passed is None and aside:
            self.put_back(aside)
        return found

    def _read(self, place: Place) -> None:
        """Look at machines on which something else is free by now."""
        cluster, shape, heap, scores = self.cluster, self.shape, self.heap, self.scores
        machines, score_of = cluster.slots, place.score
        end = cluster.forgotten + len(cluster.changes)
        if self.read < cluster.forgotten or end - self.read > len(machines):
            self._ask()  # there may be new kinds of resources
            heap.clear()
            scores.clear()
            look: Iterable[int] = range(len(machines))
        else:
            look = dict.fromkeys(cluster.changes[self.read - cluster.forgotten :])
        self.read = end
        cpu, others, plain = self._cpu, self._others, self.plain
        for index in look:
            machine = machines[index]
            free = machine.free
            # As `amounts.fits`, which is too dear to be called for every machine.
            fits = free[CPU] >= cpu
            if fits:
                for position, amount in others:
                    if free[position] < amount:
                        fits = False
                        break
            if fits and ((plain and not machine.repels) or machine.admits(shape)):
                score = score_of(machine, shape)
                if scores.get(index) != score:
                    scores[index] = score
                    heapq.heappush(heap, (score, index))
            elif index in scores:
                del scores[index]

    def put_back(self, passed: Iterable[tuple[int, int]]) -> None:
        """Let machines be found again that were passed over."""
        for each in passed:
            heapq.heappush(self.heap, each)

    def ahead(self, route: Route, seed: int) -> Machine | None:
        """The machine that prefetches one more lease, if there is any."""
        cluster = self.cluster
        if self.turns != cluster.turns:
            eager = [cluster.slots[index] for index in sorted(cluster.eager)]
            self.queues = tuple([each for each in eager if each.ahead > 0 and each.could_fit(self.shape)])
            self.turns = cluster.turns
        if not self.queues:
            return None
        return cast("Machine", route.pick(self.queues, len(cluster.machines), seed))
