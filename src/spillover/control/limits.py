"""How much the server takes: jobs that wait, jobs that a token submits, and the size of requests; and what it refused."""

import math
from collections import Counter
from typing import Final

from msgspec import Struct

from spillover.core.proposals import QueueBounds
from spillover.model.units import SECOND
from spillover.ports.clock import Clock
from spillover.ports.commands import CommandError, ErrorKind

KINDS: Final = ("body", "connections", "queued", "queued_per_project", "submissions_per_second")
"""What can be refused, as `limits` of spill.yaml has it."""
FULL_PAUSE: Final = 5.0
"""Seconds after which a submission to a full queue may be tried again: nobody knows when there will be room."""
MOST_BUCKETS: Final = 10_000


class Rate(Struct, frozen=True):
    """How fast a bucket fills, and how much it holds."""

    rate: float
    """A second."""
    burst: int


class _Bucket:
    """What one token may submit at once. It starts full, and may be overdrawn by a submission larger than it holds."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: int) -> None:
        self.left = left
        self.at = at
        """When it was last looked at, monotonic nanoseconds."""


class Gauge:
    """Counts what comes against the limits."""

    def __init__(
        self,
        clock: Clock,
        bounds: QueueBounds | None = None,
        submissions: Rate | None = None,
        body: int | None = None,
    ) -> None:
        self._clock = clock
        self._submissions = submissions
        self._buckets: dict[str, _Bucket] = {}
        self.bounds = bounds
        """Of the queue; None is any number. What decides on submissions checks them."""
        self.body = body
        """Bytes of a request; None is what the protocol takes."""
        self.refused: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        """How often, by limit."""

    def submit(self, token: str, count: int) -> None:
        """Let a token submit so many jobs, or raise with when it may."""
        rate = self._submissions
        if rate is None or not count:
            return
        bucket = self._bucket(token, rate)
        needed = min(count, rate.burst)
        if bucket.left >= needed:
            bucket.left -= count
            return
        self.refused["submissions_per_second"] += 1
        pause = math.ceil((needed - bucket.left) / rate.rate * 1000) / 1000
        raise CommandError(
            ErrorKind.LIMITED,
            f"this token submits more than {rate.rate:g} jobs a second (at most {rate.burst} at once); "
            f"try again in {pause:.1f} s",
            (),
            pause,
        )

    def crowded(self) -> None:
        """A connection was one too many."""
        self.refused["connections"] += 1

    def full(self, limit: str, message: str) -> CommandError:
        """A submission for which the queue has no room."""
        self.refused[limit] += 1
        return CommandError(ErrorKind.LIMITED, f"{message}; try again when some have started", (), FULL_PAUSE)

    def _bucket(self, token: str, rate: Rate) -> _Bucket:
        """The bucket of a token, filled up to now."""
        now = self._clock.monotonic()
        bucket = self._buckets.get(token)
        if bucket is None:
            if len(self._buckets) >= MOST_BUCKETS:
                self._buckets.clear()  # of tokens that are gone; those that are not begin anew
            bucket = self._buckets[token] = _Bucket(rate.burst, now)
        bucket.left = min(rate.burst, bucket.left + (now - bucket.at) / SECOND * rate.rate)
        bucket.at = now
        return bucket
