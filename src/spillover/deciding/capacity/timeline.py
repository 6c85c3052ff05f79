"""Free capacity over spans of time: when a job first fits for as long as it runs, and what reservations leave of it.

Each machine has a profile: what is free there from each time on. A job can first start now, or when a machine gains
capacity. So a search looks at gains in the order of time, and reads the profiles of machines that gain. It builds a
profile when it first needs it. Neither depends on the number of machines.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from spillover.deciding.capacity import matching
from spillover.deciding.capacity.amounts import Wants, times
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import ExpectedMachine, HeldCapacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.matching import Fitting
from spillover.deciding.capacity.profile import Floors, Profile, Profiles
from spillover.deciding.capacity.spans import Ask, Booking, Release, Share
from spillover.deciding.capacity.windows import NOBODY, Visitor, closed_to
from spillover.deciding.protocols import Place
from spillover.model.job import Shape
from spillover.model.units import FOREVER

FEW: Final = 4
"""Up to this many machines, a search reads the whole profile of each."""


Change: TypeAlias = tuple[int, int, Capacity, tuple[Machine, ...]]
"""When machines gain or lose capacity, and a unique number, so that a sort never compares machines."""


class Timeline:
    """What is free on machines from now on. It never changes the machines themselves."""

    def __init__(
        self,
        now: int,
        releases: Iterable[Release],
        held_on: Callable[[Machine], Sequence[tuple[int, Wants]]],
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
        self._serial = 0
        self._profiles = Profiles(now, held_on)
        self._floors: dict[tuple[Candidates, Visitor], Floors] = {}
        """What searches have found, by the first candidates of a job: others of its shape start no earlier."""
        self.visitor: Visitor = NOBODY
        """For whom searches look at machines with windows."""
        self._open: dict[Machine, dict[Visitor, Profile]] = {}
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
        if not self._profiles.begin(machine, until, wants):
            self._change(machine, self.now, until, wants, -1)
        self._note(self._gains, until, cluster, (machine,))

    def take(self, booking: Booking) -> None:
        """Take the capacity of a booking."""
        start, end, cluster, shares = booking
        machines = _machines(shares)
        self._change_all(booking, machines, -1)
        self._note(self._losses, start, cluster, machines)
        self._note(self._gains, end, cluster, machines)

    def undo(self, booking: Booking) -> None:
        """Give back the capacity of a booking."""
        self._floors.clear()
        self._give_back(booking)

    def _give_back(self, booking: Booking) -> None:
        start, end, _, shares = booking
        machines = _machines(shares)
        self._change_all(booking, machines, 1)
        _forget(self._losses, start, machines)
        _forget(self._gains, end, machines)

    def _change_all(self, booking: Booking, machines: Sequence[Machine], sign: int) -> None:
        """Add what a booking holds to what is free, or take it with a negative sign."""
        start, end, _, shares = booking
        built, of = self._profiles.known, self._profiles.of
        # One change for all machines that share a profile and get the same tasks; see `Profiles`.
        groups: dict[tuple[Profile, Wants, int, Wants], list[Machine]] = {}
        if len(machines) == len(shares) > 1:
            for machine, wants, tasks, _, whole, inside in shares:
                if whole or machine.windows:
                    break
                profile = built.get(machine) or of(machine)
                groups.setdefault((profile, wants, tasks, inside), []).append(machine)
            else:
                for (_, wants, tasks, inside), alike in groups.items():
                    self._profiles.change(alike, start, end, (*times(wants, tasks), *inside), sign)
                return
        for share in shares:
            self._change(share.machine, start, end, share.held, sign)

    def _change(self, machine: Machine, start: int, end: int, wants: Wants, tasks: int) -> None:
        self._profiles.change((machine,), start, end, wants, tasks)
        if machine.windows:
            self._open.pop(machine, None)

    def _note(self, changes: list[Change], at: int, cluster: Capacity, machines: tuple[Machine, ...]) -> None:
        self._serial += 1
        insort(changes, (at, self._serial, cluster, machines))

    # --- what fits

    def fits(self, machine: Machine, wants: Wants, start: int, end: int) -> bool:
        """Return whether a task fits on a machine during a whole span."""
        return self._seen(machine).blocked_until(wants, start, end) == start

    def count(self, machine: Machine, shape: Shape, wants: Wants, start: int, end: int) -> int:
        """Return how many tasks of a gang fit on a machine during a whole span."""
        if not wants:
            return 0
        profile = self._seen(machine)
        if shape.topology is None:
            return profile.count(wants, start, end)
        return machine.tasks_of(shape, wants, profile.least(start, end))

    def earliest(self, asks: Sequence[Ask], duration: int, place: Place, since: int) -> Booking | None:
        """Return the first span from `since` on in which all tasks of a job fit on one cluster; None if there is none.

        The job must not fit before `since`. Among clusters with the same start the first one wins, and among machines the best.
        """
        if not asks:
            return None
        floors = self._floors.get(key := (asks[0].candidates, self.visitor))
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
        at = self._seen(machine).first(candidates.held(machine), duration, since)
        return None if at >= FOREVER else self._booked(candidates, machine, at, duration)

    def _first_of(self, asks: Sequence[Ask], duration: int, place: Place, since: int) -> Booking | None:
        """Return the first span for a gang on any cluster."""
        found: Booking | None = None
        for ask in asks:
            other = self._earliest_gang(ask, duration, place, since, None if found is None else found.start)
            if other is not None and (found is None or other.start < found.start):
                found = other
        return found

    def now_on(self, ask: Ask, duration: int, place: Place, tasks: int = 0) -> Booking | None:
        """Return the span from now on in which all tasks of a gang fit on a cluster; None if they do not.

        `tasks` is the size of a gang of elastic size; 0 is its least.
        """
        return self._earliest_gang(ask, duration, place, self.now, self.now + 1, tasks)

    def _earliest_task(
        self, candidates: Sequence[Candidates], duration: int, place: Place, since: int
    ) -> Booking | None:
        """Return the first span for one task."""
        for each in candidates if since <= self.now else ():
            fitting = [
                machine
                for machine in _fitting(each, place)
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
        share = Share(machine, each.wants, 1, 0, each.alone)
        return Booking(at, at + duration, each.cluster, (self._inside(share, each.shape, at, at + duration),))

    def _inside(self, share: Share, shape: Shape, start: int, end: int) -> Share:
        """Return a share with what its tasks take inside of the machine during a span."""
        machine, wants = share.machine, share.wants
        if machine.inside is None or share.whole:
            return share
        own = machine.asks(shape, wants)
        held = machine.share(shape, wants, share.tasks, self._profiles.of(machine).least(start, end))
        return share._replace(wants=own, inside=held[len(own) :])

    def _blocked_until(self, each: Candidates, machine: Machine, start: int, end: int) -> int:
        """Return `start` if a task fits on a machine during a whole span, and otherwise a time before which it does not."""
        profile, wants = self._seen(machine), machine.whole if each.alone else each.taken(machine)
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
        profile, wants = self._seen(machine), machine.whole if each.alone else each.taken(machine)
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
        for when, _, cluster, machines in self._gains_from(since):
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

    def _earliest_gang(
        self, ask: Ask, duration: int, place: Place, since: int, before: int | None, tasks: int = 0
    ) -> Booking | None:
        """Return the first span for all tasks of a gang on one cluster that starts before a time."""
        each = ask.candidates
        shape, cluster, needed = each.shape, each.cluster, tasks or each.shape.tasks
        # Machines that admit the gang and had room at any time so far, with the number of tasks that fit.
        counts: dict[Machine, int] = {}
        total, at, edge = 0, since, since + duration
        gained = since <= self.now
        changed = dict.fromkeys(
            [machine for part in (each, *ask.others) for machine in _fitting(part, place)]
        )
        losses, anywhere = self._losses, each.plain and shape.where is None and not shape.runs
        for gain in self._gains_from(self.now + 1):
            when = gain[0]
            if when > at:
                # All gains up to `at` are known now, so this is the time to try it.
                total = self._recount(counts, changed, each, at, total, duration)
                if (
                    gained
                    and total >= needed
                    and (found := self._fill(ask, counts, at, duration, place, tasks))
                ):
                    return found
                if before is not None and when >= before:
                    return None
                changed = {}
                for _, _, _, machines in losses[
                    bisect_left(losses, (edge,)) : bisect_left(losses, (when + duration,))
                ]:
                    for machine in machines:
                        if counts.get(machine):
                            changed[machine] = None
                at, edge = when, when + duration
            if before is not None and when >= before:
                return None
            gained = gained or when >= since
            if gain[2] is cluster:
                for machine in gain[3]:
                    # As `_admits`, without a call for every machine.
                    if machine in counts or (
                        machine.ready and ((anywhere and not machine.repels) or machine.admits(shape))
                    ):
                        changed[machine] = None
        total = self._recount(counts, changed, each, at, total, duration)
        return self._fill(ask, counts, at, duration, place, tasks) if gained and total >= needed else None

    def _recount(
        self,
        counts: dict[Machine, int],
        changed: Iterable[Machine],
        each: Candidates,
        at: int,
        total: int,
        duration: int,
    ) -> int:
        """Count again what fits on changed machines; return how many tasks fit on all."""
        wants, end = each.wants, at + duration
        built, of = self._profiles.known, self._profiles.of
        plain = bool(wants) and each.shape.topology is None
        known: dict[Profile, int] = {}  # saves a count for each machine after the first that shares a profile
        for machine in changed:
            if plain and not machine.windows:
                profile = built.get(machine) or of(machine)
                fitting = known.get(profile, -1)
                if fitting < 0:
                    fitting = known[profile] = profile.count(wants, at, end)
            else:
                fitting = self.count(machine, each.shape, wants, at, end)
            total += fitting - counts.get(machine, 0)
            counts[machine] = fitting
        return total

    def _fill(
        self, ask: Ask, counts: dict[Machine, int], at: int, duration: int, place: Place, tasks: int
    ) -> Booking | None:
        """Book the machines for all tasks, best first; None if they do not fit."""
        cluster, shape, alone = ask.candidates.cluster, ask.shape, ask.candidates.alone
        chosen = matching.choose(counts, shape, cluster, SpanRoom(self, at, duration, place), tasks)
        if chosen is None:
            return None
        shares = [Share(machine, wants, tasks, part, alone) for part, machine, wants, tasks in chosen]
        end = at + duration
        if any(share.machine.inside is not None for share in shares):
            parts = shape.parts
            shares = [self._inside(share, parts[share.number].shape, at, end) for share in shares]
        return Booking(at, end, cluster, tuple(shares))

    def try_out(self, machine: Machine, span: tuple[int, int], wants: Wants, sign: int) -> None:
        """Take capacity during a span on trial, or give it back."""
        self._change(machine, *span, wants, sign)

    # --- reading

    def _gains_from(self, since: int) -> Iterator[Change]:
        """Yield gains from a time on, soonest first. No gain may be added meanwhile, except by a trial."""
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

    def _seen(self, machine: Machine) -> Profile:
        """Return the profile of a machine as the visitor sees it."""
        profile = self._profiles.of(machine)
        if not machine.windows:
            return profile
        known = self._open.setdefault(machine, {})
        seen = known.get(self.visitor)
        if seen is None:
            seen = known[self.visitor] = profile.without(closed_to(machine.windows, self.visitor))
        return seen

    def free_at(self, machine: Machine, at: int) -> Sequence[int]:
        """Return what is free on a machine at a time, apart from windows."""
        return self._profiles.of(machine).at(at)

    def _best(self, machines: Sequence[Machine], shape: Shape, place: Place, at: int) -> Machine:
        return machines[0] if len(machines) == 1 else self._ranked(machines, shape, place, at)[0]

    def _ranked(self, machines: Iterable[Machine], shape: Shape, place: Place, at: int) -> list[Machine]:
        """Return machines as the place policy ranks them at a time."""
        return [machine for _, machine in self.scored(machines, shape, place, at)]

    def scored(
        self, machines: Iterable[Machine], shape: Shape, place: Place, at: int
    ) -> list[tuple[int, Machine]]:
        """Return machines with their scores at a time, best first."""
        scored: list[tuple[int, int, Machine]] = []
        by_free = getattr(place, "by_free", False)
        built, of = self._profiles.known, self._profiles.of
        known: dict[Profile, int] = {}  # saves a score for each machine after the first that shares a profile
        for machine in dict.fromkeys(machines):
            profile = built.get(machine) or of(machine)
            score = known.get(profile) if by_free else None
            if score is None:
                self._shown.look_at(machine, profile.at(at))
                score = known[profile] = place.score(self._shown, shape)
            scored.append((score, machine.index, machine))
        return [(score, machine) for score, _, machine in sorted(scored)]


class SpanRoom:
    """What is free on machines during a whole span."""

    def __init__(self, timeline: Timeline, at: int, duration: int, place: Place) -> None:
        self._timeline = timeline
        self._span = at, at + duration
        self._place = place
        self._taken: list[tuple[Machine, Wants]] = []

    def count(self, machine: Machine, shape: Shape, wants: Wants) -> int:
        """Return how many tasks fit on a machine that admits them."""
        return self._timeline.count(machine, shape, wants, *self._span)

    def rank(self, fitting: Fitting, shape: Shape) -> list[tuple[int, int, int]]:
        """Return score, index and number of tasks of each machine, best first."""
        scored = self._timeline.scored(fitting, shape, self._place, self._span[0])
        return [(score, machine.index, fitting[machine]) for score, machine in scored]

    def take(self, machine: Machine, wants: Wants) -> None:
        """Take capacity on trial."""
        self._taken.append((machine, wants))
        self._timeline.try_out(machine, self._span, wants, -1)

    def undo(self) -> None:
        """Give back all that was taken on trial."""
        for machine, wants in self._taken:
            self._timeline.try_out(machine, self._span, wants, 1)
        self._taken.clear()


def held_by(booking: Booking) -> tuple[HeldCapacity, ...]:
    """Return what a booking holds on each machine."""
    return tuple([HeldCapacity(booking.cluster, share.machine, share.held) for share in booking.shares])


def _fitting(candidates: Candidates, place: Place) -> list[Machine]:
    """Return the machines where a task fits now, by index."""
    candidates.best(place)  # reads what has changed
    slots = candidates.cluster.slots
    return [slots[index] for index in sorted(candidates.scores)]


def _admits(machine: Machine, shape: Shape) -> bool:
    return machine.ready and machine.admits(shape)


def _machines(shares: Sequence[Share]) -> tuple[Machine, ...]:
    """Return the machines of a booking, each once."""
    return (
        (shares[0].machine,) if len(shares) == 1 else tuple(dict.fromkeys([each.machine for each in shares]))
    )


def _forget(changes: list[Change], at: int, machines: tuple[Machine, ...]) -> None:
    """Drop the last change of these machines at a time."""
    position = bisect_left(changes, (at + 1,)) - 1
    while changes[position][3] != machines:
        position -= 1
    del changes[position]
