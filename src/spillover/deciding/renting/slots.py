"""Slots on rented machines, and what a job there adds to the bill.

A machine that has tasks stays until the last of them ends, and then as long as empty machines do. A job that ends before
that adds nothing.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Final

from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.machines import RentedMachine
from spillover.deciding.capacity.amounts import change
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.forecast.estimates import began_at
from spillover.deciding.forecast.starts import overdue
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.bills import Best, Bill, Bills, Ladder
from spillover.model.cluster import WHOLE, ClusterSpec, cost_of_job, share_of
from spillover.model.ids import ClusterName, job_of_task
from spillover.model.job import Shape
from spillover.model.pools import MachineId
from spillover.model.units import FOREVER

FEW: Final = 16
"""Up to so many machines are compared one by one, because an order of all machines of the cluster costs more."""


class Slot:
    """A rented machine with room, there or coming, and what is paid for it whatever is decided now."""

    __slots__ = (
        "_bill",
        "_bills",
        "_copies",
        "_machine",
        "_place",
        "_row",
        "_spec",
        "busy",
        "empty",
        "index",
        "ready",
    )

    def __init__(
        self,
        bills: Bills,
        spec: ClusterSpec,
        place: Machine,
        machine: RentedMachine | None,
        busy: int,
        ready: int,
        *,
        copies: bool = False,
    ) -> None:
        self._bills = bills
        self._spec = spec
        self._machine = machine
        """None for a machine that no pool rented: jobs pay by use there."""
        self._place = place
        self._copies = copies
        """Whether jobs may take room there in thought, for which it needs a copy of the machine."""
        self.ready = ready
        """When it is ready, nanoseconds UTC."""
        self.busy = busy
        """Until when it has tasks, nanoseconds UTC; FOREVER if the pool keeps it in any case."""
        self.empty = False
        """Whether it is ready and had no tasks before this cycle."""
        self.index = place.index
        self._bill: Bill | None = None
        """None until that is needed, and for a machine that no pool rented."""
        self._row: _Row | None = None
        """The slots that it is in order with; None if there are none."""

    @property
    def place(self) -> Machine:
        """The machine, with what is left of it."""
        if self._copies:
            self._place, self._copies = self._place.copy(self._place.layout), False
        return self._place

    @property
    def spec(self) -> ClusterSpec:
        """The cluster of the machine."""
        return self._spec

    @property
    def is_spot(self) -> bool:
        """Whether its provider may take it back."""
        return self._machine is not None and self._machine.offer.spot

    @property
    def bill(self) -> Bill | None:
        """What is paid for it if it gets no further task; None if jobs pay by use there."""
        if self._bill is None and self._machine is not None and self._spec.pool is not None:
            self._bill = self._bills.of(self._spec, self._spec.pool, self._machine, self.busy)
        return self._bill

    def adds(self, shape: Shape, runs: int) -> int:
        """Return what a job adds to the bill of the machine if no other job uses the time that is not paid anyway."""
        bill = self.bill
        return cost_of_job(self._spec, shape, runs) if bill is None else bill.adds(self.ready + runs)

    def price(self, shape: Shape, runs: int) -> int:
        """Return what a job adds to the bill, in millionths: its share of the time that is not paid anyway."""
        more = self.adds(shape, runs)
        if not more or self._machine is None:
            return more
        return more * share_of(self._place.total, shape.resources) // WHOLE

    def extend(self, runs: int) -> None:
        """Note that a job runs there."""
        end = self.ready + runs
        if end > self.busy:
            before, self.busy, self._bill = self.busy, end, None
            if self._row is not None:
                self._row.moved(self, before)

    def join(self, row: "_Row") -> None:
        """Let a row know when its order changes."""
        self._row = row

    def take(self, shape: Shape, runs: int) -> None:
        """Let a job take its room, of a machine that may be changed."""
        place = self.place
        change(place.free, place.takes(shape), -1)
        self.extend(runs)


class _Row:
    """The slots of all ready machines of a cluster, in the orders that somebody asked for."""

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = {each.index: each for each in slots}
        for each in slots:
            each.join(self)

    @cached_property
    def by_busy(self) -> list[tuple[int, int]]:
        """Until when they have tasks, the last first, and their indexes."""
        return sorted([(-each.busy, index) for index, each in self.slots.items()])

    @cached_property
    def ladder(self) -> Ladder:
        """Those of the pool by their bills."""
        ladder = Ladder()
        for index, each in self.slots.items():
            if each.bill is not None:
                ladder.put(index, each.bill)
        return ladder

    @cached_property
    def by_use(self) -> list[int]:
        """Indexes of those where jobs pay by use."""
        return [index for index, each in self.slots.items() if each.bill is None]

    def moved(self, slot: Slot, busy: int) -> None:
        """Take over that a slot has tasks for longer than before."""
        if "by_busy" in self.__dict__:
            del self.by_busy[bisect_left(self.by_busy, (-busy, slot.index))]
            insort(self.by_busy, (-slot.busy, slot.index))
        if "ladder" in self.__dict__ and slot.bill is not None:
            self.ladder.put(slot.index, slot.bill)


class Slots:
    """The slots on ready machines of one cycle."""

    def __init__(self, draft: Draft, index: SchedulingIndex, *, copies: bool = False) -> None:
        self._draft = draft
        self._index = index
        self._copies = copies
        """Whether jobs take room of slots in thought."""
        self.bills = Bills(draft.state, draft.now)
        self._known: dict[Machine, Slot] = {}
        self._rows: dict[ClusterName, _Row] = {}
        self._kept: dict[str, bool] = {}
        """Whether a pool has no more machines than it always keeps."""

    def of(self, spec: ClusterSpec, place: Machine) -> Slot:
        """Return the slot on a ready machine."""
        slot = self._known.get(place)
        if slot is None:
            slot = self._known[place] = self._slot(spec, place)
        return slot

    def _row(self, cluster: Capacity) -> _Row:
        row = self._rows.get(cluster.name)
        if row is None:
            spec = cluster.spec
            ready = [self.of(spec, each) for each in cluster.machines if each.ready]
            row = self._rows[cluster.name] = _Row(ready)
        return row

    def cheapest(
        self, candidates: Candidates, shape: Shape, runs: int, closed: Collection[int]
    ) -> int | None:
        """Return the index of the machine to whose bill a job adds least, of those where it fits that are not closed to it.

        The score of the place policy decides between equals, and then the index. All machines where it fits were read.
        """
        cluster, scores = candidates.cluster, candidates.scores
        spec, slots = cluster.spec, cluster.slots
        if len(scores) <= FEW:
            few = [
                Best(self.of(spec, slots[each]).adds(shape, runs), score, each)
                for each, score in scores.items()
                if each not in closed
            ]
            return min(few).machine if few else None
        row = self._row(cluster)
        by_use = [
            Best(row.slots[each].adds(shape, runs), scores[each], each)
            for each in row.by_use
            if each in scores and each not in closed
        ]
        end = self._draft.now + spec.startup + runs
        best = row.ladder.best(end, scores, closed, min(by_use, default=None))
        return None if best is None else best.machine

    def by_busy(self, candidates: Candidates, closed: Collection[int]) -> Iterator[Slot]:
        """Return the slots where a job fits that are not closed to it: those first that have tasks for longest, as it is now.

        All machines where it fits were read.
        """
        cluster, scores = candidates.cluster, candidates.scores
        if len(scores) <= FEW:
            few = [self.of(cluster.spec, cluster.slots[each]) for each in scores if each not in closed]
            return iter(sorted(few, key=lambda each: (-each.busy, each.index)))
        row = self._row(cluster)
        order, slots = tuple(row.by_busy), row.slots
        return (slots[each] for _, each in order if each in scores and each not in closed)

    def _slot(self, spec: ClusterSpec, place: Machine) -> Slot:
        state, now = self._draft.state, self._draft.now
        machine = state.machines.get(MachineId(place.name))
        if spec.pool is None or (machine is not None and machine.cluster != spec.name):
            machine = None
        busy, empty = now, False
        if machine is not None:
            node = state.nodes.get(machine.key)
            for key in () if node is None else node.holding:
                busy = max(busy, self._ends(state.jobs[job_of_task(key)]))
            if machine.empty_since is not None and busy <= now:
                busy, empty = machine.empty_since, True
            if self._keeps_all(spec):
                busy = FOREVER
        slot = Slot(self.bills, spec, place, machine, busy, now + spec.startup, copies=self._copies)
        slot.empty = empty
        return slot

    def _keeps_all(self, spec: ClusterSpec) -> bool:
        """Return whether a pool has no more machines than it always keeps."""
        if spec.pool is None or not spec.pool.min:
            return False
        answer = self._kept.get(spec.name)
        if answer is None:
            live = len(self._draft.state.live_rented.get(spec.name, ()))
            answer = self._kept[spec.name] = live <= spec.pool.min
        return answer

    def _ends(self, job: Job) -> int:
        """Return when a job on a rented machine is expected to end, nanoseconds UTC."""
        phase, now = job.phase, self._draft.now
        if type(phase) is not Running and type(phase) is not Placed:
            return now
        began = began_at(phase, self._draft.state.facts.jumped)
        end = began + self._index.runs(job)
        return end if end > now else overdue(now, began)
