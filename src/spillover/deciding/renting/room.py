"""Projects which jobs machines that are there, or are coming, will take before a new machine could be ready.

Running tasks end, machines that were ordered become ready, and each time the first jobs that fit take what is free. A
job that starts that way within its limit needs no machine of its own. This is a forecast for the plan of machines only:
jobs are placed when there is room, in whatever order the policies say then.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.deciding.capacity.amounts import CPU, Wants, change
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.forecast.estimates import began_at, estimate
from spillover.deciding.forecast.starts import overdue
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.demand import Demand
from spillover.deciding.renting.offers import Alike
from spillover.deciding.renting.spot import LateBoots
from spillover.model.cluster import RENTED
from spillover.model.ids import JobId, job_of_task
from spillover.model.job import Shape
from spillover.model.pools import MachineId, MachineState, Pool, machine_number
from spillover.model.units import FOREVER, MINUTE

MOST_STEPS: Final = 20_000
"""The most changes of free capacity that one projection follows."""


class Room:
    """What becomes free on rented machines, and when."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._changes: list[tuple[int, int, Machine, Wants]] = []
        """Heap of (time, number, machine, what becomes free there); nothing becomes free on a machine that becomes ready."""
        self._ready = 0
        """When the last of the machines that were ordered is ready, nanoseconds UTC."""
        self._numbers = 0
        self.starts = FOREVER
        """When the first job starts that waits for something, nanoseconds UTC."""
        self.used: dict[str, int] = {}
        """Machines that took a job, by name, each with the position of the first such job."""
        self.spots: dict[str, int] = {}
        """Spot machines, each with the slack in nanoseconds that a job needs which starts there."""

    def add(self, at: int, machine: Machine, freed: Wants = ()) -> None:
        """Note that something becomes free on a machine."""
        self._numbers += 1
        heapq.heappush(self._changes, (max(at, self._now), self._numbers, machine, freed))

    def add_ready(self, at: int, machine: Machine) -> None:
        """Note that a machine becomes ready. A job may always wait for it: another one would not be ready sooner."""
        self.add(at, machine)
        self._ready = max(self._ready, at)

    def take(self, demand: Iterable[Demand], latest: Callable[[Demand], int]) -> None:
        """Let jobs take what becomes free, in order, if they start by their latest time; gangs take nothing."""
        left = [
            (each, latest(each), at)
            for at, each in enumerate(demand)
            if each.count and not each.job.kind.shape.is_gang
        ]
        shapes = {each.alike: each.job.kind.shape for each, _, _ in left}
        last, steps = max([self._ready, *[until for _, until, _ in left]]), MOST_STEPS
        while left and self._changes and steps > 0 and self._changes[0][0] <= last:
            at, _, machine, freed = heapq.heappop(self._changes)
            change(machine.free, freed, 1)
            steps -= 1
            free = machine.free[CPU]
            fitting = {
                alike: shape
                for alike, shape in shapes.items()
                if shape.resources.cpu <= free and machine.fits(shape)
            }
            if fitting and self._fill(machine, at, left, fitting, freed):
                left = [each for each in left if each[0].count]

    def _fill(
        self,
        machine: Machine,
        at: int,
        left: Sequence[tuple[Demand, int, int]],
        fitting: dict[int, Shape],
        freed: Wants,
    ) -> bool:
        """Let jobs of shapes that fit take what is free on a machine at a time; return whether any did."""
        took, spot = False, self.spots.get(machine.name, 0)
        for each, until, position in left:
            shape = fitting.get(each.alike)
            if shape is None or (freed and at > until):
                continue
            if spot and each.slack < max(0, at - self._now) + spot:
                continue
            while each.count and machine.fits(shape):
                wants = machine.takes(shape)
                change(machine.free, wants, -1)
                each.count -= 1
                self.used[machine.name] = min(position, self.used.get(machine.name, position))
                self.add(at + each.runs, machine, wants)
                took = True
                if self._now < at < self.starts:
                    self.starts = at
            if each.count:
                del fitting[each.alike]
                if not fitting:
                    break
        return took


class _Ends:
    """When tasks are expected to end."""

    def __init__(self, state: State, index: SchedulingIndex, now: int, *, longer: bool) -> None:
        self._now = now
        self._unknown = index.policies.chosen.unknown_runtime
        self._jumped = state.facts.jumped
        self._longer = longer

    def of(self, job: Job) -> int:
        """Return when a job is expected to end, nanoseconds UTC: the later, the longer it has run beyond that; or FOREVER."""
        phase = job.phase
        if type(phase) is not Running and type(phase) is not Placed:
            return FOREVER
        began = began_at(phase, self._jumped)
        end = began + estimate(job, self._unknown).runtime
        if end > self._now:
            return end
        return overdue(self._now, began) if self._longer else self._now + MINUTE


def room_of(
    state: State,
    index: SchedulingIndex,
    now: int,
    earmarks: Mapping[MachineId, JobId] | None = None,
    wanted: Sequence[tuple[Shape, int]] | None = None,
    *,
    longer: bool = True,
) -> Room:
    """Return what becomes free on rented machines: where tasks run, and on those that were ordered.

    Machines with earmarks are left out: they are kept for gangs. If it is known which shapes are `wanted`, and until
    when each, so are machines and ends of tasks that no such job could use. That saves most of the work. Without `longer`,
    tasks that run for longer than expected end in a minute, as in earlier rules, and jobs wait for them again and again.
    """
    ends = _Ends(state, index, now, longer=longer)
    earmarks = earmarks or {}
    room, late, alike = Room(now), LateBoots(state), Alike(state)
    coming = _coming(state, index, earmarks)
    last = (
        FOREVER
        if wanted is None
        else max([at for at, _, _ in coming] + [until for _, until in wanted], default=0)
    )
    for cluster in index.capacity.values():
        if cluster.spec.role is RENTED and (cluster.spec.made_by or not cluster.spec.external):
            _add_present(
                room,
                state,
                cluster,
                now,
                last,
                earmarks,
                ends,
                None if wanted is None else [shape for shape, _ in wanted],
                late,
            )
    for ready, count, each in coming:
        like = alike.of(state.clusters[each.cluster], each.offer)
        for _ in range(count):
            machine = like.machines[0].copy(like.layout)
            machine.name = each.key.partition("/")[2]  # type: ignore[assignment]
            if each.offer.spot:
                room.spots[machine.name] = late.of(like.spec)
            room.add_ready(ready, machine)
    for cluster in index.capacity.values():
        if cluster.spec.pool is not None and not cluster.spec.external:
            _add_returning(room, state, cluster, earmarks, ends, late, alike)
    return room


def _add_returning(
    room: Room,
    state: State,
    cluster: Capacity,
    earmarks: Mapping[MachineId, JobId],
    ends: _Ends,
    late: LateBoots,
    alike: Alike,
) -> None:
    """Add machines whose agents have not found this server yet. They will soon, or they are lost."""
    for machine in cluster.machines:
        known = None if machine.ready else state.machines.get(MachineId(machine.name))
        if known is None or known.state is not MachineState.READY or known.id in earmarks:
            continue
        node = state.agents.get(known.key)
        if node is None or node.status != "unobserved" or node.drained:
            continue
        own = alike.empty(cluster.spec, known.offer)
        own.name = machine.name
        if known.offer.spot:
            room.spots[own.name] = late.of(cluster.spec)
        for key, held in node.holding.items():
            wants = own.layout.wants(held)
            change(own.free, wants, -1)
            room.add(ends.of(state.jobs[job_of_task(key)]), own, wants)
        room.add_ready(0, own)


def _coming(
    state: State, index: SchedulingIndex, earmarks: Mapping[MachineId, JobId]
) -> list[tuple[int, int, RentedMachine]]:
    """Return when machines and nodes that were ordered are expected to be ready, and how many, in order of their orders."""
    found: list[RentedMachine] = []
    for cluster in index.capacity.values():
        if cluster.spec.pool is not None:
            unsettled = [state.machines[each] for each in state.unsettled.get(cluster.name, ())]
            found += [each for each in unsettled if each.is_coming or each.is_cluster]
    found.sort(key=lambda each: (each.wanted_at, machine_number(each.id)))
    coming = []
    for each in found:
        pool, record = state.clusters[each.cluster].pool, state.pool(each.cluster)
        if pool is None or each.id in earmarks:
            continue
        expected, count = each.wanted_at + record.boot(pool, each.offer.key), each.nodes or 1
        if not each.is_coming:
            expected, count = growth_of(state, pool, each)
        if count > 0:
            coming.append((expected, count, each))
    return coming


def growth_of(state: State, pool: Pool, machine: RentedMachine) -> tuple[int, int]:
    """Return when nodes by which a whole cluster grows are expected to be ready, and how many those are."""
    if machine.state is not MachineState.READY or not machine.spans:
        return 0, 0
    boot = state.pool(machine.cluster).node_boot(pool, machine.offer.key)
    return machine.spans[-1].since + boot, machine.nodes - len(state.nodes_of(machine.cluster_made))


def _add_present(
    room: Room,
    state: State,
    cluster: Capacity,
    now: int,
    last: int,
    earmarks: Mapping[MachineId, JobId],
    expected: _Ends,
    shapes: Sequence[Shape] | None,
    boots: LateBoots,
) -> None:
    """Add what is free on the machines of a cluster, and becomes free until a time."""
    least = 0 if shapes is None else min([shape.resources.cpu for shape in shapes], default=FOREVER)
    layout = cluster.layout.copy()
    late = boots.of(cluster.spec) if cluster.spots else 0
    for machine in cluster.machines:
        if not machine.ready or machine.total.cpu < least or MachineId(machine.name) in earmarks:
            continue
        node = state.nodes.get(f"{cluster.name}/{machine.name}")
        if node is None:
            continue
        ends = [
            (held, end)
            for key, held in node.holding.items()
            if (end := expected.of(state.jobs[job_of_task(key)])) <= last
        ]
        fits = shapes is None or (machine.free[CPU] >= least and any(machine.fits(shape) for shape in shapes))
        if node.alone and len(ends) < len(node.holding):
            ends = []  # it becomes free only when the last task ends
        if not ends and not fits:
            continue
        own = machine.copy(layout)
        if machine.index in cluster.spots:
            room.spots[own.name] = late
        if fits:
            room.add(now, own)
        if node.alone and ends:
            own.free = [0] * len(own.free)
            room.add(max([end for _, end in ends]), own, own.whole)
            continue
        for held, end in ends:
            room.add(end, own, layout.wants(held))


def is_coming(machine: RentedMachine) -> bool:
    """Return whether a machine was ordered and is not ready."""
    return machine.is_coming
