"""Who has a turn when a look at jobs is bounded: a part of the queue at a time, by the clock alone, so that nobody waits for ever.

A cycle looks at so many jobs that cannot start, in order, and no further. Behind them it looks at those jobs whose turn it is: jobs are
spread over parts by their numbers, and parts have their turns one after the other. A turn follows from the time and from how many
jobs there are, so a replay and a server that starts anew look at the same jobs.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from spillover.core.jobs import Job, Queued
from spillover.core.state import State
from spillover.model.ids import JobId
from spillover.model.units import SECOND

SLOT: Final = 5 * SECOND
"""Nanoseconds between two turns."""
PARTS: Final = 1024
"""A power of two: so many turns it takes at the most until everybody had one."""
MOST = 1000
"""Jobs that have a turn together, or some more: with so few in all, everybody has one in every cycle."""
SPARE: Final = 64
"""Jobs of a part that have left and are not worth a sweep."""


class Turn(NamedTuple):
    """Whose turn it is: that of every part whose number has this remainder."""

    slot: int
    """Spans of time so far."""
    groups: int
    """How many turns it takes until everybody had one; a power of two."""

    @property
    def is_everybodys(self) -> bool:
        """Whether nobody has to wait for another turn."""
        return self.groups == 1


class Turns:
    """Queued jobs, spread over parts."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._parts: dict[int, list[JobId]] = {}
        """Those that are not queued any more are void."""
        self._limits: dict[int, int] = {}
        """How long each part may grow before void ones are dropped."""

    def copy(self, state: State) -> "Turns":
        """The same, of a book of its own."""
        own = Turns(state)
        own._parts = {at: jobs.copy() for at, jobs in self._parts.items()}
        own._limits = self._limits.copy()
        return own

    def enter(self, job: Job) -> None:
        """A job is queued."""
        at = job.number % PARTS
        part = self._parts.get(at)
        if part is None:
            # Numbers go round all parts, so they grow alike: with limits of their own they are not all swept at once.
            self._parts[at], self._limits[at] = [job.id], SPARE + at * SPARE // PARTS
            return
        part.append(job.id)
        if len(part) > self._limits[at]:
            part = self._parts[at] = self._queued(part)
            self._limits[at] = 2 * len(part) + SPARE

    def at(self, now: int) -> Turn:
        """Whose turn it is."""
        jobs, groups = len(self._state.jobs), 1
        while jobs > MOST * groups and groups < PARTS:
            groups *= 2
        return Turn(now // SLOT, groups)

    def of(self, turn: Turn) -> Iterator[JobId]:
        """Queued jobs whose turn it is, each once, in no order."""
        for at in range(turn.slot % turn.groups, PARTS, turn.groups):
            yield from self._queued(self._parts.get(at, []))

    def _queued(self, jobs: list[JobId]) -> list[JobId]:
        """Those that are queued, each once."""
        book = self._state.jobs
        return [
            each
            for each in dict.fromkeys(jobs)
            if (job := book.get(each)) is not None and type(job.phase) is Queued
        ]


def next_turn(turn: Turn) -> int:
    """When the next turn begins, nanoseconds UTC."""
    return (turn.slot + 1) * SLOT
