"""Limits queued jobs, submission rates and request sizes, and counts refusals."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from spillover.core.proposals import QueueBounds
from spillover.model.units import SECOND
from spillover.ports.clock import Clock
from spillover.ports.commands import CommandError, ErrorKind

KINDS: Final = (
    "body",
    "connections",
    "queued",
    "queued_in_queue",
    "queued_per_project",
    "submissions_per_second",
)
"""Limits that can refuse something, as `limits` in spill.yaml names them, and those of named queues."""
FULL_PAUSE: Final = 5.0
"""Seconds until a retry when the queue is full; the server cannot predict when that changes."""
MOST_BUCKETS: Final = 10_000


class Rate(Struct, frozen=True):
    """Parameters of a token bucket."""

    rate: float
    """Of what is limited, per second."""
    burst: int


class _Bucket:
    """A token bucket. It starts full; one submission larger than its size may overdraw it."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: int) -> None:
        self.left = left
        self.at = at
        """Last update, monotonic nanoseconds."""


class Buckets:
    """Token buckets of one rate, by who uses them. Bounded."""

    def __init__(self, monotonic: Callable[[], int], rate: Rate) -> None:
        self._monotonic = monotonic
        self._rate = rate
        self._buckets: dict[str, _Bucket] = {}

    def pause(self, who: str, needed: float = 1) -> float:
        """Return the seconds until so many are left; 0 if they are."""
        missing = needed - self._filled(who).left
        return 0.0 if missing <= 0 else math.ceil(missing / self._rate.rate * 1000) / 1000

    def take(self, who: str, count: float = 1) -> None:
        """Take some out of a bucket, which may overdraw it."""
        self._filled(who).left -= count

    def _filled(self, who: str) -> _Bucket:
        """Return the bucket of somebody, refilled up to now."""
        now = self._monotonic()
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= MOST_BUCKETS:
                self._buckets.clear()  # most are of those who are gone; the others start full again
            bucket = self._buckets[who] = _Bucket(self._rate.burst, now)
        bucket.left = min(self._rate.burst, bucket.left + (now - bucket.at) / SECOND * self._rate.rate)
        bucket.at = now
        return bucket


class Gauge:
    """Checks requests against the limits."""

    def __init__(
        self,
        clock: Clock,
        bounds: QueueBounds | None = None,
        submissions: Rate | None = None,
        body: int | None = None,
    ) -> None:
        self._submissions = submissions
        self._buckets = None if submissions is None else Buckets(clock.monotonic, submissions)
        self.bounds = bounds
        """Limits of the queue, which the engine checks on submission; None means no limit."""
        self.body = body
        """Most bytes of a request; None means the limit of the protocol."""
        self.refused: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        """Number of refusals, by limit."""

    def submit(self, token: str, count: int) -> None:
        """Count submitted jobs against a token; raise CommandError with a retry time if they exceed its rate."""
        rate, buckets = self._submissions, self._buckets
        if rate is None or buckets is None or not count:
            return
        pause = buckets.pause(token, min(count, rate.burst))
        if not pause:
            buckets.take(token, count)
            return
        self.refused["submissions_per_second"] += 1
        raise CommandError(
            ErrorKind.LIMITED,
            f"this token submits more than {rate.rate:g} jobs a second (at most {rate.burst} at once); "
            f"try again in {pause:.1f} s",
            (),
            pause,
        )

    def crowded(self) -> None:
        """Count a connection that was refused."""
        self.refused["connections"] += 1

    def full(self, limit: str, message: str) -> CommandError:
        """Count a submission that did not fit in the queue, and return its error."""
        self.refused[limit] += 1
        return CommandError(ErrorKind.LIMITED, f"{message}; try again when some have started", (), FULL_PAUSE)
