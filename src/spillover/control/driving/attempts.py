"""Records what the server knows of one attempt on an external cluster."""

from enum import Enum
from typing import Final

from msgspec import Struct

from spillover.core.events import Lease
from spillover.core.proposals import DRIVER, Outcome, Result
from spillover.core.records.jobs import Job
from spillover.model.units import MINUTE, SECOND
from spillover.ports.driver import Ending, Seen

RETRIES: Final = (SECOND // 4, SECOND, 4 * SECOND, 15 * SECOND)
"""Nanoseconds before each retry of a start; the last one repeats."""


LASTS: Final = MINUTE
"""Nanoseconds to wait for objects that are being deleted and are leftovers or do not run."""


class Known(Enum):
    """Whether the objects of an attempt exist."""

    UNASKED = "unasked"
    """No start was sent, or the cluster created nothing."""
    UNSURE = "unsure"
    """A start may have been sent, by an earlier server or without an answer."""
    MADE = "made"
    """The cluster confirmed the objects, but the driver has not seen them yet."""
    SEEN = "seen"
    GONE = "gone"
    """The objects existed and no longer do."""


class Withdrawal(Struct, frozen=True):
    """Why an attempt that does not start is withdrawn."""

    outcome: Outcome | None
    """How the job ends; None if it returns to the queue."""
    message: str


class Attempt(Struct):
    """What the server knows of one attempt."""

    lease: Lease
    known: Known
    wanted: bool
    """Whether the state has this attempt on the cluster."""
    seen: Seen | None = None
    """The last sighting; stays when the objects are gone."""
    asking: bool = False
    """Whether a start is being sent now."""
    tries: int = 0
    """Starts that failed."""
    since: int = 0
    """Monotonic time since which it is made and not seen."""
    after: int = 0
    """Monotonic time before which no start is sent again."""
    refused: int | None = None
    """Since when the cluster refuses it for now, nanoseconds UTC; None if it does not."""
    message: str = ""
    """Why the last try to start it failed."""
    unanswered: int | None = None
    """Since when the driver has not answered the request to start it, nanoseconds UTC; None if it answered the last one."""
    stop_after: int = 0
    """Monotonic time before which no deletion is sent again."""
    going: int | None = None
    """Monotonic time since which it is seen being deleted; None if it is not."""
    withdrawal: Withdrawal | None = None
    first: int | None = None
    """When this server first saw it run in part, nanoseconds UTC; None if it did not."""
    short: str = ""
    """What was missing of a gang when it was stopped as overdue; empty if it was not, or by an earlier server."""
    outputs: str | None = None
    """Digest of the list of saved output; None until it is saved."""
    keeping: bool = False
    """Whether its output is being saved now."""

    @property
    def ran(self) -> bool:
        """Whether any of its tasks was seen running."""
        return self.seen is not None and self.seen.started is not None

    def is_left_over(self, monotonic: int) -> bool:
        """Return whether its objects exist and may run, but the state does not have it.

        If the deletion takes longer than LASTS, the node does not answer. The attempt then counts as usage of others,
        and nothing waits for it.
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
        """Whether the cluster certainly does not know it."""
        return self.wanted and self.known is Known.UNASKED and not self.asking

    def retry(self, monotonic: int) -> int:
        """Count a failed start; return when to try again, on the monotonic clock."""
        self.tries += 1
        self.after = monotonic + RETRIES[min(self.tries, len(RETRIES)) - 1]
        return self.after


def result_of(job: Job, ending: Ending, now: int, outputs: str = "") -> Result:
    """Return the proposal that reports how an attempt ended."""
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
