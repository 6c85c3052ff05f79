"""The room of each cluster, as far as placing looks at it.

A `Seat` is what one lane knows of one room: a heap of machines where its shape fits, kept up to date by reading only what
changed since it looked last. So a lane that does not fit costs next to nothing, however many machines there are.
"""

import heapq
from collections.abc import Iterable

from spillover.core.book import ahead_of
from spillover.core.state import Node
from spillover.deciding.protocols import Place
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Shape
from spillover.model.units import FOREVER


class Machine:
    """One node: what is free on it, trial placements of the cycle included."""

    __slots__ = ("ahead", "cpu", "gpu", "index", "memory", "name", "offers", "ready", "total")

    def __init__(self, name: NodeName, index: int) -> None:
        self.name = name
        self.index = index
        self.cpu = self.memory = self.gpu = 0
        self.ahead = 0
        """How many more leases it takes ahead of room."""
        self.offers: frozenset[str] = frozenset()
        self.ready = False
        self.total = (0, 0, 0)

    def fits(self, shape: Shape) -> bool:
        """Whether a task of this shape can start there now."""
        asked = shape.resources
        return (
            self.ready
            and asked.cpu <= self.cpu
            and asked.memory <= self.memory
            and asked.gpu <= self.gpu
            and (not shape.needs or self.offers.issuperset(shape.needs))
        )

    def could_fit(self, shape: Shape) -> bool:
        """Whether a task of this shape could start there if nothing else ran."""
        asked = shape.resources
        cpu, memory, gpu = self.total
        return (
            asked.cpu <= cpu
            and asked.memory <= memory
            and asked.gpu <= gpu
            and self.offers.issuperset(shape.needs)
        )

    def take(self, shape: Shape) -> None:
        """Use room."""
        asked = shape.resources
        self.cpu -= asked.cpu
        self.memory -= asked.memory
        self.gpu -= asked.gpu

    def close(self) -> None:
        """Let nothing more fit: those ahead of room come first."""
        self.cpu = min(self.cpu, -1)

    @property
    def free(self) -> tuple[int, int, int, int]:
        """All that trial placements change."""
        return self.cpu, self.memory, self.gpu, self.ahead

    def restore(self, free: tuple[int, int, int, int]) -> None:
        """Take a trial placement back."""
        self.cpu, self.memory, self.gpu, self.ahead = free


class Room:
    """One cluster."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.name: ClusterName = spec.name
        self.machines: list[Machine] = []
        self.by_name: dict[NodeName, Machine] = {}
        self.changes: list[int] = []
        """Indexes of machines whose room changed, oldest first."""
        self.forgotten = 0
        """How many changes were dropped from the front."""
        self.eager: dict[int, None] = {}
        """Machines that take leases ahead of room."""

    def refresh(self, node: Node) -> bool:
        """Look at a node anew; True if it has more room than before."""
        machine = self.by_name.get(node.name)
        if machine is None:
            machine = Machine(node.name, len(self.machines))
            self.machines.append(machine)
            self.by_name[node.name] = machine
        before = (machine.ready, machine.cpu, machine.memory, machine.gpu, machine.ahead, *machine.total)
        offered = machine.offers
        machine.ready = node.status == "ready"
        machine.offers = frozenset(node.offers)
        free = node.capacity - node.used
        machine.cpu, machine.memory, machine.gpu = free.cpu, free.memory, free.gpu
        if node.ahead:
            machine.close()
        machine.total = (node.capacity.cpu, node.capacity.memory, node.capacity.gpu)
        machine.ahead = max(0, ahead_of(node) - len(node.ahead)) if machine.ready else 0
        if machine.ahead:
            self.eager[machine.index] = None
        else:
            self.eager.pop(machine.index, None)
        self.changed(machine)
        now = (machine.ready, machine.cpu, machine.memory, machine.gpu, machine.ahead, *machine.total)
        return any(new > old for new, old in zip(now, before, strict=True)) or not offered.issuperset(
            machine.offers
        )

    def changed(self, machine: Machine) -> None:
        """Let lanes know that a machine is to be looked at again."""
        self.changes.append(machine.index)
        if len(self.changes) > 4 * len(self.machines) + 256:
            half = len(self.changes) // 2
            del self.changes[:half]
            self.forgotten += half


class Seat:
    """What one lane knows of one room."""

    __slots__ = ("heap", "read", "room", "shape")

    def __init__(self, room: Room, shape: Shape) -> None:
        self.room = room
        self.shape = shape
        self.heap: list[tuple[int, int]] = []
        """(score, index) of machines with room; an entry whose score is not the current one is void."""
        self.read = -1
        """How many changes of the room it has seen; -1 is none at all."""

    def best(self, place: Place) -> Machine | None:
        """The machine to take, if any has room."""
        room, shape, heap = self.room, self.shape, self.heap
        machines = room.machines
        end = room.forgotten + len(room.changes)
        if self.read < room.forgotten or end - self.read > len(machines):
            heap.clear()
            for machine in machines:
                if machine.fits(shape):
                    heap.append((place.score(machine.cpu, machine.memory, machine.gpu, shape), machine.index))
            heapq.heapify(heap)
        elif self.read < end:
            for index in dict.fromkeys(room.changes[self.read - room.forgotten :]):
                machine = machines[index]
                if machine.fits(shape):
                    score = place.score(machine.cpu, machine.memory, machine.gpu, shape)
                    heapq.heappush(heap, (score, index))
        self.read = end
        while heap:
            score, index = heap[0]
            machine = machines[index]
            if machine.fits(shape) and score == place.score(machine.cpu, machine.memory, machine.gpu, shape):
                return machine
            heapq.heappop(heap)
        return None

    def ahead(self) -> Machine | None:
        """The machine that takes one more lease ahead of room, the most eager first."""
        best: Machine | None = None
        for index in self.room.eager:
            machine = self.room.machines[index]
            if (
                machine.ahead > 0
                and machine.could_fit(self.shape)
                and (best is None or (-machine.ahead, machine.index) < (-best.ahead, best.index))
            ):
                best = machine
        return best


class Ceiling:
    """The most that any machine of some rooms has free, within a cycle: what asks for more need not be tried.

    Room only shrinks while a cycle places, so a measure that is old still rules out nothing that fits.
    """

    __slots__ = ("_ahead", "_failed", "_rooms", "_size", "_stale", "cpu", "gpu", "memory")

    def __init__(self, rooms: Iterable[Room], ahead: Iterable[Room]) -> None:
        self._rooms = tuple(rooms)
        self._ahead = tuple(ahead)
        """Rooms that may be given a lease ahead of room."""
        self._size = sum(len(room.machines) for room in self._rooms)
        self._failed = 0
        self._stale = True
        self.cpu = self.memory = self.gpu = FOREVER

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
        if (
            self._stale and 32 * self._failed >= self._size
        ):  # measuring a machine costs a thirtieth of a try in vain
            self._measure()
        return self.cpu

    def _measure(self) -> None:
        self._failed = 0
        self._stale = False
        if any(room.machines[index].ahead > 0 for room in self._ahead for index in room.eager):
            return
        self.cpu = self.memory = self.gpu = 0
        for room in self._rooms:
            for machine in room.machines:
                if machine.ready:
                    self.cpu = max(self.cpu, machine.cpu)
                    self.memory = max(self.memory, machine.memory)
                    self.gpu = max(self.gpu, machine.gpu)
