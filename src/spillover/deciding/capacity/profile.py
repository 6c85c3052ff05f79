"""What a timeline knows of one machine, and of searches for one shape, over spans of time."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, TypeAlias, cast

from spillover.deciding.capacity.amounts import CLOSED, CPU, Layout, Vector, Wants, count
from spillover.deciding.capacity.counts import opened
from spillover.deciding.capacity.machine import Machine
from spillover.model.units import FOREVER

FEW_HELD: Final = 4
"""Machines on which more jobs run are rarely alike, so they are not compared with others."""
Traits: TypeAlias = tuple[Layout, bool, bool, bool]
"""The layout of its cluster, whether a machine is ready, whether it repels jobs, and whether nothing is known of its inside."""
Alike: TypeAlias = tuple[Traits, tuple[int, ...], tuple[tuple[int, Wants], ...]]
"""Machines with the same traits share a profile if the same is free now, and jobs hold the same there until the same times."""

_STATE = attrgetter("free", "layout", "ready", "repels", "inside")
"""What is free on a machine, and its traits. Machines that are the same in all of this have the same traits."""


class Floors:
    """Times before which jobs of one shape cannot start. What is free only shrinks, so a job that runs longer cannot."""

    __slots__ = ("_durations", "_starts")

    def __init__(self) -> None:
        self._durations: list[int] = []
        self._starts: list[int] = []
        """By position in `_durations`; both rise."""

    def at(self, duration: int) -> int:
        """Return a time before which a job that runs this long cannot start."""
        known = bisect_right(self._durations, duration)
        return self._starts[known - 1] if known else 0

    def add(self, duration: int, start: int) -> None:
        """Note the first start of a job that runs this long."""
        if self.at(duration) >= start:
            return
        first = last = bisect_left(self._durations, duration)
        while last < len(self._starts) and self._starts[last] <= start:
            last += 1
        self._durations[first:last] = [duration]
        self._starts[first:last] = [start]


class Profile:
    """What is free on one machine from each time on."""

    __slots__ = ("alike", "free", "machines", "takes_any", "times")

    def __init__(self, now: int, free: Sequence[int], held: Iterable[tuple[int, Wants]]) -> None:
        self.times = [now]
        self.free: list[Vector] = [list(free)]
        """By position in `times`, what is free from then until the next time."""
        self.machines: list[Machine] = []
        """Those that share it, in any order."""
        self.takes_any = True
        """Whether they take every job that asks for amounts only."""
        self.alike: Alike | None = None
        """Machines like this get it too; None once it has changed."""
        for at, wants in sorted(held):
            if at > self.times[-1]:
                self.times.append(at)
                self.free.append(self.free[-1].copy())
            for position, amount in wants:
                self.free[-1][position] += amount

    def at(self, time: int) -> Vector:
        """Return what is free at a time."""
        return self.free[bisect_right(self.times, time) - 1]

    def blocked_until(self, wants: Wants, start: int, end: int) -> int:
        """Return `start` if a request fits during a whole span, and otherwise a time before which it cannot start."""
        if not wants:
            return FOREVER
        steps, free = self.times, self.free
        step, last = bisect_right(steps, start) - 1, len(steps)
        while True:
            have = free[step]
            for position, amount in wants:
                if have[position] < amount:
                    return steps[step + 1] if step + 1 < last else FOREVER
            step += 1
            if step == last or steps[step] >= end:
                return start

    def first(self, wants: Wants, duration: int, since: int) -> int:
        """Return the first step from `since` on at which a request fits for a duration; FOREVER if it never does."""
        if not wants:
            return FOREVER
        steps, free = self.times, self.free
        step, last = bisect_left(steps, since), len(steps)
        start = -1
        while step < last:
            if start >= 0 and steps[step] - start >= duration:
                return start
            have = free[step]
            for position, amount in wants:
                if have[position] < amount:
                    start = -1
                    break
            else:
                if start < 0:
                    start = steps[step]
            step += 1
        return start if start >= 0 else FOREVER

    def next_after(self, time: int) -> int:
        """Return the next time at which something changes; FOREVER if nothing does."""
        step = bisect_right(self.times, time)
        return self.times[step] if step < len(self.times) else FOREVER

    def count(self, wants: Wants, start: int, end: int) -> int:
        """Return how many times a request fits during a whole span."""
        steps, free = self.times, self.free
        step, last = bisect_right(steps, start), len(steps)
        least = count(wants, free[step - 1])
        while least and step < last and steps[step] < end:
            least = min(least, count(wants, free[step]))
            step += 1
        return least

    def least(self, start: int, end: int) -> Vector:
        """Return what is free of each resource during a whole span."""
        steps, step = self.times, bisect_right(self.times, start)
        free = self.free[step - 1]
        while step < len(steps) and steps[step] < end:
            free = list(map(min, free, self.free[step]))
            step += 1
        return free

    def change(self, start: int, end: int, wants: Wants, tasks: int) -> None:
        """Add a request `tasks` times to what is free during a span; a negative number takes it."""
        first = self.split(start)
        for step in range(first, self.split(end)):
            have = self.free[step]
            for position, amount in wants:
                have[position] += amount * tasks

    def copy(self) -> "Profile":
        """Return an independent copy, which no machine has."""
        own = Profile(self.times[0], (), ())
        own.times, own.free = self.times.copy(), [each.copy() for each in self.free]
        own.takes_any = self.takes_any
        return own

    def without(self, spans: Iterable[tuple[int, int]]) -> "Profile":
        """Return the same without these spans, in which nothing may start or run."""
        own = self.copy()
        for start, end in spans:
            if end > own.times[0]:
                first = own.split(max(start, own.times[0]))
                for step in range(first, own.split(end)):
                    own.free[step][CPU] = CLOSED
        return own

    def split(self, at: int) -> int:
        """Return the step that begins at a time, after making one if necessary."""
        step = bisect_left(self.times, at)
        if step == len(self.times) or self.times[step] != at:
            self.times.insert(step, at)
            self.free.insert(step, self.free[step - 1].copy())
        return step


class Profiles:
    """The profiles of machines. Machines with the same history share one until they differ.

    A gang holds the same on all its machines, so a change, or a count, for most of them is one and not one each.
    """

    def __init__(
        self,
        now: int,
        held_on: Callable[[Machine], Sequence[tuple[int, Wants]]],
        same_on: Callable[[Sequence[Machine]], bool] | None = None,
    ) -> None:
        self._now = now
        self._held_on = held_on
        """Returns what running jobs hold on a machine, and until when."""
        self._same_on = same_on
        """Returns whether that is the same for several machines; None if they are compared one by one."""
        self.known: dict[Machine, Profile] = {}
        """Profiles that were built; loops over many machines look here before they call `of`."""
        self._alike: dict[Alike, Profile] = {}
        """Profiles that did not change since they were built."""
        self._started: dict[Machine, list[tuple[int, Wants]]] = {}
        """Jobs that started now on machines without a profile."""

    def of(self, machine: Machine) -> Profile:
        """Return the profile of a machine, and build it if necessary. It is only changed through `change`."""
        profile = self.known.get(machine)
        if profile is None:
            profile = self.known[machine] = self._build(machine)
        return profile

    def of_all(self, machines: Sequence[Machine]) -> dict[Profile, None]:
        """Return the profiles of several machines, each once."""
        known = self.known
        found = dict.fromkeys(map(known.get, machines))
        if None in found:
            new = len(found) == 1  # most are the machines of one gang
            self._build_all(machines if new else [machine for machine in machines if machine not in known])
            found = dict.fromkeys(map(known.get, machines))
        return cast("dict[Profile, None]", found)

    def begin(self, machine: Machine, until: int, wants: Wants) -> bool:
        """Count a job that started now, if the machine has no profile yet; return whether that was so."""
        if machine in self.known:
            return False
        self._started.setdefault(machine, []).append((until, wants))
        return True

    def change(self, machines: Sequence[Machine], start: int, end: int, wants: Wants, tasks: int) -> None:
        """Add a request `tasks` times to what is free on each of some machines."""
        if len(machines) == 1:
            profile = self.of(machines[0])
            self._own(profile, machines).change(start, end, wants, tasks)
            return
        shared: dict[Profile, list[Machine]] = {}
        profiles = self.of_all(machines)
        if len(profiles) == 1:
            shared[self.of(machines[0])] = list(machines)
        else:
            for machine in machines:
                shared.setdefault(self.known[machine], []).append(machine)
        for profile, some in shared.items():
            self._own(profile, some).change(start, end, wants, tasks)

    def _own(self, profile: Profile, machines: Sequence[Machine]) -> Profile:
        """Return a profile that only these machines have, of those that share one."""
        if len(profile.machines) == len(machines):
            if profile.alike is not None:
                del self._alike[profile.alike]
                profile.alike = None
            return profile
        leaving = dict.fromkeys(machines)
        profile.machines = [machine for machine in profile.machines if machine not in leaving]
        own = profile.copy()
        own.machines = list(machines)
        self.known.update(dict.fromkeys(machines, own))
        return own

    def _build(self, machine: Machine) -> Profile:
        """Return the profile of a machine that has none: that of another machine like it, or a new one."""
        held = self._held_on(machine)
        if machine in self._started:
            held = [*held, *self._started.pop(machine)]
        free = machine.free if machine.free[CPU] != CLOSED else opened(machine)
        if len(held) > FEW_HELD:
            return self._new(machine, free, held)
        # As it is, because nothing starts now on a closed machine, unlike on a full one.
        alike = (_traits(machine), tuple(machine.free), tuple(held))
        profile = self._alike.get(alike)
        if profile is None:
            profile = self._alike[alike] = self._new(machine, free, held)
            profile.alike = alike
        else:
            profile.machines.append(machine)
        return profile

    def _new(self, machine: Machine, free: Sequence[int], held: Iterable[tuple[int, Wants]]) -> Profile:
        profile = Profile(self._now, free, held)
        profile.machines.append(machine)
        profile.takes_any = machine.ready and not machine.repels
        return profile

    def _build_all(self, machines: Sequence[Machine]) -> None:
        """Build the profiles of machines that have none. Those of a gang, and idle ones, are one profile at once."""
        first, known = machines[0], self.known
        if (
            self._same_on is not None
            and len(machines) > 1
            and self._started.keys().isdisjoint(machines)
            and list(map(_STATE, machines)).count(_STATE(first)) == len(machines)
            and self._same_on(machines)
        ):
            profile = self._build(first)
            if profile.alike is not None:
                profile.machines += machines[1:]
                known.update(dict.fromkeys(machines, profile))
                return
            known[first] = profile
            machines = machines[1:]
        for machine in machines:
            known[machine] = self._build(machine)


def _traits(machine: Machine) -> Traits:
    return machine.layout, machine.ready, machine.repels, machine.inside is None
