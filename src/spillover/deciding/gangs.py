"""Room for all tasks of a job, or for none: on one cluster, whole machines first and what is left over last."""

from collections.abc import Collection
from typing import NamedTuple

from spillover.deciding.machines import Free, Machine
from spillover.deciding.protocols import Place
from spillover.deciding.rooms import Room
from spillover.deciding.seats import Seat
from spillover.model.job import Shape
from spillover.model.resources import Resources


class GangSeat:
    """What one lane of gangs knows of one room."""

    __slots__ = ("_last", "_others", "room", "shape", "total")

    def __init__(self, room: Room, shape: Shape) -> None:
        self.room = room
        self.shape = shape
        self.total = shape.total
        self._others = Seat(room, shape)
        self._last = None if shape.rest is None else Seat(room, shape.least)

    def take(self, place: Place, barred: Collection[int] = ()) -> "list[Part]":
        """Take room for every task on machines that are not barred; empty, with nothing taken, if there is not enough."""
        room = self.room
        if not room.may_hold(self.total):
            return []
        parts: list[Part] = []
        passed: list[tuple[int, int]] = []
        left = self.shape.tasks - (0 if self._last is None else 1)
        while left:
            machine = self._others.best(place, barred, passed)
            if machine is None:
                break
            count = min(left, _times(self.shape.resources, machine))
            together = self.shape.resources.times(count)
            parts.append(Part(machine, machine.free, count, together))
            room.take(machine, together, count)
            left -= count
        self._others.put_back(passed)
        if not left and self._last is not None:
            machine = self._last.best(place, barred)
            if machine is None:
                left = 1
            else:
                parts.append(Part(machine, machine.free, 1, self._last.asked))
                room.take(machine, self._last.asked)
        if left:
            for part in reversed(parts):
                room.set(part.machine, part.before)
            return []
        return parts


class Part(NamedTuple):
    """Some tasks of a gang on one machine."""

    machine: Machine
    before: Free
    """What was free there before."""
    tasks: int
    resources: Resources
    """What they take together."""


def _times(asked: Resources, machine: Machine) -> int:
    """How many tasks fit on a machine where one does."""
    counts = [
        free // one
        for free, one in ((machine.cpu, asked.cpu), (machine.memory, asked.memory), (machine.gpu, asked.gpu))
        if one
    ]
    if asked.other:
        have = dict(machine.other)
        counts += [have.get(name, 0) // one for name, one in asked.other]
    return max(1, min(*counts, machine.places) if counts else 1)
