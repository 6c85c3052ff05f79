"""Keeps failed work for another try, after a pause that grows with each failure.

It has no clock. Callers pass the time, always from the same clock.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from spillover.model.bounds import plain
from spillover.model.units import FOREVER, MINUTE, SECOND

FIRST: Final = SECOND
"""Nanoseconds before the second try."""
LONGEST: Final = 5 * MINUTE
MOST_REASON: Final = 300
"""Longest reason, in characters."""


class Failed(Struct, frozen=True):
    """A piece of work that failed."""

    work: str
    """The kind of work, such as `archiving`."""
    subject: str
    """The job or cluster concerned; empty if all of the work failed."""
    reason: str
    since: int
    """When it first failed."""
    tries: int
    next_try: int
    """When it may be tried again."""


class Backoff:
    """All work that failed and has not succeeded since."""

    def __init__(self) -> None:
        self.failed: dict[tuple[str, str], Failed] = {}
        """By kind of work and subject."""

    def copy(self) -> "Backoff":
        """Return an independent copy."""
        own = Backoff()
        own.failed = self.failed.copy()
        return own

    def __len__(self) -> int:
        return len(self.failed)

    def __iter__(self) -> Iterator[Failed]:
        return iter(list(self.failed.values()))

    def put(self, work: str, subject: str, error: BaseException, now: int) -> Failed:
        """Record a failure, which may not be the first."""
        before = self.failed.get((work, subject))
        tries = before.tries + 1 if before is not None else 1
        since = before.since if before is not None else now
        failed = Failed(work, subject, reason_of(error), since, tries, now + pause_after(tries))
        self.failed[work, subject] = failed
        return failed

    def done(self, work: str, subject: str) -> None:
        """Forget work that succeeded or is no longer needed."""
        self.failed.pop((work, subject), None)

    def waits(self, work: str, subject: str, now: int) -> bool:
        """Return whether it is too early to try again."""
        failed = self.failed.get((work, subject)) if self.failed else None
        return failed is not None and failed.next_try > now

    def of(self, subject: str) -> list[Failed]:
        """Return the failures for one job."""
        return [each for each in self.failed.values() if each.subject == subject]

    def due(self, work: str, now: int) -> list[str]:
        """Return the subjects for which some work may be tried again."""
        return [each.subject for each in self.failed.values() if each.work == work and each.next_try <= now]

    def next_try(self, work: str | None = None) -> int:
        """Return when the next try is due, of one kind of work if given; FOREVER if nothing failed."""
        times = [each.next_try for each in self.failed.values() if work in {None, each.work}]
        return min(times, default=FOREVER)


def pause_after(tries: int) -> int:
    """Return the pause in nanoseconds after this many failed tries."""
    return min(LONGEST, FIRST << min(tries - 1, 20))


def reason_of(error: BaseException) -> str:
    """Describe an error in one line. For a group of one error, describe that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    kind = type(error).__name__
    try:
        told = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an error that cannot even be formatted
        told = ""
    return plain(f"{kind}: {told}" if told else kind, MOST_REASON)
