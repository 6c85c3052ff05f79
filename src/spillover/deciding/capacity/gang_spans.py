"""Finds the first span of time in which all tasks of a gang fit on one cluster.

The search goes over gains in the order of time, and counts how many tasks fit on the machines that have gained so far.
Most gangs may run anywhere. For those it counts profiles, which many machines share, and looks at single machines only
when it books them. Machines of other gangs differ by more than what is free, so it counts each of them.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from spillover.deciding.capacity import matching
from spillover.deciding.capacity.calendar import Calendar, SpanRoom
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.matching import Fitting
from spillover.deciding.capacity.profile import Profile
from spillover.deciding.capacity.spans import Ask, Block, Booking, Share, blocks_of
from spillover.deciding.protocols import Place

_INDEX = attrgetter("index")


class GangRequest(NamedTuple):
    """A gang for which to find a span."""

    ask: Ask
    duration: int
    """Nanoseconds."""
    place: Place
    size: int = 0
    """The size of a gang of elastic size; 0 is its least."""

    @property
    def tasks(self) -> int:
        """How many tasks of its first part must fit."""
        return self.size or self.ask.candidates.shape.tasks


class Tally(Protocol):
    """How many tasks of a gang fit on the machines that had room at any time so far."""

    def gain(self, machines: tuple[Machine, ...]) -> None:
        """Count these machines again at the next call of `recount`, because they gain capacity."""
        ...

    def lose(self, machines: tuple[Machine, ...]) -> None:
        """Count those of these machines again that had room, because they lose capacity before the end of the span."""
        ...

    def recount(self, at: int) -> int:
        """Return how many tasks fit from a time on."""
        ...

    def booking(self, at: int) -> Booking | None:
        """Return the booking of all tasks from this time on, on the best machines; None if they do not fit."""
        ...


def earliest_gang(
    calendar: Calendar, request: GangRequest, since: int, before: int | None = None
) -> Booking | None:
    """Return the first span for a gang that starts from `since` on, and before a time; None if there is none."""
    tally: Tally = (
        TallyOfProfiles(calendar, request) if runs_anywhere(request) else TallyOfMachines(calendar, request)
    )
    cluster, duration = request.ask.candidates.cluster, request.duration
    at, edge, gained = since, since + duration, since <= calendar.now
    for when, _, where, machines in calendar.gains_from(calendar.now + 1):
        if when > at:
            # All gains up to `at` are known now, so this is the time to try it.
            enough = tally.recount(at) >= request.tasks
            if enough and gained and (found := tally.booking(at)) is not None:
                return found
            if before is not None and when >= before:
                return None
            for _, _, losing, lost in calendar.losses_between(edge, when + duration):
                if losing is cluster:
                    tally.lose(lost)
            at, edge = when, when + duration
        if before is not None and when >= before:
            return None
        gained = gained or when >= since
        if where is cluster:
            tally.gain(machines)
    enough = tally.recount(at) >= request.tasks
    return tally.booking(at) if enough and gained else None


def runs_anywhere(request: GangRequest) -> bool:
    """Return whether only amounts decide where tasks of a gang may run, so that machines with one profile are alike."""
    each = request.ask.candidates
    shape, cluster = each.shape, each.cluster
    return (
        each.plain
        and request.ask.whole is None
        and shape.where is None
        and not shape.runs
        and bool(each.wants)
        and cluster.windows is None
        and not (shape.resources.gpu and cluster.layout.localities)
    )


class TallyOfMachines:
    """Counts on each machine. This is right for every gang."""

    def __init__(self, calendar: Calendar, request: GangRequest) -> None:
        self._calendar = calendar
        self._request = request
        self._each = request.ask.candidates
        self._counts: dict[Machine, int] = {}
        """Machines that admit the gang and had room at any time so far, with the number of tasks that fit."""
        self._total = 0
        parts = (self._each, *request.ask.others)
        self._changed = dict.fromkeys([machine for part in parts for machine in part.fitting(request.place)])
        """Machines to count again."""

    def gain(self, machines: tuple[Machine, ...]) -> None:
        """See Tally."""
        shape = self._request.ask.shape
        for machine in machines:
            if machine in self._counts or (machine.ready and machine.admits(shape)):
                self._changed[machine] = None

    def lose(self, machines: tuple[Machine, ...]) -> None:
        """See Tally."""
        for machine in machines:
            if self._counts.get(machine):
                self._changed[machine] = None

    def recount(self, at: int) -> int:
        """See Tally."""
        each, end = self._each, at + self._request.duration
        for machine in self._changed:
            fitting = self._calendar.count(machine, each.shape, each.wants, at, end)
            self._total += fitting - self._counts.get(machine, 0)
            self._counts[machine] = fitting
        self._changed = {}
        return self._total

    def booking(self, at: int) -> Booking | None:
        """See Tally."""
        return _booking(self._calendar, self._request, self._counts, at)


class TallyOfProfiles:
    """Counts on each profile, for gangs that may run anywhere. Machines that share one have the same gains and losses.

    A gang has dozens of machines and few profiles, so this saves most of the time of a search. It finds the same spans
    and machines as a count of each.
    """

    def __init__(self, calendar: Calendar, request: GangRequest) -> None:
        self._calendar = calendar
        self._request = request
        self._wants = request.ask.candidates.wants
        self._counts: dict[Profile, tuple[int, int]] = {}
        """Profiles of machines that had room at any time so far: how many tasks fit on a machine, and on all of them."""
        self._total = 0
        self._changed = calendar.profiles.of_all(request.ask.candidates.fitting(request.place))
        """Profiles to count again."""

    def gain(self, machines: tuple[Machine, ...]) -> None:
        """See Tally."""
        profiles = self._calendar.profiles
        if len(machines) == 1:
            self._changed[profiles.of(machines[0])] = None
        else:
            self._changed.update(profiles.of_all(machines))

    def lose(self, machines: tuple[Machine, ...]) -> None:
        """See Tally."""
        for profile in self._calendar.profiles.of_all(machines):
            if profile in self._counts:
                self._changed[profile] = None

    def recount(self, at: int) -> int:
        """See Tally."""
        counts, wants, end = self._counts, self._wants, at + self._request.duration
        for profile in self._changed:
            each = profile.count(wants, at, end) if profile.takes_any else 0
            fitting = each * len(profile.machines)
            if profile in counts:
                self._total -= counts[profile][1]
            self._total += fitting
            counts[profile] = each, fitting
        self._changed = {}
        return self._total

    def booking(self, at: int) -> Booking | None:
        """See Tally."""
        ask, duration, place, _ = self._request
        if not getattr(place, "by_free", False):
            counts = {each: many for profile, (many, _) in self._counts.items() for each in profile.machines}
            return _booking(self._calendar, self._request, counts, at)
        shape, score = ask.shape.parts[0].shape, self._calendar.score
        levels: dict[int, list[tuple[Profile, int]]] = {}  # by score, each with the tasks on a machine
        for profile, (many, _) in self._counts.items():
            if many:
                scored = score(profile, profile.machines[0], shape, place, at)
                levels.setdefault(scored, []).append((profile, many))
        left, blocks = self._request.tasks, list[Block]()
        for level in sorted(levels):
            left = self._fill(levels[level], left, blocks)
            if not left:
                return Booking(at, at + duration, ask.candidates.cluster, tuple(blocks))
        return None

    def _fill(self, profiles: Sequence[tuple[Profile, int]], left: int, blocks: list[Block]) -> int:
        """Add blocks of tasks on machines of one score, in the order of their indexes; return how many tasks are left."""
        wants, most = self._wants, profiles[0][1]
        if all(many == most for _, many in profiles):
            machines = sorted([each for profile, _ in profiles for each in profile.machines], key=_INDEX)
            full, rest = divmod(min(left, most * len(machines)), most)
            if full:
                blocks.append(Block(tuple(machines[:full]), wants, most))
            if rest:
                blocks.append(Block((machines[full],), wants, rest))
            return left - full * most - rest
        shares: list[Share] = []
        for _, many, machine in sorted(
            [(each.index, many, each) for profile, many in profiles for each in profile.machines]
        ):
            shares.append(Share(machine, wants, min(left, many)))
            left -= shares[-1].tasks
            if not left:
                break
        blocks += blocks_of(shares)
        return left


def _booking(calendar: Calendar, request: GangRequest, counts: Fitting, at: int) -> Booking | None:
    """Book machines for all tasks, best first; None if they do not fit."""
    ask, duration, place, size = request
    cluster, shape, alone = ask.candidates.cluster, ask.shape, ask.candidates.alone
    chosen = matching.choose(counts, shape, cluster, SpanRoom(calendar, at, duration, place), size)
    if chosen is None:
        return None
    shares = [Share(machine, wants, tasks, part, alone) for part, machine, wants, tasks in chosen]
    end = at + duration
    if any(share.machine.inside is not None for share in shares):
        shares = calendar.all_inside(shares, shape, at, end)
    return Booking(at, end, cluster, blocks_of(shares))
