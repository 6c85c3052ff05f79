"""How long the event loop keeps everybody waiting: a task sleeps for a moment again and again, and measures how late it wakes up.

Whatever computes for long in one go shows here (a cycle over many jobs, a large answer, the garbage collector), and so does a machine
that has no CPU left for the server.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from itertools import accumulate
from typing import Final, NamedTuple

LOOK: Final = 0.05
"""Seconds between two looks."""
WINDOW: Final = 60.0
"""Seconds for which the longest pause is remembered, at the least."""
SPAN: Final = 5.0
"""Seconds of which only the longest pause is kept, so that the window is a few numbers."""
BOUNDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; upper bounds of the buckets in which pauses are counted."""


class _Span(NamedTuple):
    begin: float
    longest: float


class Pauses:
    """Measures the pauses of the event loop that it runs on; costs twenty wake-ups a second."""

    def __init__(self) -> None:
        self.total = 0.0
        """Seconds of all pauses together."""
        self._counts = [0] * (len(BOUNDS) + 1)
        self._spans: deque[_Span] = deque(maxlen=round(WINDOW / SPAN) + 1)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LOOK
            await asyncio.sleep(LOOK)
            now = clock()
            self.add(max(0.0, now - due), now)

    def add(self, seconds: float, now: float) -> None:
        """Count a pause that ended at some time of a clock that only runs."""
        self.total += seconds
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        if self._spans and now - self._spans[-1].begin < SPAN:
            begin, longest = self._spans.pop()
            self._spans.append(_Span(begin, max(longest, seconds)))
        else:
            self._spans.append(_Span(now, seconds))

    def longest(self) -> float:
        """Seconds of the longest pause in the last minute; 0 before the first look."""
        if not self._spans:
            return 0.0
        since = self._spans[-1].begin - WINDOW
        return max(longest for begin, longest in self._spans if begin >= since)

    def buckets(self) -> list[tuple[str, float]]:
        """How many pauses were at most so long, for each bound, as Prometheus wants it."""
        names = [*map(str, BOUNDS), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))
