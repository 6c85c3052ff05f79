"""Finds the machines of one cluster where a task of one shape fits, best first.

A heap keeps them. An update reads only machines that changed since the last one, so a shape that does not fit costs
almost nothing, however many machines there are.

On a large cluster the first look reads states (see `states`). Each state where a task fits has a *run*: its machines in
order. Only the first of them is in the heap, and the next one follows when that one comes out. Machines that changed
since are read one by one, and their runs pass over them.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, cast

from spillover.deciding.capacity.amounts import CPU, GPU, MEMORY, NOWHERE, TASKS, Wants, fits
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.states import FEW, scores_states, with_any_memory
from spillover.deciding.protocols import Place, Route
from spillover.model.job import Shape
from spillover.model.units import FOREVER

SPARE: Final = 64
"""Void entries of the heap that are tolerated, in addition to some for each machine."""


class Candidates:
    """The machines of one cluster where one task of a shape fits."""

    __slots__ = (
        "_cpu",
        "_gpu",
        "_memory",
        "_others",
        "_runs",
        "_singled",
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
        """Scores of machines where it fits, by machine index; without those that are still in runs."""
        self.heap: list[tuple[int, int]] = []
        """(score, index) of those machines, and of the first one of each run; an entry with an old score is void."""
        self._runs: dict[int, tuple[int, list[int]]] = {}
        """By its first index, the score of each run, and the indexes of its state. See `States.indexes`."""
        self._singled: set[int] = set()
        """Indexes of machines that changed since there are runs, and so are in none."""
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
        runs = self._runs
        while heap:
            score, index = heap[0]
            if runs and index in runs:
                self._take_out(index)
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
        self.read_all(place)
        return list(map(self.cluster.slots.__getitem__, self.scores))

    def fits_only_on(self, machines: AbstractSet[int]) -> bool:
        """Return whether a task surely fits on none but these machines, by index, as of the last look."""
        return not self._runs and self.scores.keys() <= machines

    def read_all(self, place: Place) -> None:
        """Read what has changed, and let `scores` have all machines where a task fits."""
        cluster = self.cluster
        if self.read != cluster.forgotten + len(cluster.changes):
            self._read(place)
        if self._runs:
            self._settle()

    def _settle(self) -> None:
        """Let `scores` have the machines of all runs, and the heap only what is not void."""
        scores, singled = self.scores, self._singled
        for first, (score, indexes) in self._runs.items():
            rest = islice(indexes, bisect_left(indexes, first), None)
            scores.update([(each, score) for each in rest if each not in singled and self._fits_on(each)])
        self._runs.clear()
        singled.clear()
        self.heap[:] = [(score, index) for index, score in scores.items()]
        heapq.heapify(self.heap)

    def _read(self, place: Place) -> None:
        """Update the heap with machines that changed."""
        cluster, shape, heap, scores = self.cluster, self.shape, self.heap, self.scores
        machines, score_of = cluster.slots, place.score
        count = len(machines)
        end = cluster.forgotten + len(cluster.changes)
        if self.read < cluster.forgotten or end - self.read > count:
            if self.read < cluster.forgotten:
                self._ask()  # there may be new kinds of resources
            heap.clear()
            scores.clear()
            self._runs.clear()
            self._singled.clear()
            if count > FEW:
                self._read_states(place)
                self.read = end
                return
            look: Iterable[int] = range(count)
        elif end - self.read == 1:
            look = cluster.changes[-1:]
        else:
            look = dict.fromkeys(cluster.changes[self.read - cluster.forgotten :])
            if len(heap) > 2 * count + SPARE:  # not after each single change, which is most of them
                self._settle()
        self.read = end
        if self._runs:
            self._singled.update(look)
            if len(self._singled) > count // 4:
                self._settle()
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

    def _read_states(self, place: Place) -> None:
        """Read all machines, of those in one state only the first. See the top of this module."""
        cluster, shape, heap, wants = self.cluster, self.shape, self.heap, self.wants
        machines, score_of, scores = cluster.slots, place.score, self.scores
        cpu, gpu, closer, alike = self._cpu, self._gpu, self.alone or self.inner, scores_states(place)
        for indexes in cluster.states.now().values():
            machine = machines[indexes[0]]
            free: Sequence[int] = machine.free
            if free[CPU] < cpu or free[GPU] < gpu:
                continue
            if not fits(wants, free := with_any_memory(machine, free)):
                continue
            if closer and not machine.holds(shape, wants, free):
                continue
            if alike:
                score = score_of(machine, shape)
                self._runs[indexes[0]] = score, indexes
                heap.append((score, indexes[0]))
                continue
            for index in indexes:
                if self._fits_on(index):
                    scores[index] = score = score_of(machines[index], shape)
                    heap.append((score, index))
        heapq.heapify(heap)

    def _take_out(self, first: int) -> None:
        """Take the first machine out of a run, whose entry is on top of the heap, and let the next one follow."""
        score, indexes = self._runs.pop(first)
        singled = self._singled
        if fits_there := first not in singled and self._fits_on(first):
            self.scores[first] = score
        # Machines have left the list and joined it since, but only some that changed.
        for at in range(bisect_right(indexes, first), len(indexes)):
            index = indexes[at]
            # If it does not fit on this one, then neither on most others, so do not pass them through the heap.
            if index not in singled and (fits_there or self._fits_on(index)):
                self._runs[index] = score, indexes
                heapq.heappush(self.heap, (score, index))
                break
        if not self._runs:
            singled.clear()

    def _fits_on(self, index: int) -> bool:
        """Return whether a task fits on a machine, if it fits on some machine in its state."""
        machine = self.cluster.slots[index]
        if machine.free[MEMORY] < self._memory or (self.alone and not machine.is_empty(machine.free)):
            return False
        if self.inner and machine.memories and not machine.holds(self.shape, self.wants, machine.free):
            return False
        return (self.plain and not machine.repels) or machine.admits(self.shape)

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
