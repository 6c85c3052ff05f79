"""Tracks what is free on the machines of one cluster."""

from collections.abc import Iterable, Iterator
from operator import gt
from typing import TYPE_CHECKING

from spillover.core.holding import ahead_of, slots_of
from spillover.core.records.nodes import Node
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.amounts import (
    ANY,
    CLOSED,
    CPU,
    GPU,
    MEMORY,
    NAMED,
    TASKS,
    Layout,
    Vector,
    Wants,
    change,
)
from spillover.deciding.capacity.inside import Left, structure_of
from spillover.deciding.capacity.levels import Levels, shift
from spillover.deciding.capacity.limits import ClusterLimits
from spillover.deciding.capacity.machine import NOTHING_INSIDE, UNKNOWN, Before, Machine, nothing
from spillover.deciding.capacity.states import States
from spillover.deciding.capacity.windows import Windows
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.inside import Granted
from spillover.model.job import Shape
from spillover.model.pools import MARKET_LABEL, SPOT
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

if TYPE_CHECKING:
    from spillover.deciding.capacity.counts import CountsKey, TaskCounts

MOST_CHANGES = 256
"""Changes that a cluster remembers, in addition to some for each machine."""
MOST_GONE = 64
"""Dropped machines that are tolerated before all others get new indexes."""


class Capacity:
    """The machines of one cluster, and what is free on them."""

    def __init__(self, spec: ClusterSpec, horizon: int, *, memory_inside: bool = True) -> None:
        self.spec = spec
        self._memory_inside = memory_inside
        """Whether the memory of NUMA nodes counts, which earlier rules did not see."""
        self.horizon = horizon
        """How much work a machine prefetches, in nanoseconds."""
        self.name: ClusterName = spec.name
        self.limits = ClusterLimits.of(spec)
        """Limits on what our jobs use there; None if there are none."""
        self.owned = spec.role is Role.OWNED
        self.open = True
        """Whether jobs may be placed there; an external cluster must be reachable."""
        self.layout = Layout(counts_tasks=spec.external)
        self.machines: list[Machine] = []
        """In the order of joining."""
        self.slots: list[Machine] = []
        """Machines by index. Dropped machines stay with nothing free, until they are too many."""
        self.by_name: dict[NodeName, Machine] = {}
        self._plain: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The values of `Machine.plain`, so that comparing machines that are alike compares no amounts."""
        self._kinds: dict[tuple[object, ...], int] = {}
        """The values of `Machine.kind`, by what machines of a kind have in common."""
        self.states = States(self)
        """Its machines by what is free on them, for shapes that are new to it."""
        self.sum: Vector = [0] * NAMED
        """What is free on all machines together. A job that asks for more does not fit."""
        self.levels = Levels(spec.levels, self.layout) if spec.levels else None
        """Its zones, racks and the like; None for a flat cluster."""
        self.windows: Windows | None = None
        """The spans in which advance reservations have some of its machines; None if there are none."""
        self.earmarks: dict[NodeName, JobId] = {}
        """The gangs that machines are kept for, because they were ordered for them; nearly always none."""
        self._earmarked: tuple[int, frozenset[int]] | None = None
        """The indexes of those machines, as of `turns`; None until somebody asks."""
        self.spots: dict[int, None] = {}
        """Indexes of spot machines, by their label."""
        self.changes: list[int] = []
        """Indexes of machines whose free capacity changed, oldest first."""
        self.forgotten = 0
        """How many changes were dropped from the front of `changes`."""
        self.counts: dict[CountsKey, TaskCounts] = {}
        """By shape, or what shapes have in common, where its tasks fit; for looks ahead. See `counts_in`."""
        self._most = MOST_CHANGES
        """Length at which `changes` is cut."""
        self.eager: dict[int, None] = {}
        """Machines that prefetch leases."""
        self.turns = 0
        """Rises whenever the set of prefetching machines changes, or one of them changes."""

    def copy(self) -> "Capacity":
        """Return an independent copy. Candidates built on it start by reading all machines, or all states."""
        own = Capacity(self.spec, self.horizon, memory_inside=self._memory_inside)
        own.limits = None if self.limits is None else self.limits.copy()
        own.open = self.open
        own.layout = self.layout.copy()
        own.slots = [machine.copy(own.layout) for machine in self.slots]
        own.machines = [own.slots[machine.index] for machine in self.machines]
        own.by_name = {name: own.slots[machine.index] for name, machine in self.by_name.items()}
        if self.windows is not None:
            own.windows = self.windows.copy(own.by_name)
        own.earmarks = self.earmarks  # never changed
        own.spots = self.spots.copy()
        own.sum = self.sum.copy()
        own.levels = Levels(self.spec.levels, own.layout) if self.spec.levels else None
        if own.levels is not None:
            for machine in own.machines:
                own.levels.put(machine)
        own._most = self._most
        own.eager, own.turns = self.eager.copy(), self.turns
        own._kinds = self._kinds.copy()
        own.states = self.states.copy(own)
        return own

    # --- following the state

    def refresh(self, node: Node) -> bool:
        """Read a node again; return whether more is free there than before."""
        if len(self.changes) > self._most:
            self._forget()
        machine = self.by_name.get(node.name)
        if machine is None:
            machine = self._join(node)
        more = False
        # The fast path: properties are compared by identity, because most refreshes follow a change of usage alone.
        if (
            not machine.ready
            or node.status != "ready"
            or machine.total is not node.capacity
            or machine.labels is not node.labels
            or machine.taints is not node.taints
            or not self.open
            or node.drained
        ):
            if machine.number != node.number:  # it replaces a dropped node of the same name
                self.drop([node.name])
                machine = self._join(node)
            more = self._observe(machine, node)
        left = machine.left
        if machine.inside is not None:
            left = machine.inside.left(_granted_on(node))
        others = machine.foreign
        free, ahead = self._free(machine, node, left), 0
        if node.queue and machine.ready and not node.alone:
            machine.limit, machine.pace, machine.turn = ahead_of(node, self.horizon), node.pace, node.turn
            machine.slots = slots_of(node)
            ahead = max(0, machine.limit - len(node.ahead))
        same = free == machine.free and ahead == machine.ahead and left == machine.left
        if same and (others is machine.foreign or others == machine.foreign):
            return more
        was = machine.free
        more = (
            more
            or ahead > machine.ahead
            or free[CPU] > was[CPU]
            or free[MEMORY] > was[MEMORY]
            or free[GPU] > was[GPU]
            or free[TASKS] > was[TASKS]
            or (len(free) > NAMED and any(map(gt, free[NAMED:], was[NAMED:])))
        )
        self.set(machine, (free, ahead, left))
        if ahead:
            self.eager[machine.index] = None
        elif self.eager:
            self.eager.pop(machine.index, None)
        return more

    def reserve(self, reservations: Iterable[AdvanceReservation]) -> None:
        """Set the advance reservations of the cluster; those of other clusters are left out."""
        own = [each for each in reservations if each.cluster == self.name]
        if not own and self.windows is None:
            return
        self.windows = Windows(own, self.by_name) if own else None
        self.counts.clear()  # a job may name a reservation, outside of which it does not run
        windows = {} if self.windows is None else self.windows.of
        for machine in self.machines:
            machine.windows = windows.get(machine.name, ())
        if self.levels is not None:
            self.levels.count_again()
        self.turns += 1
        self._look_again()

    def earmark(self, earmarks: dict[NodeName, JobId]) -> None:
        """Set which machines are kept for which gangs."""
        if earmarks != self.earmarks:
            self.earmarks, self._earmarked = earmarks, None

    def earmarked(self, job: JobId) -> frozenset[int]:
        """Return the indexes of machines that are kept for others than a job."""
        if self._earmarked is None or self._earmarked[0] != self.turns:
            self._earmarked = self.turns, frozenset(self._kept([*self.earmarks]))
        kept = self._earmarked[1]
        own = [name for name, gang in self.earmarks.items() if gang == job]
        return kept.difference(self._kept(own)) if own else kept

    def _kept(self, names: Iterable[NodeName]) -> list[int]:
        return [self.by_name[name].index for name in names if name in self.by_name]

    def _free(self, machine: Machine, node: Node, left: Left) -> Vector:
        """Compute what is free on a node according to the state."""
        capacity, used, foreign = node.capacity, node.used, node.foreign
        cpu, memory, gpu = capacity.cpu - used.cpu, capacity.memory - used.memory, capacity.gpu - used.gpu
        tasks = ANY
        if foreign is not None:
            machine.observe_others(foreign, node.tasks)
            cpu, memory, gpu = cpu - foreign.cpu, memory - foreign.memory, gpu - foreign.gpu
            if (places := node.places) is not None:
                tasks = places
        if node.ahead or not machine.ready or memory < 0 or gpu < 0:
            cpu = min(cpu, CLOSED)
        if node.alone:
            return _closed(self.layout, machine.idle[TASKS])  # nothing more starts there, until it is empty
        free = [cpu, memory, gpu, tasks]
        if self.layout.size > NAMED:
            named = capacity - used if foreign is None else capacity - used - foreign
            free += self.layout.named(named)
        if machine.inside is not None:
            # A task that got GPUs from its agent, because the server was older, may have any of them.
            if node.used.gpu > sum([len(each.gpus) for each in node.granted.values()]) and left[1]:
                left = (left[0], 0, left[2])
                free[GPU] = 0
            for position, amount in zip(self.layout.localities, machine.inside.amounts(left), strict=False):
                free[position] = amount
        return free

    def _join(self, node: Node) -> Machine:
        """Add a machine for a new node, behind all others."""
        machine = Machine(node.name, node.number, len(self.slots), self.spec, self.layout)
        self.machines.append(machine)
        self.slots.append(machine)
        self._most += 4
        self.by_name[node.name] = machine
        if self.windows is not None:
            machine.windows = self.windows.of.get(node.name, ())
            self.windows.forget()
        return machine

    def _observe(self, machine: Machine, node: Node) -> bool:
        """Read the properties of a node other than its usage; return whether it gained any."""
        before, was = machine.total, machine.ready
        if self.levels is not None:
            self.levels.drop(machine)
        machine.ready = node.status == "ready" and self.open and not node.drained
        machine.total = node.capacity
        machine.inside = (
            None if node.inside is None else structure_of(node.inside, memory=self._memory_inside)
        )
        machine.left = NOTHING_INSIDE
        localities = 0 if machine.inside is None else machine.inside.size
        wider = bool(node.capacity.other) and self.layout.add(node.capacity)
        if self.layout.add_localities(localities) or wider:
            self._widen()
        if machine.inside is not None and machine.inside.memories:
            machine.memories = self.layout.localities[localities - machine.inside.memories : localities]
        elif machine.memories:
            machine.memories = ()
        changed = machine.learn(node)
        if node.labels.get(MARKET_LABEL) == SPOT:
            self.spots[machine.index] = None
        elif self.spots:
            self.spots.pop(machine.index, None)
        limit = node.tasks if node.foreign is not None and node.tasks >= 0 else ANY
        machine.idle = [node.capacity.cpu, node.capacity.memory, node.capacity.gpu, limit]
        machine.idle += self.layout.named(node.capacity)
        if machine.inside is not None:
            whole = machine.inside.amounts(machine.inside.full)
            for position, amount in zip(self.layout.localities, whole, strict=False):
                machine.idle[position] = amount
        plain = machine.ready and not machine.repels and machine.inside is None
        idle = tuple(machine.idle)
        machine.plain = self._plain.setdefault(idle, idle) if plain else None
        alike = machine.total, machine.inside, machine.ready, machine.repels, idle
        machine.kind = self._kinds.setdefault(alike, UNKNOWN + 1 + len(self._kinds))
        if self.levels is not None:
            self.levels.put(machine)
        self.changes.append(machine.index)
        self.turns += 1
        return not node.capacity.fits(before) or changed or (machine.ready and not was)

    def _widen(self) -> None:
        """Add positions for new named resources. Shapes that ask for them may fit now, so all candidates start over."""
        for machine in self.slots:
            machine.free += [0] * (self.layout.size - len(machine.free))
        self.sum += [0] * (self.layout.size - len(self.sum))
        if self.levels is not None:
            self.levels.widen()
        self._look_again()

    def drop(self, names: Iterable[NodeName]) -> None:
        """Remove machines; candidates see that nothing fits there any more."""
        for name in names:
            if (machine := self.by_name.pop(name, None)) is not None:
                self.set(machine, (nothing(self.layout), 0, NOTHING_INSIDE))
                machine.ready, machine.plain, machine.kind = False, None, UNKNOWN
                if self.levels is not None:
                    self.levels.drop(machine)
                self.eager.pop(machine.index, None)
                self.spots.pop(machine.index, None)
        self.machines = list(self.by_name.values())
        self.turns += 1
        if self.windows is not None:
            self.windows.forget()
        if len(self.slots) > 2 * len(self.machines) + MOST_GONE:
            self._renumber()

    def _renumber(self) -> None:
        """Give machines new indexes without gaps."""
        spots = [machine for machine in self.machines if machine.index in self.spots]
        self.slots = list(self.machines)
        for index, machine in enumerate(self.slots):
            machine.index = index
        self.spots = {machine.index: None for machine in spots}
        self.eager = {machine.index: None for machine in self.machines if machine.ahead > 0}
        self._most = MOST_CHANGES + 4 * len(self.machines)
        if self.windows is not None:
            self.windows.forget()
        self.turns += 1
        self._look_again()

    def _look_again(self) -> None:
        """Make all candidates read all machines."""
        self.forgotten += len(self.changes) + 1
        self.changes.clear()

    def _forget(self) -> None:
        """Drop the older half of the changes; candidates that have not read them read all machines."""
        half = len(self.changes) // 2
        del self.changes[:half]
        self.forgotten += half

    # --- what fits, and taking it

    def may_hold(self, total: Resources) -> bool:
        """Return whether the cluster as a whole has enough free for all tasks of a job."""
        free = self.sum
        return total.gpu <= free[GPU] and total.cpu <= free[CPU] and total.memory <= free[MEMORY]

    def fits(self, shape: Shape) -> bool:
        """Return whether all tasks of a job can start there now."""
        if shape.tasks == 1:
            return any(machine.fits(shape) for machine in self.machines)
        return matching.fits(self, shape)

    def take(self, machine: Machine, wants: Wants, tasks: int = 1) -> None:
        """Take the resources of some tasks from a machine that has them free."""
        free, together = machine.free, self.sum
        for position, amount in wants:
            free[position] -= amount * tasks
            together[position] -= amount * tasks
        if machine.vertices:
            for vertex in machine.vertices:
                if vertex is not None:
                    change(vertex.free, wants, -tasks)
                    vertex.changes += 1
        self.changes.append(machine.index)

    def grant(self, machine: Machine, shape: Shape, asked: Resources) -> Granted | None:
        """Choose the cores and GPUs of a task that was just placed, and take them; None if it gets none by name."""
        inside = machine.inside
        if inside is None or not machine.grants(shape):
            return None
        chosen = inside.choose(shape.topology, asked, machine.left)
        if chosen is None or not any(chosen):
            return None
        machine.left = inside.after(machine.left, chosen, asked.memory)
        if shape.topology is None or not shape.topology.exclusive:  # else the machine is closed as a whole
            self.take(machine, tuple(inside.taken(chosen, asked.memory, self.layout.localities)))
        return inside.granted(chosen)

    def take_whole(self, machine: Machine) -> None:
        """Take a whole machine, on which nothing runs, and close it to all others."""
        self.set(machine, (_closed(self.layout, machine.free[TASKS]), 0, machine.left))

    def take_ahead(self, machine: Machine) -> None:
        """Give a machine a prefetched lease, and close it to other tasks: prefetched leases come first."""
        free = machine.free.copy()
        free[CPU] = min(free[CPU], CLOSED)
        self.set(machine, (free, machine.ahead - 1, machine.left))

    def set(self, machine: Machine, now: Before) -> None:
        """Set what is free on a machine, and notify candidates."""
        free, ahead, machine.left = now
        was, together = machine.free, self.sum
        # Negative amounts (closed or overcommitted machines) count as 0 in the sum. Most calls have none.
        if (
            free[CPU] < 0
            or was[CPU] < 0
            or free[MEMORY] < 0
            or was[MEMORY] < 0
            or free[GPU] < 0
            or was[GPU] < 0
        ):
            for position, amount in enumerate(free):
                together[position] += max(amount, 0) - max(was[position], 0)
        else:
            together[CPU] += free[CPU] - was[CPU]
            together[MEMORY] += free[MEMORY] - was[MEMORY]
            together[GPU] += free[GPU] - was[GPU]
            for position in range(TASKS, len(free)) if len(free) > NAMED else (TASKS,):
                together[position] += free[position] - was[position]
        if machine.vertices:
            for vertex in machine.vertices:
                if vertex is not None:
                    shift(vertex.free, was, -1)
                    shift(vertex.free, free, 1)
                    vertex.changes += 1
        if (ahead > 0) is not (machine.ahead > 0):
            self.turns += 1
        machine.free, machine.ahead = free, ahead
        self.changes.append(machine.index)


def _granted_on(node: Node) -> Iterator[tuple[Granted, int]]:
    """Yield what each task on a node was granted, with its memory."""
    for task, granted in node.granted.items():
        held = node.holding.get(task)
        yield granted, 0 if held is None else held.memory


def _closed(layout: Layout, tasks: int) -> Vector:
    """Return the vector of a machine that one job has for itself; releasing what it held makes the machine empty."""
    free = nothing(layout)
    free[TASKS] = tasks
    return free


class Ceiling:
    """The most that any machine of some clusters has free during a cycle. A job that asks for more need not be tried.

    Free capacity only shrinks while a cycle places jobs, so an old measure never rules out a job that fits.
    """

    __slots__ = ("_ahead", "_clusters", "_failed", "_least", "_size", "_stale", "cpu", "gpu", "memory")

    def __init__(self, clusters: Iterable[Capacity], ahead: Iterable[Capacity], least: int) -> None:
        self._clusters = tuple(clusters)
        self._ahead = tuple(ahead)
        """Clusters that may take a prefetched lease."""
        self._size = sum([len(each.machines) for each in self._clusters])
        self._least = least
        """The least CPU that any job asks for, in thousandths."""
        self._failed = 0
        self._stale = True
        self.cpu = self.memory = self.gpu = FOREVER

    @classmethod
    def over(cls, clusters: Iterable[Capacity], role: Role, least: int) -> "Ceiling":
        """Return the ceiling over the clusters of a role. Jobs to rent may also be prefetched on owned capacity.

        `least` is the least CPU that any job asks for, in thousandths.
        """
        clusters = tuple(clusters)
        return cls(
            [each for each in clusters if each.spec.role is role],
            [each for each in clusters if each.spec.role is role or role is Role.RENTED],
            least,
        )

    def rules_out(self, shape: Shape) -> bool:
        """Return whether a task of this shape surely fits nowhere."""
        asked = shape.resources
        if asked.cpu <= 0:  # memory and GPUs are measured only on machines with free CPU
            return asked.cpu > self.cpu
        return asked.cpu > self.cpu or asked.memory > self.memory or asked.gpu > self.gpu

    def took(self) -> None:
        """Note that capacity was taken."""
        self._stale = True

    def failed(self) -> bool:
        """Count a failed try; return whether no machine has enough CPU left for any job."""
        self._failed += 1
        if self._stale and 8 * self._failed >= self._size:  # a try costs as much as measuring eight machines
            self._measure()
        return self.cpu < self._least

    def _measure(self) -> None:
        self._failed = 0
        self._stale = False
        if any(each.slots[index].ahead > 0 for each in self._ahead for index in each.eager):
            return
        machines = [machine for each in self._clusters for machine in each.machines]
        some = [free for machine in machines if (free := machine.free)[CPU] > 0]  # few in a full cluster
        if not some:
            self.cpu = 0 if any(machine.free[CPU] == 0 for machine in machines) else CLOSED
            return
        self.cpu = max([free[CPU] for free in some])
        self.memory = max([free[MEMORY] for free in some])
        self.gpu = max([free[GPU] for free in some])
