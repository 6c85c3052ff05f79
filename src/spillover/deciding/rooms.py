"""The room of each cluster, as far as placing looks at it."""

from collections.abc import Iterable

from spillover.core.book import ahead_of, slots_of
from spillover.core.nodes import Node
from spillover.deciding.limits import Limits
from spillover.deciding.machines import ANY, Free, Machine
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Shape
from spillover.model.resources import Resources, covers, summed
from spillover.model.units import FOREVER

MOST_CHANGES = 256
"""Changes that a room remembers, and some more for each machine."""
MOST_GONE = 64
"""Machines that were dropped and are not worth new indexes for all others."""


class Room:
    """One cluster."""

    def __init__(self, spec: ClusterSpec, horizon: int) -> None:
        self.spec = spec
        self.horizon = horizon
        """Nanoseconds of work that a machine is given ahead of room."""
        self.name: ClusterName = spec.name
        self.limits = Limits.of(spec)
        """Of what our jobs use there; None if there are none."""
        self.owned = spec.role is Role.OWNED
        self.open = True
        """Whether anything may be placed there: a cluster that others run has to answer."""
        self.machines: list[Machine] = []
        """In the order of joining."""
        self.slots: list[Machine] = []
        """By their indexes; machines that were dropped stay there with nothing free, until they are most of them."""
        self.by_name: dict[NodeName, Machine] = {}
        self.cpu = self.memory = self.gpu = 0
        """Free on all machines together; nothing that asks for more fits."""
        self.changes: list[int] = []
        """Indexes of machines whose room changed, oldest first."""
        self.forgotten = 0
        """How many changes were dropped from the front."""
        self._most = MOST_CHANGES
        """Changes that are remembered."""
        self.eager: dict[int, None] = {}
        """Machines that take leases ahead of room."""
        self.turns = 0
        """Rises whenever another set of machines takes leases ahead of room, or one of them is not what it was."""

    def refresh(self, node: Node) -> bool:
        """Look at a node anew; True if it has more room than before."""
        if len(self.changes) > self._most:
            self._forget()
        machine = self.by_name.get(node.name)
        if machine is None:
            machine = self._join(node)
        more = False
        if (
            not machine.ready
            or node.status != "ready"
            or machine.total is not node.capacity
            or machine.labels is not node.labels
            or machine.taints is not node.taints
            or not self.open
        ):
            if machine.number != node.number:  # the one that had its name is gone
                self.drop([node.name])
                machine = self._join(node)
            more = self._observe(machine, node)
        capacity, used = node.capacity, node.used
        cpu, memory, gpu = capacity.cpu - used.cpu, capacity.memory - used.memory, capacity.gpu - used.gpu
        places, other = ANY, capacity.other
        if other and used.other:
            other = summed(other, used.other, -1)
        if (foreign := node.foreign) is not None:
            cpu, memory, gpu = cpu - foreign.cpu, memory - foreign.memory, gpu - foreign.gpu
            if foreign.other:
                other = summed(other, foreign.other, -1)
            if (left := node.places) is not None:
                places = left
        if node.ahead or not machine.ready or places <= 0:
            cpu = min(cpu, -1)
        ahead = 0
        if node.queue and machine.ready:
            machine.limit, machine.pace, machine.turn = ahead_of(node, self.horizon), node.pace, node.turn
            machine.slots = slots_of(node)
            ahead = max(0, machine.limit - len(node.ahead))
        if (
            cpu > machine.cpu
            or memory > machine.memory
            or gpu > machine.gpu
            or ahead > machine.ahead
            or places > machine.places
            or (other != machine.other and not covers(machine.other, other))
        ):
            more = True
        elif (
            cpu == machine.cpu
            and gpu == machine.gpu
            and memory == machine.memory
            and ahead == machine.ahead
            and places == machine.places
            and other == machine.other
        ):
            return more
        self.set(machine, (cpu, memory, gpu, ahead, places, other))
        if ahead:
            self.eager[machine.index] = None
        elif self.eager:
            self.eager.pop(machine.index, None)
        return more

    def _join(self, node: Node) -> Machine:
        """A machine for a node that there was none for: the last of all."""
        machine = Machine(node.name, node.number, len(self.slots), self.spec)
        self.machines.append(machine)
        self.slots.append(machine)
        self._most += 4
        self.by_name[node.name] = machine
        return machine

    def drop(self, names: Iterable[NodeName]) -> None:
        """Forget machines; lanes see that nothing fits there any more."""
        for name in names:
            if (machine := self.by_name.pop(name, None)) is not None:
                self.set(machine, (-1, 0, 0, 0, 0, ()))
                machine.ready = False
                self.eager.pop(machine.index, None)
        self.machines = list(self.by_name.values())
        self.turns += 1
        if len(self.slots) > 2 * len(self.machines) + MOST_GONE:
            self._close_ranks()

    def _close_ranks(self) -> None:
        """Give machines new indexes, without gaps; all lanes look at all of them."""
        self.slots = list(self.machines)
        for index, machine in enumerate(self.slots):
            machine.index = index
        self.eager = {machine.index: None for machine in self.machines if machine.ahead > 0}
        self._most = MOST_CHANGES + 4 * len(self.machines)
        self.forgotten += len(self.changes) + 1
        self.changes.clear()
        self.turns += 1

    def _observe(self, machine: Machine, node: Node) -> bool:
        """Take in what a node is, apart from what is used of it; True if that is more than before."""
        before, offered, was = machine.total, machine.offers, machine.ready
        machine.ready = node.status == "ready" and self.open
        machine.offers = frozenset(node.offers)
        machine.total = node.capacity
        changed = machine.learn(node.labels, node.taints)
        self.changes.append(machine.index)
        self.turns += 1
        more = not node.capacity.fits(before) or not offered.issuperset(machine.offers)
        return more or changed or (machine.ready and not was)

    def may_hold(self, total: Resources) -> bool:
        """Whether as much is free on all machines together as all tasks of a job ask for."""
        return total.gpu <= self.gpu and total.cpu <= self.cpu and total.memory <= self.memory

    def take(self, machine: Machine, asked: Resources, tasks: int = 1) -> None:
        """Use room for some tasks together, of a machine where there is enough."""
        cpu, memory, gpu = asked.cpu, asked.memory, asked.gpu
        machine.cpu -= cpu
        machine.memory -= memory
        machine.gpu -= gpu
        self.cpu -= cpu
        self.memory -= memory
        self.gpu -= gpu
        if asked.other:
            machine.other = summed(machine.other, asked.other, -1)
        self.changes.append(machine.index)
        if machine.places < ANY:
            machine.places -= tasks
            if machine.places <= 0:
                self.cpu -= machine.cpu
                machine.cpu = -1

    def take_ahead(self, machine: Machine) -> None:
        """Hand out a lease ahead of room, and let nothing more fit: those ahead of room come first."""
        _, memory, gpu, ahead, places, other = machine.free
        self.set(machine, (min(machine.cpu, -1), memory, gpu, ahead - 1, places, other))

    def set(self, machine: Machine, free: Free) -> None:
        """Let a machine have this much free, and lanes look at it again."""
        cpu, memory, gpu, ahead, places, other = free
        if cpu < 0 or machine.cpu < 0 or min(memory, machine.memory, gpu, machine.gpu) < 0:
            self.cpu += max(cpu, 0) - max(machine.cpu, 0)
            self.memory += max(memory, 0) - max(machine.memory, 0)
            self.gpu += max(gpu, 0) - max(machine.gpu, 0)
        else:
            self.cpu += cpu - machine.cpu
            self.memory += memory - machine.memory
            self.gpu += gpu - machine.gpu
        if (ahead > 0) is not (machine.ahead > 0):
            self.turns += 1
        machine.cpu, machine.memory, machine.gpu, machine.ahead = cpu, memory, gpu, ahead
        machine.places, machine.other = places, other
        self.changes.append(machine.index)

    def _forget(self) -> None:
        """Drop the older changes: who has not read them looks at all machines."""
        half = len(self.changes) // 2
        del self.changes[:half]
        self.forgotten += half


class Ceiling:
    """The most that any machine of some rooms has free, within a cycle: what asks for more need not be tried.

    Room only shrinks while a cycle places, so a measure that is old still rules out nothing that fits.
    """

    __slots__ = ("_ahead", "_failed", "_rooms", "_size", "_stale", "cpu", "gpu", "memory")

    def __init__(self, rooms: Iterable[Room], ahead: Iterable[Room]) -> None:
        self._rooms = tuple(rooms)
        self._ahead = tuple(ahead)
        """Rooms that may be given a lease ahead of room."""
        self._size = sum([len(room.machines) for room in self._rooms])
        self._failed = 0
        self._stale = True
        self.cpu = self.memory = self.gpu = FOREVER

    @classmethod
    def over(cls, rooms: Iterable[Room], role: Role) -> "Ceiling":
        """Of the rooms of a role; what is to be rented may also be leased ahead of owned room."""
        rooms = tuple(rooms)
        return cls(
            [room for room in rooms if room.spec.role is role],
            [room for room in rooms if room.spec.role is role or role is Role.RENTED],
        )

    def rules_out(self, shape: Shape) -> bool:
        """Whether a task of this shape surely finds no place."""
        asked = shape.resources
        return asked.cpu > self.cpu or asked.memory > self.memory or asked.gpu > self.gpu

    def took(self) -> None:
        """Room was taken."""
        self._stale = True

    def failed(self) -> int:
        """A task found no place; returns the most CPU that any machine is known to have left."""
        self._failed += 1
        if self._stale and 8 * self._failed >= self._size:  # measuring eight machines costs a try in vain
            self._measure()
        return self.cpu

    def _measure(self) -> None:
        self._failed = 0
        self._stale = False
        if any(room.slots[index].ahead > 0 for room in self._ahead for index in room.eager):
            return
        machines = [machine for room in self._rooms for machine in room.machines if machine.cpu >= 0]
        self.cpu = max([machine.cpu for machine in machines], default=-1)
        self.memory = max([machine.memory for machine in machines], default=-1)
        self.gpu = max([machine.gpu for machine in machines], default=-1)
