"""Keeps the store small and a restart fast: checkpoints, compaction, retention."""

import asyncio
from typing import Final

import structlog
from msgspec import Struct

from spillover.control.loop import Loop
from spillover.model.units import DAY, SECOND
from spillover.ports.archive import Archive
from spillover.ports.commands import CommandError
from spillover.ports.journal import Journal, StoreError

log = structlog.get_logger()

EVERY: Final = 0.5
"""Seconds between two looks."""
DIRTY: Final = 5_000
"""Changed records that ask for a checkpoint at once: more would make it long."""
OLDEST: Final = 30 * SECOND
"""Nanoseconds after which any change asks for one: a restart replays no more than this."""
SWEEP: Final = 3600 * SECOND
"""Nanoseconds between two sweeps of what is past its retention."""


class Retention(Struct, frozen=True):
    """How long ended things are kept, in nanoseconds."""

    jobs: int = 90 * DAY
    events: int = 7 * DAY


class Keeping:
    """Writes checkpoints as the state changes, and forgets what is old."""

    def __init__(self, loop: Loop, journal: Journal, archive: Archive, retention: Retention) -> None:
        self._loop = loop
        self._journal = journal
        self._archive = archive
        self._retention = retention
        self._checkpoint_at = loop.time.monotonic()
        self._swept_at = loop.time.monotonic() - SWEEP

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            if self._loop.problem is None:
                try:
                    await self.look()
                except (StoreError, CommandError) as error:
                    log.warning("could not tidy the store; will try again", error=str(error))

    async def look(self) -> None:
        """Do what is due."""
        now, dirty = self._loop.time.monotonic(), self._loop.state.dirty.count
        if dirty >= DIRTY or (dirty and now - self._checkpoint_at >= OLDEST):
            await self._loop.checkpoints.write()
            self._checkpoint_at = now
        if now - self._swept_at >= SWEEP:
            self._swept_at = now
            await self.sweep()

    async def sweep(self) -> None:
        """Forget what is past its retention."""
        now, epoch = self._loop.now(), self._loop.epoch
        jobs = await self._archive.forget(now - self._retention.jobs, epoch)
        events = await self._journal.compact(await self._last_before(now - self._retention.events), epoch)
        blobs = await self._loop.checkpoints.forget_blobs()
        if jobs or events or blobs:
            log.info("forgot what is past its retention", jobs=jobs, events=events, blobs=blobs)

    async def _last_before(self, time: int) -> int:
        """Revision up to which events are older than a time, found by halves: their times never fall."""
        older, last = await self._journal.oldest() - 1, self._loop.gate.durable
        while older < last:
            middle = (older + last + 1) // 2
            found = [each async for each in self._journal.tail(middle - 1, 1)]
            if found and found[0].at < time:
                older = middle
            else:
                last = middle - 1
        return older
