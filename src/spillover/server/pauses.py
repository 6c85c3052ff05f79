"""Measures how long the event loop is blocked: a task sleeps briefly in a loop and records how late it wakes up.

This shows long computations (a cycle over many jobs, a large answer, the garbage collector), and also a machine
without free CPU for the server.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from itertools import accumulate
from typing import Final, NamedTuple

LOOK: Final = 0.05
"""Seconds between two samples."""
WINDOW: Final = 60.0
"""Seconds for which the longest pause is kept, at least."""
SPAN: Final = 5.0
"""Seconds in one span, of which only the longest pause is kept, to limit memory."""
BOUNDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds."""


class _Span(NamedTuple):
    begin: float
    longest: float


class Pauses:
    """Measures pauses of the event loop that it runs on, with twenty wake-ups per second."""

    def __init__(self) -> None:
        self.total = 0.0
        """Sum of all pauses, in seconds."""
        self._counts = [0] * (len(BOUNDS) + 1)
        self._spans: deque[_Span] = deque(maxlen=round(WINDOW / SPAN) + 1)

    async def run(self) -> None:
        """Sample until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LOOK
            await asyncio.sleep(LOOK)
            now = clock()
            self.add(max(0.0, now - due), now)

    def add(self, seconds: float, now: float) -> None:
        """Count a pause that ended at a monotonic time."""
        self.total += seconds
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        if self._spans and now - self._spans[-1].begin < SPAN:
            begin, longest = self._spans.pop()
            self._spans.append(_Span(begin, max(longest, seconds)))
        else:
            self._spans.append(_Span(now, seconds))

    def longest(self) -> float:
        """Return the longest pause of the last minute in seconds; 0 before the first sample."""
        if not self._spans:
            return 0.0
        since = self._spans[-1].begin - WINDOW
        return max(longest for begin, longest in self._spans if begin >= since)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts for each bound, in the form of Prometheus."""
        names = [*map(str, BOUNDS), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))
