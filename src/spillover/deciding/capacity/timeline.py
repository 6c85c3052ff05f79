"""Finds spans of time: when a job first fits for as long as it runs, beside what others have booked.

A job can first start now, or when a machine gains capacity. So a search looks at gains in the order of time, and reads
the profiles of machines that gain. It does not depend on the number of machines. `gang_spans` searches for gangs.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from spillover.deciding.capacity.amounts import Wants, fits
from spillover.deciding.capacity.calendar import Calendar
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.gang_spans import GangRequest, earliest_gang
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.profile import Floors
from spillover.deciding.capacity.spans import Ask, Block, Booking, Release, Share, blocks_of
from spillover.deciding.capacity.windows import Requester
from spillover.deciding.protocols import Place
from spillover.model.job import Shape
from spillover.model.units import FOREVER

FEW: Final = 4
"""Up to this many machines, a search reads the whole profile of each."""


class Timeline(Calendar):
    """Searches what is free from now on for the first spans of jobs."""

    def __init__(
        self,
        now: int,
        releases: Iterable[Release],
        held_on: Callable[[Machine], Sequence[tuple[int, Wants]]],
        same_on: Callable[[Sequence[Machine]], bool] | None = None,
    ) -> None:
        super().__init__(now, releases, held_on, same_on)
        self._floors: dict[tuple[Candidates, Requester], Floors] = {}
        """What searches have found, by the first candidates of a job: others of its shape start no earlier."""

    def undo(self, booking: Booking) -> None:
        """Give back the capacity of a booking."""
        self._floors.clear()
        self.give_back(booking)

    def earliest(self, asks: Sequence[Ask], duration: int, place: Place, since: int) -> Booking | None:
        """Return the first span from `since` on in which all tasks of a job fit on one cluster; None if there is none.

        The job must not fit before `since`. Among clusters with the same start the first one wins, and among machines the best.
        """
        if not asks:
            return None
        floors = self._floors.get(key := (asks[0].candidates, self.requester))
        if floors is None:
            floors = self._floors[key] = Floors()
        since = max(since, floors.at(duration))
        if since >= FOREVER:
            return None
        if len(asks) == 1 and since > self.now and (only := self._only_machine(asks[0])) is not None:
            found = self._earliest_on(only, asks[0].candidates, duration, since)
        elif not asks[0].shape.is_gang:
            found = self._earliest_task([ask.candidates for ask in asks], duration, place, since)
        else:
            found = self._first_of(asks, duration, place, since)
        floors.add(duration, FOREVER if found is None else found.start)
        return found

    @staticmethod
    def _only_machine(ask: Ask) -> Machine | None:
        """Return the machine of a cluster that has one, for a job of one task; None otherwise."""
        machines = ask.candidates.cluster.machines
        return machines[0] if len(machines) == 1 and not ask.shape.is_gang else None

    def _earliest_on(
        self, machine: Machine, candidates: Candidates, duration: int, since: int
    ) -> Booking | None:
        """Return the first span on one machine. Simulated clusters often have only one, and thousands of searches."""
        if not _admits(machine, candidates.shape):
            return None
        if machine.inside is None:
            at = self.seen(machine).first(candidates.held(machine), duration, since)
        else:  # which of its parts a task gets now says nothing about later
            at = self._first_on(candidates, machine, duration, since)
        return None if at >= FOREVER else self._booked(candidates, machine, at, duration)

    def _first_of(self, asks: Sequence[Ask], duration: int, place: Place, since: int) -> Booking | None:
        """Return the first span for a gang on any cluster."""
        found: Booking | None = None
        for ask in asks:
            before = None if found is None else found.start
            other = earliest_gang(self, GangRequest(ask, duration, place), since, before)
            if other is not None and (found is None or other.start < found.start):
                found = other
        return found

    def now_on(self, ask: Ask, duration: int, place: Place, tasks: int = 0) -> Booking | None:
        """Return the span from now on in which all tasks of a gang fit on a cluster; None if they do not.

        `tasks` is the size of a gang of elastic size; 0 is its least.
        """
        return earliest_gang(self, GangRequest(ask, duration, place, tasks), self.now, self.now + 1)

    def _earliest_task(
        self, candidates: Sequence[Candidates], duration: int, place: Place, since: int
    ) -> Booking | None:
        """Return the first span for one task."""
        for each in candidates if since <= self.now else ():
            fitting = [
                machine
                for machine in each.fitting(place)
                if self._blocked_until(each, machine, self.now, self.now + duration) == self.now
            ]
            if fitting:
                best = self._best(fitting, each.shape, place, self.now)
                return self._booked(each, best, self.now, duration)
        if sum([len(each.cluster.machines) for each in candidates]) <= FEW:
            at, found = self._first_on_each(candidates, duration, max(since, self.now + 1))
        else:
            at, found = self._first_gain(candidates, duration, since)
        if not found:
            return None
        first = min([number for number, _ in found])
        each = candidates[first]
        best = self._best([machine for number, machine in found if number == first], each.shape, place, at)
        return self._booked(each, best, at, duration)

    def _booked(self, each: Candidates, machine: Machine, at: int, duration: int) -> Booking:
        """Return the booking of one task."""
        if machine.inside is None:  # as most
            block = Block((machine,), each.wants, 1, 0, each.alone)
            return Booking(at, at + duration, each.cluster, (block,))
        share = self.with_inside(Share(machine, each.wants, 1, 0, each.alone), each.shape, at, at + duration)
        return Booking(at, at + duration, each.cluster, blocks_of([share]))

    def _blocked_until(self, each: Candidates, machine: Machine, start: int, end: int) -> int:
        """Return `start` if a task fits on a machine during a whole span, and otherwise a time before which it does not."""
        profile, wants = self.seen(machine), machine.whole if each.alone else each.taken(machine)
        until = profile.blocked_until(wants, start, end)
        if (
            until > start
            or not each.inner
            or machine.holds(each.shape, each.wants, profile.least(start, end))
        ):
            return until
        return profile.next_after(start)

    def _first_on(self, each: Candidates, machine: Machine, duration: int, since: int) -> int:
        """Return the first time from `since` on at which a task fits on a machine for a duration; FOREVER if never."""
        profile, wants = self.seen(machine), machine.whole if each.alone else each.taken(machine)
        first = profile.first(wants, duration, since)
        while each.inner and first < FOREVER:
            if machine.holds(each.shape, each.wants, profile.least(first, first + duration)):
                break
            first = profile.first(wants, duration, profile.next_after(first))
        return first

    def _first_gain(
        self, candidates: Sequence[Candidates], duration: int, since: int
    ) -> tuple[int, list[tuple[int, Machine]]]:
        """Return the first gain that lets a task start, and the machines that gain then, with their candidates."""
        order = {each.cluster: number for number, each in enumerate(candidates)}
        found: list[tuple[int, Machine]] = []
        blocked: dict[Machine, int] = {}
        at = 0
        for when, _, cluster, machines in self.gains_from(since):
            if found and when > at:
                break
            number = order.get(cluster)
            if number is None:
                continue
            each = candidates[number]
            for machine in machines:
                if blocked.get(machine, 0) > when:
                    continue
                free_from = self._blocked_until(each, machine, when, when + duration)
                if free_from > when:
                    blocked[machine] = free_from
                elif _admits(machine, each.shape):
                    at = when
                    found.append((number, machine))
        return at, found

    def _first_on_each(
        self, candidates: Sequence[Candidates], duration: int, since: int
    ) -> tuple[int, list[tuple[int, Machine]]]:
        """Do the same for few machines with long profiles, which a search reads faster than gains."""
        found: list[tuple[int, Machine]] = []
        at = FOREVER
        for number, each in enumerate(candidates):
            for machine in each.cluster.machines:
                if not _admits(machine, each.shape):
                    continue
                first = self._first_on(each, machine, duration, since)
                if first < at:
                    at, found = first, [(number, machine)]
                elif first == at < FOREVER:
                    found.append((number, machine))
        return at, found

    def _best(self, machines: Sequence[Machine], shape: Shape, place: Place, at: int) -> Machine:
        return machines[0] if len(machines) == 1 else self._ranked(machines, shape, place, at)[0]

    def _ranked(self, machines: Iterable[Machine], shape: Shape, place: Place, at: int) -> list[Machine]:
        """Return machines as the place policy ranks them at a time."""
        return [machine for _, machine in self.scored(machines, shape, place, at)]


def _admits(machine: Machine, shape: Shape) -> bool:
    """Return whether tasks of this shape may run on a machine, and if they get all of it, whether it is large enough."""
    if not machine.ready or not machine.admits(shape):
        return False
    topology = shape.topology
    if topology is None or not topology.exclusive:
        return True
    vacant = machine.vacant
    return fits(machine.layout.wants(shape.resources), [*vacant, *[0] * (machine.layout.size - len(vacant))])
