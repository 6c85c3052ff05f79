"""Gives jobs beyond a bounded look their turn, one part of the queue at a time, so that no job starves.

A cycle tries a bounded number of jobs that cannot start, in order. Behind them it only tries the jobs whose turn it is.
Jobs are spread over parts by their numbers, and the parts take turns. The turn depends only on the time and on the
number of jobs, so a replay and a restarted server try the same jobs.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from spillover.core.records.jobs import Job, Queued
from spillover.core.state import State
from spillover.model.ids import JobId
from spillover.model.units import SECOND

SLOT: Final = 5 * SECOND
"""Nanoseconds between two turns."""
PARTS: Final = 1024
"""Number of parts, a power of two: the most turns until every job had one."""
MOST = 1000
"""About how many jobs share a turn. If there are no more in all, each job has a turn in every cycle."""
SPARE: Final = 64
"""Void entries of a part that are tolerated before it is cleaned."""


class Turn(NamedTuple):
    """A turn: that of every part whose number modulo `groups` equals `slot` modulo `groups`."""

    slot: int
    """Number of the time slot."""
    groups: int
    """Number of turns until every job had one; a power of two."""

    @property
    def includes_all(self) -> bool:
        """Whether all jobs have this turn."""
        return self.groups == 1


class Turns:
    """Queued jobs, spread over parts."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._parts: dict[int, list[JobId]] = {}
        """Jobs of each part; those that are no longer queued are void."""
        self._limits: dict[int, int] = {}
        """The length at which each part drops void entries."""

    def copy(self, state: State) -> "Turns":
        """Return a copy for another state."""
        own = Turns(state)
        own._parts = {at: jobs.copy() for at, jobs in self._parts.items()}
        own._limits = self._limits.copy()
        return own

    def enter(self, job: Job) -> None:
        """Add a queued job."""
        at = job.number % PARTS
        part = self._parts.get(at)
        if part is None:
            # Numbers go round all parts, so the parts grow at the same rate. Different limits keep them from being
            # cleaned in the same step.
            self._parts[at], self._limits[at] = [job.id], SPARE + at * SPARE // PARTS
            return
        part.append(job.id)
        if len(part) > self._limits[at]:
            part = self._parts[at] = self._queued(part)
            self._limits[at] = 2 * len(part) + SPARE

    def at(self, now: int) -> Turn:
        """Return the turn at a time."""
        jobs, groups = len(self._state.jobs), 1
        while jobs > MOST * groups and groups < PARTS:
            groups *= 2
        return Turn(now // SLOT, groups)

    def of(self, turn: Turn) -> Iterator[JobId]:
        """Yield queued jobs that have this turn, each once, in no particular order."""
        for at in range(turn.slot % turn.groups, PARTS, turn.groups):
            yield from self._queued(self._parts.get(at, []))

    def _queued(self, jobs: list[JobId]) -> list[JobId]:
        """Return those that are queued, each once."""
        known = self._state.jobs
        return [
            each
            for each in dict.fromkeys(jobs)
            if (job := known.get(each)) is not None and type(job.phase) is Queued
        ]


def next_turn(turn: Turn) -> int:
    """Return when the next turn begins, nanoseconds UTC."""
    return (turn.slot + 1) * SLOT
