"""What failed and is tried again: after a pause that grows, so that it costs little and is not forgotten.

It knows no clock: whoever uses it says what time it is, always on the same clock.
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
"""Characters of why something failed."""


class Failed(Struct, frozen=True):
    """One thing that failed."""

    work: str
    """What was to be done, as `archiving`."""
    subject: str
    """The job that it was to be done for, or a cluster; empty if all of the work failed."""
    reason: str
    since: int
    """When it failed first."""
    tries: int
    next_try: int
    """When it may be tried again."""


class Backoff:
    """All that failed and did not succeed since."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str], Failed] = {}

    def copy(self) -> "Backoff":
        """The same, of its own."""
        own = Backoff()
        own._failed = self._failed.copy()
        return own

    def __len__(self) -> int:
        return len(self._failed)

    def __iter__(self) -> Iterator[Failed]:
        return iter(list(self._failed.values()))

    def put(self, work: str, subject: str, error: BaseException, now: int) -> Failed:
        """Something failed, perhaps not for the first time."""
        before = self._failed.get((work, subject))
        tries = before.tries + 1 if before is not None else 1
        since = before.since if before is not None else now
        failed = Failed(work, subject, reason_of(error), since, tries, now + pause_after(tries))
        self._failed[work, subject] = failed
        return failed

    def done(self, work: str, subject: str) -> None:
        """It succeeded, or need not be done any more."""
        self._failed.pop((work, subject), None)

    def waits(self, work: str, subject: str, now: int) -> bool:
        """Whether it is too early to try something again."""
        failed = self._failed.get((work, subject)) if self._failed else None
        return failed is not None and failed.next_try > now

    def of(self, subject: str) -> list[Failed]:
        """What failed for one job."""
        return [each for each in self._failed.values() if each.subject == subject]

    def due(self, work: str, now: int) -> list[str]:
        """For whom some work may be tried again."""
        return [each.subject for each in self._failed.values() if each.work == work and each.next_try <= now]

    def next_try(self, work: str | None = None) -> int:
        """When something, or some work, may be tried again next; FOREVER if nothing failed."""
        times = [each.next_try for each in self._failed.values() if work in {None, each.work}]
        return min(times, default=FOREVER)


def pause_after(tries: int) -> int:
    """Nanoseconds to wait after so many tries that failed."""
    return min(LONGEST, FIRST << min(tries - 1, 20))


def reason_of(error: BaseException) -> str:
    """Why something failed, in one line."""
    kind = type(error).__name__
    try:
        told = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - one that cannot even be shown
        told = ""
    return plain(f"{kind}: {told}" if told else kind, MOST_REASON)
