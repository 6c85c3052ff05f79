"""Slots on rented machines, and what a job there adds to the bill.

A machine that has tasks stays until the last of them ends, and then as long as empty machines do. A job that ends before
that adds nothing.
"""

from typing import Final

from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.machines import RentedMachine
from spillover.deciding.capacity.amounts import change
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.forecast.estimates import began_at
from spillover.deciding.forecast.starts import overdue
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.giving_back import leaves_at
from spillover.model.cluster import WHOLE, ClusterSpec, cost_of_job, share_of
from spillover.model.ids import job_of_task
from spillover.model.job import Shape
from spillover.model.pools import MachineId, Pool
from spillover.model.units import FOREVER

MOST_ENDS: Final = 32
"""The most ends of jobs for which a slot remembers what they add."""


class Slot:
    """A rented machine with room, there or coming, and what is paid for it whatever is decided now."""

    __slots__ = (
        "_bill",
        "_boots",
        "_machine",
        "_more",
        "_now",
        "_pool",
        "_spec",
        "_state",
        "busy",
        "empty",
        "place",
        "ready",
    )

    def __init__(
        self,
        draft: Draft,
        spec: ClusterSpec,
        place: Machine,
        machine: RentedMachine | None,
        busy: int,
        ready: int,
        boots: dict[int, int],
    ) -> None:
        self._state = draft.state
        self._now = draft.now
        self._spec = spec
        self._pool = spec.pool
        self._machine = machine
        """None for a machine that no pool rented: jobs pay by use there."""
        self.place = place
        self.ready = ready
        """When it is ready, nanoseconds UTC."""
        self.busy = busy
        """Until when it has tasks, nanoseconds UTC; FOREVER if the pool keeps it in any case."""
        self.empty = False
        """Whether it is ready and had no tasks before this cycle."""
        self._bill = -1
        """What it costs if it gets no further task, in millionths; -1 until that is needed."""
        self._boots = boots
        """Boot times by the identity of the offer, which all slots of a cycle share."""
        self._more: dict[int, int] = {}
        """What jobs add, by when they would end: many run for the same time, and each looks at all slots."""

    @property
    def is_spot(self) -> bool:
        """Whether its provider may take it back."""
        return self._machine is not None and self._machine.offer.spot

    def adds(self, shape: Shape, runs: int) -> int:
        """Return what a job adds to the bill of the machine if no other job uses the time that is not paid anyway."""
        machine, pool, end = self._machine, self._pool, self.ready + runs
        if machine is None or pool is None:
            return cost_of_job(self._spec, shape, runs)
        if end <= self.busy:
            return 0
        more = self._more.get(end)
        if more is None:
            if self._bill < 0:
                self._bill = self._billed(machine, pool, self.busy)
            if len(self._more) >= MOST_ENDS:
                self._more.clear()
            more = self._more[end] = max(0, self._billed(machine, pool, end) - self._bill)
        return more

    def price(self, shape: Shape, runs: int) -> int:
        """Return what a job adds to the bill, in millionths: its share of the time that is not paid anyway."""
        more = self.adds(shape, runs)
        if not more or self._machine is None:
            return more
        return more * share_of(self.place.total, shape.resources) // WHOLE

    def _billed(self, machine: RentedMachine, pool: Pool, busy: int) -> int:
        """Return what the machine costs if it has tasks until a time, and then stays as long as empty ones do."""
        leaves = leaves_at(self._state, self._spec, pool, machine, busy, self._now, self._boots)
        return machine.bill(self._spec.billing, max(self._now, leaves))

    def extend(self, runs: int) -> None:
        """Note that a job runs there."""
        end = self.ready + runs
        if end > self.busy:
            self.busy, self._bill = end, -1
            self._more.clear()

    def take(self, shape: Shape, runs: int) -> None:
        """Let a job take its room, of a machine that may be changed."""
        place = self.place
        change(place.free, place.takes(shape), -1)
        self.extend(runs)


class Slots:
    """The slots on ready machines of one cycle."""

    def __init__(self, draft: Draft, index: SchedulingIndex, *, copies: bool = False) -> None:
        self._draft = draft
        self._index = index
        self._copies = copies
        """Whether slots have copies of machines, from which jobs may take their room in thought."""
        self.boots: dict[int, int] = {}
        """Boot times by the identity of the offer."""
        self._known: dict[Machine, Slot] = {}
        self._kept: dict[str, bool] = {}
        """Whether a pool has no more machines than it always keeps."""

    def of(self, spec: ClusterSpec, place: Machine) -> Slot:
        """Return the slot on a ready machine."""
        slot = self._known.get(place)
        if slot is None:
            slot = self._known[place] = self._slot(spec, place)
        return slot

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
        own = place.copy(place.layout) if self._copies else place
        slot = Slot(self._draft, spec, own, machine, busy, now + spec.startup, self.boots)
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
