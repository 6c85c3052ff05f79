"""Finds the machines of one cluster where a task of one shape fits, best first.

A heap keeps them. An update reads only machines that changed since the last one, so a shape that does not fit costs
almost nothing, however many machines there are.
"""

import heapq
from collections.abc import Collection, Iterable
from typing import cast

from spillover.deciding.capacity.amounts import CPU, GPU, MEMORY, NOWHERE, TASKS, Wants, fits
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.protocols import Place, Route
from spillover.model.job import Shape
from spillover.model.units import FOREVER


class Candidates:
    """The machines of one cluster where one task of a shape fits."""

    __slots__ = (
        "_cpu",
        "_gpu",
        "_memory",
        "_others",
        "_tasks",
        "alone",
        "cluster",
        "heap",
        "inner",
        "plain",
        "queues",
        "read",
        "scores",
        "shape",
        "turns",
        "wants",
    )

    def __init__(self, cluster: Capacity, shape: Shape, tasks: int = 1) -> None:
        self.cluster = cluster
        self.shape = shape
        self._tasks = tasks
        """How many tasks it stands for; more than one if it is a whole gang that must be on one machine."""
        self.wants: Wants = NOWHERE
        self._cpu, self._gpu, self._memory, self._others = FOREVER, 0, 0, NOWHERE
        """`wants` by resource, for the fast check of each machine."""
        self._ask()
        self.alone = shape.topology is not None and shape.topology.exclusive
        """Whether it needs a machine for itself."""
        self.inner = shape.topology is not None and shape.topology.asks_inside
        """Whether it asks for something inside of machines."""
        self.plain = not (shape.needs or shape.rules or shape.topology or shape.reservation)
        """Whether it asks for amounts only; its clusters were chosen before."""
        self.scores: dict[int, int] = {}
        """Scores of machines where it fits, by machine index."""
        self.heap: list[tuple[int, int]] = []
        """(score, index) of those machines; an entry with an old score is void."""
        self.read = -1
        """How many changes of the cluster were read; -1 before the first look."""
        self.queues: tuple[Machine, ...] = ()
        """Machines that can prefetch a lease of this shape, by index, as of `turns`."""
        self.turns = -1

    def _ask(self) -> None:
        """Look up the request in the present layout of the cluster."""
        self.wants = self.cluster.layout.wants(self.shape.resources)
        if self._tasks > 1:
            self.wants = tuple([(at, self._tasks if at == TASKS else many) for at, many in self.wants])
        asked = self.shape.resources
        self._cpu = asked.cpu if self.wants else FOREVER
        self._gpu, self._memory = asked.gpu, asked.memory
        self._others = tuple([want for want in self.wants if want[0] >= TASKS])

    def best(
        self, place: Place, barred: Collection[int] = (), passed: list[tuple[int, int]] | None = None
    ) -> Machine | None:
        """Return the best machine that is not barred; None if there is none.

        Barred machines that come first are put back, or left in `passed` for a caller that asks again and puts them
        back itself.
        """
        cluster, heap, scores = self.cluster, self.heap, self.scores
        if self.read != cluster.forgotten + len(cluster.changes):
            self._read(place)
        if not heap:
            return None  # as for most jobs that are tried on a full cluster
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

    def fitting(self, place: Place) -> list[Machine]:
        """Return all machines where a task fits now, in any order."""
        cluster = self.cluster
        if self.read != cluster.forgotten + len(cluster.changes):
            self._read(place)
        return list(map(cluster.slots.__getitem__, self.scores))

    def _read(self, place: Place) -> None:
        """Update the heap with machines that changed."""
        cluster, shape, heap, scores = self.cluster, self.shape, self.heap, self.scores
        machines, score_of = cluster.slots, place.score
        end = cluster.forgotten + len(cluster.changes)
        if self.read < cluster.forgotten or end - self.read > len(machines):
            if self.read < cluster.forgotten:
                self._ask()  # there may be new kinds of resources
            heap.clear()
            scores.clear()
            look: Iterable[int] = range(len(machines))
        elif end - self.read == 1:
            look = cluster.changes[-1:]
        else:
            look = dict.fromkeys(cluster.changes[self.read - cluster.forgotten :])
        self.read = end
        cpu, gpu, memory, others, plain = self._cpu, self._gpu, self._memory, self._others, self.plain
        closer = self.alone or self.inner
        for index in look:
            machine = machines[index]
            free = machine.free
            # As `amounts.fits`, without a call or a loop for every machine.
            if (
                free[CPU] >= cpu
                and free[GPU] >= gpu
                and free[MEMORY] >= memory
                and (not others or fits(others, free))
                and ((plain and not machine.repels) or machine.admits(shape))
                and (plain or not closer or machine.holds(shape, self.wants, free))
            ):
                score = score_of(machine, shape)
                if scores.get(index) != score:
                    scores[index] = score
                    heapq.heappush(heap, (score, index))
            elif index in scores:
                del scores[index]

    def held(self, machine: Machine) -> Wants:
        """Return what a task that starts now takes of a machine: what it asks for, or all of it."""
        return (
            self.wants
            if machine.inside is None and not self.alone
            else machine.held_now(self.shape, self.wants)
        )

    def taken(self, machine: Machine) -> Wants:
        """Return the amounts that a task takes, without its share of what is inside."""
        return self.wants if machine.inside is None else machine.asks(self.shape, self.wants)

    def put_back(self, passed: Iterable[tuple[int, int]]) -> None:
        """Put back machines that were passed over."""
        for each in passed:
            heapq.heappush(self.heap, each)

    def ahead(self, route: Route, seed: int, barred: Collection[int] = ()) -> Machine | None:
        """Return the machine that gets a prefetched lease and is not barred; None if none takes one."""
        cluster = self.cluster
        if self.turns != cluster.turns:
            eager = [cluster.slots[index] for index in sorted(cluster.eager)]
            # Server and agent must agree on what a task has for itself, so it is not prefetched.
            self.queues = tuple(
                [
                    each
                    for each in eager
                    if each.ahead > 0 and each.could_fit(self.shape) and not each.grants(self.shape)
                ]
            )
            if self.alone:  # an agent starts prefetched leases beside others
                self.queues = ()
            self.turns = cluster.turns
        queues = self.queues
        if barred:
            queues = tuple([each for each in queues if each.index not in barred])
        if not queues:
            return None
        return cast("Machine", route.pick(queues, len(cluster.machines), seed))
