"""Time as the engine is told it: never decreases, and jumps only when that was journaled."""

import time
from typing import Final

from spillover.model.units import SECOND
from spillover.ports.clock import Clock, boottime

JUMP: Final = 5 * SECOND
"""A wall clock that runs ahead by more than this was set, not slewed."""


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> int:
        """Nanoseconds UTC."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Nanoseconds since the machine was started, also while it is suspended."""
        return boottime()


class SteadyTime:
    """Follows the wall clock as long as it behaves.

    Small leads of the wall clock are followed at once. A large one is a jump, which the caller has to propose. A wall clock that
    goes back is not followed: time goes on at the pace of the monotonic clock, so nothing stops.
    """

    def __init__(self, clock: Clock, not_before: int = 0) -> None:
        self._clock = clock
        self._offset = max(clock.wall(), not_before) - clock.monotonic()
        self._jumped = 0

    def now(self) -> int:
        """The time, nanoseconds UTC."""
        steady = self._clock.monotonic() + self._offset
        lead = self._clock.wall() - steady
        if lead <= 0:
            return steady
        self._offset += lead
        if lead > JUMP:
            self._jumped += lead
        return steady + lead

    def take_jump(self) -> int:
        """By how many nanoseconds the wall clock has jumped forward since this was last asked; 0 as a rule."""
        jumped, self._jumped = self._jumped, 0
        return jumped

    def monotonic(self) -> int:
        """For spans that no clock on a wall may touch."""
        return self._clock.monotonic()
