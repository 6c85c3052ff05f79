"""What one lane knows of one room: a heap of machines where its shape fits, kept up to date by reading only what changed since it looked last.

So a lane that does not fit costs next to nothing, however many machines there are.
"""

import heapq
from collections.abc import Collection, Iterable
from typing import cast

from spillover.deciding.machines import Machine
from spillover.deciding.protocols import Place, Route
from spillover.deciding.rooms import Room
from spillover.model.job import Shape


class Seat:
    """What one lane knows of one room: where one task of its jobs fits."""

    __slots__ = ("asked", "heap", "plain", "queues", "read", "room", "scores", "shape", "turns")

    def __init__(self, room: Room, shape: Shape) -> None:
        self.room = room
        self.shape = shape
        self.asked = shape.resources
        self.plain = not shape.needs and shape.rules is None and not shape.resources.other
        """Whether it asks for nothing but CPU, memory and GPUs; the room is one that it asks for."""
        self.scores: dict[int, int] = {}
        """Of the machines with room, by their index."""
        self.heap: list[tuple[int, int]] = []
        """(score, index) of machines with room; an entry whose score is not the current one is void."""
        self.read = -1
        """How many changes of the room it has seen; -1 is none at all."""
        self.queues: tuple[Machine, ...] = ()
        """Machines that take a lease of this shape ahead of room, by their index, as of `turns` of the room."""
        self.turns = -1

    def best(
        self, place: Place, barred: Collection[int] = (), passed: list[tuple[int, int]] | None = None
    ) -> Machine | None:
        """The machine to take, if any has room and is not barred.

        Barred ones that would come first are put back, or left in `passed` for who asks again and puts them back in the end.
        """
        room, heap, scores = self.room, self.heap, self.scores
        if self.read != room.forgotten + len(room.changes):
            self._read(place)
        aside: list[tuple[int, int]] = [] if passed is None else passed
        found: Machine | None = None
        while heap:
            score, index = heap[0]
            if scores.get(index) == score:
                if index not in barred:
                    found = room.slots[index]
                    break
                aside.append((score, index))
            heapq.heappop(heap)
        if passed is None and aside:
            self.put_back(aside)
        return found

    def _read(self, place: Place) -> None:
        """Look at machines whose room changed."""
        room, shape, asked, heap, scores = self.room, self.shape, self.asked, self.heap, self.scores
        machines, score_of = room.slots, place.score
        end = room.forgotten + len(room.changes)
        if self.read < room.forgotten or end - self.read > len(machines):
            heap.clear()
            scores.clear()
            look: Iterable[int] = range(len(machines))
        else:
            look = dict.fromkeys(room.changes[self.read - room.forgotten :])
        self.read = end
        cpu, memory, gpu, plain = asked.cpu, asked.memory, asked.gpu, self.plain
        for index in look:
            machine = machines[index]
            if (
                cpu <= machine.cpu
                and gpu <= machine.gpu
                and memory <= machine.memory
                and ((plain and not machine.repels) or machine.fits(shape))
            ):
                score = score_of(machine.cpu, machine.memory, machine.gpu, shape, machine.total)
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
        """The machine that takes one more lease ahead of room, if there is any."""
        room = self.room
        if self.turns != room.turns:
            eager = [room.slots[index] for index in sorted(room.eager)]
            self.queues = tuple([each for each in eager if each.ahead > 0 and each.could_fit(self.shape)])
            self.turns = room.turns
        if not self.queues:
            return None
        return cast("Machine", route.pick(self.queues, len(room.machines), seed))
