"""Provides the engine's time, which never decreases, journals its jumps, and ignores a wrong wall clock."""

import time
from typing import Final, NamedTuple

from msgspec import Struct

from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from spillover.ports.clock import Clock, boot_id, boottime

JUMP: Final = 5 * SECOND
"""Nanoseconds; a wall clock that is further ahead was set, not slewed."""
AGREE: Final = 5 * MINUTE
"""Nanoseconds by which clocks of two machines may differ and still agree."""
FRESH: Final = MINUTE
"""Nanoseconds for which the reported time of another machine counts."""


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> int:
        """Return nanoseconds UTC."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Return nanoseconds since boot, including the time the machine was suspended."""
        return boottime()


class ClockBounds(Struct, frozen=True):
    """How far to trust the wall clock, in nanoseconds."""

    jump: int = HOUR
    """Furthest jump ahead to follow while a server runs."""
    away: int = 30 * DAY
    """Longest gap since the last event to follow at a start; allows for holidays."""


class SteadyTime:
    """Follows the wall clock as long as it is plausible.

    A small lead of the wall clock is followed at once. A larger one is a jump, which the caller must propose. A jump
    beyond a bound is ignored: it may be a mistake, and following it would end jobs and delete data. A wall clock that
    goes back is not followed either. In both cases time continues at the pace of the monotonic clock, so nothing
    stops.
    """

    def __init__(self, clock: Clock, last: int = 0, bounds: ClockBounds | None = None) -> None:
        """Start at the time of the last event of a journal; 0 if it is empty."""
        self._clock = clock
        self._bounds = bounds or ClockBounds()
        wall = clock.wall()
        gap = wall - last
        follows = not last or gap <= self._bounds.away
        self._offset = (max(wall, last) if follows else last) - clock.monotonic()
        # If the wall clock is implausible now, the length of the outage is unknown, so the larger bound applies until
        # it is followed.
        plausible = not last or -self._bounds.jump <= gap <= self._bounds.away
        self._bound = self._bounds.jump if plausible else self._bounds.away
        self._jumped = 0

    def now(self) -> int:
        """Return the time in nanoseconds UTC."""
        lead = self.lead()
        if 0 < lead <= self._bound:
            self._follow(lead)
        return self._clock.monotonic() + self._offset

    def lead(self) -> int:
        """Return how far the wall clock is ahead of the time; negative if it is behind."""
        return self._clock.wall() - self._clock.monotonic() - self._offset

    def held(self) -> int:
        """Return the lead that is being ignored; 0 if none is."""
        lead = self.lead()
        return lead if lead > self._bound else 0

    def accept(self) -> None:
        """Follow the wall clock, however far ahead it is."""
        if (lead := self.lead()) > 0:
            self._follow(lead)

    def take_jump(self) -> int:
        """Return the nanoseconds by which the wall clock jumped forward since the last call; usually 0."""
        jumped, self._jumped = self._jumped, 0
        return jumped

    def wall(self) -> int:
        """Return the wall clock, right or wrong, in nanoseconds UTC."""
        return self._clock.wall()

    def monotonic(self) -> int:
        """Return the monotonic clock, for spans that must not depend on the wall clock."""
        return self._clock.monotonic()

    def _follow(self, lead: int) -> None:
        self._offset += lead
        self._bound = self._bounds.jump
        if lead > JUMP:
            self._jumped += lead


class Votes(NamedTuple):
    """How many other machines agree with the wall clock of this one."""

    agree: int
    disagree: int

    @property
    def carried(self) -> bool:
        """Whether a majority agrees."""
        return self.agree > self.disagree


class OtherClocks:
    """Collects wall clocks that agents on other machines report, as a second opinion."""

    def __init__(self, here: str | None = None) -> None:
        self._here = boot_id() if here is None else here
        """Boot id of this machine; empty if unknown, and then reports of all agents are ignored."""
        self._machines: dict[str, str] = {}
        """Boot id of the machine of each agent."""
        self._said: dict[str, tuple[int, int]] = {}
        """For each machine, how far its wall clock was ahead of our monotonic clock, and when it was reported."""

    def introduce(self, agent: str, machine: str) -> None:
        """Record the machine of an agent."""
        self._machines[agent] = machine

    def hear(self, agent: str, wall: int, monotonic: int) -> None:
        """Record the wall clock of an agent, in nanoseconds UTC; 0 if it did not report it."""
        machine = self._machines.get(agent, "")
        if wall > 0 and machine and self._here and machine != self._here:
            self._said[machine] = (wall - monotonic, monotonic)

    def votes(self, wall: int, monotonic: int) -> Votes:
        """Count which recent reports agree with a wall clock; each machine has one vote."""
        self._said = {machine: said for machine, said in self._said.items() if monotonic - said[1] <= FRESH}
        agree = sum(abs(ahead + monotonic - wall) <= AGREE for ahead, _ in self._said.values())
        return Votes(agree, len(self._said) - agree)
