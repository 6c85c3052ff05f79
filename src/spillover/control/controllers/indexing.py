"""Indexes events by job, so that the server reads the history of one job without the whole journal.

The index lags behind the journal. New events come from memory. Events that an earlier server did not index come from
the journal.
"""

import asyncio
import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import structlog

from spillover.control.live.loop import Loop
from spillover.control.live.slices import SLICE
from spillover.core.events import AnyEvent
from spillover.ports.journal import Journal, Mentions, StoreError, mark_of
from spillover.wire.journal import decode_event

log = structlog.get_logger()

SPAN: Final = 10_000
"""Events in one span of the index; fewer slow down the search for a job, more leave a longer tail unindexed."""
RETRY: Final = 2.0
PARTS: Final = 64
"""Parts in which to sort entries, so that each takes little time."""
_PART: Final = 64 - 6


class Indexing:
    """Follows the journal and indexes its events."""

    def __init__(self, loop: Loop, journal: Journal, span: int = SPAN) -> None:
        self._loop = loop
        self._journal = journal
        self._span = span
        self._after: int | None = None
        """Revision after which all events are in memory; None while some must be read first."""
        self._at_hand: list[Sequence[AnyEvent]] = []
        self._last = 0
        """Revision of the last event in memory."""
        self._enough = asyncio.Event()
        loop.listen(self._see)

    def _see(self, revision: int, events: Sequence[AnyEvent]) -> None:
        if self._after is None:
            return
        if self._last != revision - len(events):  # the state was reloaded in between
            self._forget()
            return
        self._at_hand.append(events)
        self._last = revision
        if self._last - self._after >= self._span:
            self._enough.set()

    async def run(self) -> None:
        """Index events as they become durable, until cancelled."""
        while True:
            if self._loop.problem is not None:
                await asyncio.sleep(RETRY)
                continue
            try:
                await self.catch_up()
                await self._enough.wait()
                await self.some()
            except StoreError as error:
                log.warning("cannot index history; will retry", error=str(error))
                self._forget()
                await asyncio.sleep(RETRY)

    async def catch_up(self) -> None:
        """Index what an earlier server left, until less than a span is left; from then on events come from memory."""
        while self._after is None:
            after, durable = await self._journal.indexed(), self._loop.gate.durable
            if durable - after >= self._span:
                await self._write(after, after + self._span, [await self._read(after, after + self._span)])
                continue
            self._after, self._last, self._at_hand = after, durable, []  # `_see` adds events now
            left = await self._read(after, durable)
            if self._after is not None:  # else `_see` noticed a reload meanwhile
                self._at_hand.insert(0, left)

    async def some(self) -> None:
        """Index the events in memory."""
        self._enough.clear()
        if self._after is None:
            return
        after, last, batches = self._after, self._last, self._at_hand
        self._after, self._at_hand = last, []
        await self._write(after, last, batches)

    async def _read(self, after: int, upto: int) -> list[AnyEvent]:
        """Read events from the journal."""
        if upto <= after:
            return []
        return [decode_event(each.event) async for each in self._journal.tail(after, upto - after)]

    async def _write(self, after: int, upto: int, batches: Sequence[Sequence[AnyEvent]]) -> None:
        """Index the events between two revisions; in slices, as one event may be about a million jobs."""
        first = upto - sum(map(len, batches)) + 1 - after  # compaction may have deleted the oldest meanwhile
        entries = _entries(itertools.chain(*batches), first)
        parts: list[array[int]] = [array("Q") for _ in range(PARTS)]
        while some := list(itertools.islice(entries, SLICE)):
            for entry in some:
                parts[entry >> _PART].append(entry)
            await asyncio.sleep(0)
        whole: array[int] = array("Q")
        for part in parts:
            whole.extend(array("Q", sorted(part)))
            if len(part) > SLICE // PARTS:
                await asyncio.sleep(0)
        await self._journal.index(Mentions(after, upto, whole), self._loop.epoch)

    def _forget(self) -> None:
        """Drop the events in memory, and start again from the last indexed revision."""
        self._after, self._at_hand = None, []
        self._enough.set()


def _entries(events: Iterable[AnyEvent], first: int) -> Iterator[int]:
    """Yield index entries of events with numbers from `first` on; see Mentions."""
    for number, event in enumerate(events, first):
        for job in event.about():
            yield mark_of(job) << 32 | number
            if "." in job:  # a member, whose events also belong to the history of its array
                yield mark_of(job.partition(".")[0]) << 32 | number
