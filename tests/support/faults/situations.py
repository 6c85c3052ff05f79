"""Counts the situations that stories meet, to show that they are not empty and that every situation occurs."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, TypeAlias

from tests.support.faults.plans import (
    BadDisk,
    Cut,
    Fault,
    KillAgent,
    KillServer,
    PauseAgent,
    PauseServer,
    ReplaceAgent,
    StopAgent,
    Storm,
)


class Situation(StrEnum):
    """A situation that a story may meet, with its description."""

    # Faults; one that has no effect does not count.
    STORM = "messages lost, repeated and late for a while"
    CUT = "a wire cut"
    AGENT_KILLED = "an agent killed"
    AGENT_STOPPED = "an agent told to stop"
    AGENT_PAUSED = "an agent stopped where it stands"
    AGENT_REPLACED = "an agent replaced while it stands"
    SERVER_KILLED = "the server killed"
    SERVER_PAUSED = "the server stopped where it stands"
    DISK_BAD = "a disk that fails or is slow"

    LOST = "a message lost"
    REPEATED = "a request that arrived twice"
    LATE = "a message late by more than a call may take"
    HELD = "a message that a cut held until it was mended"
    UNWRITTEN = "a write that failed"
    WRITTEN_ALL_THE_SAME = "a write that was said to have failed and had not"

    # Consequences.
    OVERLAP = "a task that ran twice at once, one of its agents stopped or dead"
    WOKE_WITHOUT = "an agent that woke to tasks that were no longer its own"
    FENCED = "a message under a registration that another one followed"
    OVERTAKEN = "a registration that came after a later one"
    NAMESAKE = "a registration while another agent has the name"
    RECLAIMED = "a lease that ran out and was taken back"
    HELD_BACK = "so many leases run out that none is taken back yet"
    GIVEN_BACK = "a lease given back by an agent that had not started it"
    TOLD_LOST = "a task that its agent ended or lost with the lease"
    OUTLIVED = "a lease that its agent kept from one server to the next"
    ASKED = "a steal asked for"
    MOVED = "a lease moved by a steal"
    REFUSED = "a steal refused"
    UNANSWERED = "a steal that was never answered"
    DUPLICATE = "a result told again after it counted"
    STALE = "a result under a lease that was over"
    GANG = "a gang that ran whole"
    UNPREPARED = "a gang given back because a node could not prepare it"
    SPLIT = "a gang of which a part started and another part was lost"
    RESTARTED = "a task of a gang that failed and started again in its place"


Tally: TypeAlias = Counter[Situation]
"""How often each situation occurred."""

KINDS: Final[dict[type[Fault], Situation]] = {
    Storm: Situation.STORM,
    Cut: Situation.CUT,
    KillAgent: Situation.AGENT_KILLED,
    StopAgent: Situation.AGENT_STOPPED,
    PauseAgent: Situation.AGENT_PAUSED,
    ReplaceAgent: Situation.AGENT_REPLACED,
    KillServer: Situation.SERVER_KILLED,
    PauseServer: Situation.SERVER_PAUSED,
    BadDisk: Situation.DISK_BAD,
}


class Counts:
    """Totals over many stories."""

    def __init__(self, tallies: Iterable[Tally] = ()) -> None:
        self.times: Tally = Counter()
        self.stories: Tally = Counter()
        """Number of stories that met each situation."""
        for tally in tallies:
            self.add(tally)

    def add(self, tally: Tally) -> None:
        """Add the situations of one story."""
        self.times += tally
        self.stories.update(situation for situation, times in tally.items() if times)

    def never(self) -> list[Situation]:
        """Return the situations that no story met."""
        return [situation for situation in Situation if not self.stories[situation]]

    def table(self) -> Iterator[str]:
        """Yield a line for each situation, including those that were not met."""
        width = max(len(situation) for situation in Situation)
        yield f"{'':{width}}  {'stories':>9}  {'times':>11}"
        for situation in Situation:
            yield f"{situation:{width}}  {self.stories[situation]:>9,}  {self.times[situation]:>11,}"
