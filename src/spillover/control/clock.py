"""Time as the engine is told it: never decreases, jumps only when that was journaled, and does not follow a clock that is wrong."""

import time
from typing import Final, NamedTuple

from msgspec import Struct

from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from spillover.ports.clock import Clock, boot_id, boottime

JUMP: Final = 5 * SECOND
"""A wall clock that runs ahead by more than this was set, not slewed."""
AGREE: Final = 5 * MINUTE
"""Clocks of two machines that differ by no more say the same."""
FRESH: Final = MINUTE
"""How long counts what another machine said of its clock."""


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> int:
        """Nanoseconds UTC."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Nanoseconds since the machine was started, also while it is suspended."""
        return boottime()


class ClockBounds(Struct, frozen=True):
    """How far the wall clock is believed; nanoseconds."""

    jump: int = HOUR
    """The furthest that it may jump ahead while a server runs."""
    away: int = 30 * DAY
    """The longest that it may say no server ran, when one starts: weeks, as over holidays."""


class SteadyTime:
    """Follows the wall clock as long as it behaves.

    Small leads of the wall clock are followed at once. A larger one is a jump, which the caller has to propose. One beyond a
    bound is held back: it may be a mistake, for which jobs would end and what is kept would be deleted. A wall clock that goes
    back is not followed either. Then time goes on at the pace of the monotonic clock, so nothing stops.
    """

    def __init__(self, clock: Clock, last: int = 0, bounds: ClockBounds | None = None) -> None:
        """Begin where a journal ended; 0 if it is empty."""
        self._clock = clock
        self._bounds = bounds or ClockBounds()
        wall = clock.wall()
        gap = wall - last
        follows = not last or gap <= self._bounds.away
        self._offset = (max(wall, last) if follows else last) - clock.monotonic()
        # Nobody knows how long no server ran, until the clock on the wall is there to tell.
        told = not last or -self._bounds.jump <= gap <= self._bounds.away
        self._bound = self._bounds.jump if told else self._bounds.away
        self._jumped = 0

    def now(self) -> int:
        """The time, nanoseconds UTC."""
        lead = self.lead()
        if 0 < lead <= self._bound:
            self._follow(lead)
        return self._clock.monotonic() + self._offset

    def lead(self) -> int:
        """How far the wall clock is ahead of the time; below 0 if it is behind."""
        return self._clock.wall() - self._clock.monotonic() - self._offset

    def held(self) -> int:
        """The lead that is held back; 0 if none is."""
        lead = self.lead()
        return lead if lead > self._bound else 0

    def accept(self) -> None:
        """Follow the wall clock however far ahead it is."""
        if (lead := self.lead()) > 0:
            self._follow(lead)

    def take_jump(self) -> int:
        """By how many nanoseconds the wall clock has jumped forward since this was last asked; 0 as a rule."""
        jumped, self._jumped = self._jumped, 0
        return jumped

    def wall(self) -> int:
        """What the clock on the wall says, right or wrong."""
        return self._clock.wall()

    def monotonic(self) -> int:
        """For spans that no clock on a wall may touch."""
        return self._clock.monotonic()

    def _follow(self, lead: int) -> None:
        self._offset += lead
        self._bound = self._bounds.jump
        if lead > JUMP:
            self._jumped += lead


class Votes(NamedTuple):
    """What other machines say of the wall clock of this one."""

    agree: int
    disagree: int

    @property
    def carried(self) -> bool:
        """Whether more of them agree with it than do not."""
        return self.agree > self.disagree


class OtherClocks:
    """The wall clocks of machines that agents run on, as they tell them: a second opinion. Agents on this machine have none."""

    def __init__(self, here: str | None = None) -> None:
        self._here = boot_id() if here is None else here
        """What this machine is known by; empty if that cannot be told, and then no machine is surely another."""
        self._machines: dict[str, str] = {}
        """By agent: what its machine is known by."""
        self._said: dict[str, tuple[int, int]] = {}
        """By machine: how far its wall clock was ahead of our monotonic one, and when that was."""

    def introduce(self, agent: str, machine: str) -> None:
        """An agent registered."""
        self._machines[agent] = machine

    def hear(self, agent: str, wall: int, monotonic: int) -> None:
        """An agent said what its wall clock shows, nanoseconds UTC; 0 if it said nothing."""
        machine = self._machines.get(agent, "")
        if wall > 0 and machine and self._here and machine != self._here:
            self._said[machine] = (wall - monotonic, monotonic)

    def votes(self, wall: int, monotonic: int) -> Votes:
        """Who agrees with a wall clock, of those that were heard of lately; one vote for each machine."""
        self._said = {machine: said for machine, said in self._said.items() if monotonic - said[1] <= FRESH}
        agree = sum(abs(ahead + monotonic - wall) <= AGREE for ahead, _ in self._said.values())
        return Votes(agree, len(self._said) - agree)
