"""What is free on machines from now on, and the times at which that changes.

Each machine has a profile: what is free there from each time on. It is built when it is first needed. Machines gain
capacity when jobs and bookings end, and lose it when bookings start. `timeline` searches all this for spans of time.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from spillover.deciding.capacity.amounts import Wants
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import ExpectedMachine, HeldCapacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.matching import Fitting
from spillover.deciding.capacity.profile import Profile, Profiles
from spillover.deciding.capacity.spans import Booking, Release, Share
from spillover.deciding.capacity.windows import NO_ACCESS, Requester, closed_to
from spillover.deciding.protocols import Place
from spillover.model.job import Shape

Change: TypeAlias = tuple[int, int, Capacity, tuple[Machine, ...]]
"""When machines gain or lose capacity, and a unique number, so that a sort never compares machines."""


class Calendar:
    """What is free on machines from now on. It never changes the machines themselves."""

    def __init__(
        self,
        now: int,
        releases: Iterable[Release],
        held_on: Callable[[Machine], Sequence[tuple[int, Wants]]],
        same_on: Callable[[Sequence[Machine]], bool] | None = None,
    ) -> None:
        self.now = now
        self._releases = iter(releases)
        """Capacity that running jobs release, soonest first; read as far as searches go."""
        self._known: list[Change] = []
        """The part of `_releases` that was read."""
        self._gains: list[Change] = []
        """Ends of bookings, and of jobs that started."""
        self._losses: list[Change] = []
        """Starts of bookings."""
        self._noted: list[tuple[list[Change], int, Capacity, tuple[Machine, ...]]] = []
        """Gains and losses that are not sorted in yet. Searches on clusters of one machine never read them."""
        self._serial = 0
        self.profiles = Profiles(now, held_on, same_on)
        self.requester: Requester = NO_ACCESS
        """For whom searches look at machines with windows."""
        self._open: dict[Machine, dict[Requester, Profile]] = {}
        """Profiles of machines with windows, without the spans in which they are closed to a job."""
        self._shown = ExpectedMachine()

    # --- taking

    def reserve(self, clusters: Iterable[Capacity]) -> None:
        """Note when windows begin and end, before the first search."""
        for cluster in clusters:
            for name in () if cluster.windows is None else cluster.windows.of:
                machine = cluster.by_name.get(name)
                if machine is None:
                    continue
                for window in machine.windows:
                    self._note(self._losses, window.start, cluster, (machine,))
                    # At its start it opens for jobs that name the reservation, and at its end for all.
                    self._note(self._gains, window.start, cluster, (machine,))
                    self._note(self._gains, window.end, cluster, (machine,))

    def begin(self, held: HeldCapacity, until: int) -> None:
        """Count a job that has just started; its machine already has less free."""
        cluster, machine, wants = held
        if not self.profiles.begin(machine, until, wants):
            self._change((machine,), (self.now, until), wants, -1)
        self._note(self._gains, until, cluster, (machine,))

    def take(self, booking: Booking) -> None:
        """Take the capacity of a booking."""
        start, end, cluster, blocks = booking
        for block in blocks:
            self._change(block.machines, (start, end), block.held, -1)
        machines = _machines(booking)
        self._note(self._losses, start, cluster, machines)
        self._note(self._gains, end, cluster, machines)

    def give_back(self, booking: Booking) -> None:
        """Give back the capacity of a booking."""
        start, end, _, blocks = booking
        for block in blocks:
            self._change(block.machines, (start, end), block.held, 1)
        self._sort()
        machines = _machines(booking)
        _forget(self._losses, start, machines)
        _forget(self._gains, end, machines)

    def try_out(self, machine: Machine, span: tuple[int, int], wants: Wants, sign: int) -> None:
        """Take capacity during a span on trial, or give it back."""
        self._change((machine,), span, wants, sign)

    def _change(self, machines: Sequence[Machine], span: tuple[int, int], wants: Wants, sign: int) -> None:
        """Add a request to what is free on each of some machines, or take it with a negative sign."""
        self.profiles.change(machines, *span, wants, sign)
        if self._open:
            for machine in machines:
                self._open.pop(machine, None)

    def _note(self, changes: list[Change], at: int, cluster: Capacity, machines: tuple[Machine, ...]) -> None:
        self._noted.append((changes, at, cluster, machines))

    def _sort(self) -> None:
        """Sort in what was noted since."""
        for changes, at, cluster, machines in self._noted:
            self._serial += 1
            insort(changes, (at, self._serial, cluster, machines))
        self._noted.clear()

    # --- when something changes

    def gains_from(self, since: int) -> Iterator[Change]:
        """Yield gains from a time on, soonest first. No gain may be added meanwhile, except by a trial."""
        if self._noted:
            self._sort()
        own = self._gains
        mine = bisect_left(own, (since,))
        known = bisect_left(self._known, (since,))
        while True:
            if known == len(self._known) and not self._read():
                yield from own[mine:]
                return
            change = self._known[known]
            if mine < len(own) and own[mine][0] < change[0]:
                mine += 1
                yield own[mine - 1]
            else:
                known += 1
                if change[0] >= since:
                    yield change

    def _read(self) -> bool:
        """Read the next release; return whether there was one."""
        release = next(self._releases, None)
        if release is None:
            return False
        self._known.append((release.at, 0, release.held.cluster, release.held.machines))
        return True

    def losses_between(self, start: int, end: int) -> list[Change]:
        """Return what machines lose from a time on and before another one."""
        if self._noted:
            self._sort()
        return self._losses[bisect_left(self._losses, (start,)) : bisect_left(self._losses, (end,))]

    # --- what is free

    def fits(self, machine: Machine, wants: Wants, start: int, end: int) -> bool:
        """Return whether a task fits on a machine during a whole span."""
        return self.seen(machine).blocked_until(wants, start, end) == start

    def count(self, machine: Machine, shape: Shape, wants: Wants, start: int, end: int) -> int:
        """Return how many tasks of a gang fit on a machine during a whole span."""
        if not wants:
            return 0
        profile = self.seen(machine)
        if shape.topology is None:
            return profile.count(wants, start, end)
        return machine.tasks_of(shape, wants, profile.least(start, end))

    def all_inside(self, shares: Iterable[Share], shape: Shape, start: int, end: int) -> list[Share]:
        """Return the shares of a gang with what its tasks take inside of machines, each on what those before it leave."""
        parts, found = shape.parts, list[Share]()
        for share in shares:
            found.append(self.with_inside(share, parts[share.number].shape, start, end))
            if len(parts) > 1:  # otherwise no two shares are on one machine
                self.try_out(share.machine, (start, end), found[-1].held, -1)
        for share in found if len(parts) > 1 else ():
            self.try_out(share.machine, (start, end), share.held, 1)
        return found

    def with_inside(self, share: Share, shape: Shape, start: int, end: int) -> Share:
        """Return a share with what its tasks take inside of the machine during a span."""
        machine, wants = share.machine, share.wants
        if machine.inside is None or share.whole:
            return share
        own = machine.asks(shape, wants)
        held = machine.share(shape, wants, share.tasks, self.profiles.of(machine).least(start, end))
        return share._replace(wants=own, inside=held[len(own) :])

    def seen(self, machine: Machine) -> Profile:
        """Return the profile of a machine as the requester sees it."""
        profile = self.profiles.of(machine)
        if not machine.windows:
            return profile
        known = self._open.setdefault(machine, {})
        seen = known.get(self.requester)
        if seen is None:
            seen = known[self.requester] = profile.without(closed_to(machine.windows, self.requester))
        return seen

    def free_at(self, machine: Machine, at: int) -> Sequence[int]:
        """Return what is free on a machine at a time, apart from windows."""
        return self.profiles.of(machine).at(at)

    def score(self, profile: Profile, machine: Machine, shape: Shape, place: Place, at: int) -> int:
        """Return the score of a machine at a time."""
        self._shown.look_at(machine, profile.at(at))
        return place.score(self._shown, shape)

    def scored(
        self, machines: Iterable[Machine], shape: Shape, place: Place, at: int
    ) -> list[tuple[int, Machine]]:
        """Return machines with their scores at a time, best first."""
        scored: list[tuple[int, int, Machine]] = []
        by_free = getattr(place, "by_free", False)
        built, of = self.profiles.known, self.profiles.of
        known: dict[Profile, int] = {}  # saves a score for each machine after the first that shares a profile
        for machine in dict.fromkeys(machines):
            profile = built.get(machine) or of(machine)
            score = known.get(profile) if by_free else None
            if score is None:
                score = known[profile] = self.score(profile, machine, shape, place, at)
            scored.append((score, machine.index, machine))
        return [(score, machine) for score, _, machine in sorted(scored)]


class SpanRoom:
    """What is free on machines during a whole span."""

    def __init__(self, calendar: Calendar, at: int, duration: int, place: Place) -> None:
        self._calendar = calendar
        self._span = at, at + duration
        self._place = place
        self._taken: list[tuple[Machine, Wants]] = []

    def count(self, machine: Machine, shape: Shape, wants: Wants) -> int:
        """Return how many tasks fit on a machine that admits them."""
        return self._calendar.count(machine, shape, wants, *self._span)

    def rank(self, fitting: Fitting, shape: Shape) -> list[tuple[int, int, int]]:
        """Return score, index and number of tasks of each machine, best first."""
        scored = self._calendar.scored(fitting, shape, self._place, self._span[0])
        return [(score, machine.index, fitting[machine]) for score, machine in scored]

    def take(self, machine: Machine, shape: Shape, wants: Wants, tasks: int) -> None:
        """Take capacity for some tasks on trial, with what they need inside of the machine."""
        least = self._calendar.profiles.of(machine).least(*self._span)
        held = machine.share(shape, wants, tasks, least)
        self._taken.append((machine, held))
        self._calendar.try_out(machine, self._span, held, -1)

    def undo(self) -> None:
        """Give back all that was taken on trial."""
        for machine, wants in self._taken:
            self._calendar.try_out(machine, self._span, wants, 1)
        self._taken.clear()


def _machines(booking: Booking) -> tuple[Machine, ...]:
    """Return the machines of a booking, each once."""
    blocks = booking.blocks
    if len(blocks) == 1:
        return blocks[0].machines
    return tuple(dict.fromkeys(chain.from_iterable([block.machines for block in blocks])))


def _forget(changes: list[Change], at: int, machines: tuple[Machine, ...]) -> None:
    """Drop the last change of these machines at a time."""
    position = bisect_left(changes, (at + 1,)) - 1
    while changes[position][3] != machines:
        position -= 1
    del changes[position]
