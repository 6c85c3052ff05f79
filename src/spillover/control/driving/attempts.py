"""One attempt on an external cluster: what is known of it."""

from enum import Enum
from typing import Final

from msgspec import Struct

from spillover.core.events import Lease
from spillover.core.jobs import Job
from spillover.core.proposals import DRIVER, Outcome, Result
from spillover.model.units import MINUTE, SECOND
from spillover.ports.driver import Ending, Seen

RETRIES: Final = (SECOND // 4, SECOND, 4 * SECOND, 15 * SECOND)
"""Nanoseconds before an attempt is asked for again, each time longer."""


LASTS: Final = MINUTE
"""Nanoseconds that something may be going, and is left over or does not run, before it is not waited for any more."""


class Known(Enum):
    """Whether an attempt is there."""

    UNASKED = "unasked"
    """Nobody ever asked for it, or was told that nothing was made."""
    UNSURE = "unsure"
    """It may have been asked for: by an earlier server, or without an answer."""
    MADE = "made"
    """The cluster said that it is there; it was not seen yet."""
    SEEN = "seen"
    GONE = "gone"
    """It was there and is not any more."""


class Withdrawal(Struct, frozen=True):
    """Why an attempt is taken away that does not start."""

    outcome: Outcome | None
    """How the job ends by it; None if it goes back to the queue."""
    message: str


class Attempt(Struct):
    """What is known of one attempt."""

    lease: Lease
    known: Known
    wanted: bool
    """Whether the book has it there."""
    seen: Seen | None = None
    """As it was last seen; stays when it is gone."""
    asking: bool = False
    """Whether the cluster is being asked for it right now."""
    tries: int = 0
    """How often it was asked for in vain."""
    since: int = 0
    """Since when it is made and not seen, on the monotonic clock."""
    after: int = 0
    """Not to be asked for again before, on the monotonic clock."""
    refused: int | None = None
    """Since when the cluster says that it does not take it now, nanoseconds UTC; None if it does not say so."""
    message: str = ""
    """What the cluster said when it did not take it."""
    stop_after: int = 0
    """Its deletion is not to be asked for again before, on the monotonic clock."""
    going: int | None = None
    """Since when it is seen being deleted, on the monotonic clock; None if it is not."""
    withdrawal: Withdrawal | None = None
    outputs: str | None = None
    """The blob that lists what was kept of its output; None while it was not asked for."""
    keeping: bool = False
    """Whether its output is being kept."""

    @property
    def ran(self) -> bool:
        """Whether any of it was ever seen to run."""
        return self.seen is not None and self.seen.started is not None

    def is_left_over(self, monotonic: int) -> bool:
        """Whether it is there, may run, and the book has it not.

        One that has been going for so long is on a node that does not answer: it counts among what others use, and is not waited for.
        """
        if (
            self.known is not Known.SEEN
            or self.wanted
            or (self.seen is not None and self.seen.ending is not None)
        ):
            return False
        return self.going is None or monotonic - self.going < LASTS

    @property
    def is_unsent(self) -> bool:
        """Whether the cluster surely knows nothing of it."""
        return self.wanted and self.known is Known.UNASKED and not self.asking

    def retry(self, monotonic: int) -> int:
        """Ask again later; returns when, on the monotonic clock."""
        self.tries += 1
        self.after = monotonic + RETRIES[min(self.tries, len(RETRIES)) - 1]
        return self.after


def result_of(job: Job, ending: Ending, now: int, outputs: str = "") -> Result:
    """How an attempt ended, for the core."""
    age = 0 if ending.finished is None else max(0, now - ending.finished)
    return Result(
        DRIVER,
        job.lease,
        ending.outcome,
        ending.exit_code,
        ending.signal,
        ending.usage,
        age,
        ending.message,
        outputs=outputs,
        tasks=ending.tasks,
    )
