"""Keeps the index of events by job, some while behind the journal: the history of one job is found without reading all of it.

Events that just became durable are at hand. Those that an earlier server did not get to, or an older version did not index at all,
are read from the journal.
"""

import asyncio
import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import structlog

from spillover.control.loop import Loop
from spillover.control.slices import SLICE
from spillover.core.events import AnyEvent
from spillover.ports.journal import Journal, Mentions, StoreError, mark_of
from spillover.wire.journal import decode_event

log = structlog.get_logger()

SPAN: Final = 10_000
"""Events that are indexed together: with fewer, looking for a job takes longer; with more, more are read for want of an index."""
RETRY: Final = 2.0
PARTS: Final = 64
"""Entries are sorted in so many parts, each of which takes little time."""
_PART: Final = 64 - 6


class Indexing:
    """Follows the journal."""

    def __init__(self, loop: Loop, journal: Journal, span: int = SPAN) -> None:
        self._loop = loop
        self._journal = journal
        self._span = span
        self._after: int | None = None
        """The revision after which all events are at hand; None while some must be read first."""
        self._at_hand: list[Sequence[AnyEvent]] = []
        self._last = 0
        """Revision of the last of them."""
        self._enough = asyncio.Event()
        loop.listen(self._see)

    def _see(self, revision: int, events: Sequence[AnyEvent]) -> None:
        if self._after is None:
            return
        if self._last != revision - len(events):  # the state was loaded anew in between
            self._forget()
            return
        self._at_hand.append(events)
        self._last = revision
        if self._last - self._after >= self._span:
            self._enough.set()

    async def run(self) -> None:
        """Index what comes, until cancelled."""
        while True:
            if self._loop.problem is not None:
                await asyncio.sleep(RETRY)
                continue
            try:
                await self.catch_up()
                await self._enough.wait()
                await self.some()
            except StoreError as error:
                log.warning("could not index history; will try again", error=str(error))
                self._forget()
                await asyncio.sleep(RETRY)

    async def catch_up(self) -> None:
        """Index what an earlier server left, until the rest is not enough for a span; then events are taken as they come."""
        while self._after is None:
            after, durable = await self._journal.indexed(), self._loop.gate.durable
            if durable - after >= self._span:
                await self._write(after, after + self._span, [await self._read(after, after + self._span)])
                continue
            self._after, self._last, self._at_hand = after, durable, []  # what comes from here on is seen
            left = await self._read(after, durable)
            if self._after is not None:  # else it was lost again meanwhile
                self._at_hand.insert(0, left)

    async def some(self) -> None:
        """Index what is at hand."""
        self._enough.clear()
        if self._after is None:
            return
        after, last, batches = self._after, self._last, self._at_hand
        self._after, self._at_hand = last, []
        await self._write(after, last, batches)

    async def _read(self, after: int, upto: int) -> list[AnyEvent]:
        """Events from the journal."""
        if upto <= after:
            return []
        return [decode_event(each.event) async for each in self._journal.tail(after, upto - after)]

    async def _write(self, after: int, upto: int, batches: Sequence[Sequence[AnyEvent]]) -> None:
        """Index events that lie between two revisions; in parts, as an event may be about a million jobs."""
        first = upto - sum(map(len, batches)) + 1 - after  # the oldest may have been forgotten meanwhile
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
        """Begin anew with what is indexed."""
        self._after, self._at_hand = None, []
        self._enough.set()


def _entries(events: Iterable[AnyEvent], first: int) -> Iterator[int]:
    """Entries of events that are counted from a number on, see Mentions."""
    for number, event in enumerate(events, first):
        for job in event.about():
            yield mark_of(job) << 32 | number
            if "." in job:  # a member, whose history is that of its array as well
                yield mark_of(job.partition(".")[0]) << 32 | number
