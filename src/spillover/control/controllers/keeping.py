"""Writes checkpoints, compacts the journal and applies retention, for a small store and a fast restart."""

import asyncio
from typing import Final

import structlog
from msgspec import Struct

from spillover.control.controllers.sources import Sources
from spillover.control.live.loop import Loop
from spillover.control.views.history import last_before
from spillover.core.pool_proposals import DropMachineCosts
from spillover.model.units import DAY, SECOND
from spillover.ports.archive import Archive
from spillover.ports.audit import Audit
from spillover.ports.commands import CommandError
from spillover.ports.journal import Journal, StoreError
from spillover.ports.outbox import Outbox

log = structlog.get_logger()

EVERY: Final = 0.5
"""Seconds between two checks."""
DIRTY: Final = 5_000
"""Changed records that trigger a checkpoint; more would take long to write."""
OLDEST: Final = 30 * SECOND
"""Nanoseconds after which any change triggers a checkpoint; limits what a restart replays."""
SWEEP: Final = 3600 * SECOND
"""Nanoseconds between two sweeps of expired data."""


class Retention(Struct, frozen=True):
    """How long ended jobs, events and what people did are kept, in nanoseconds."""

    jobs: int = 90 * DAY
    events: int = 7 * DAY
    audit: int = 365 * DAY


class Keeping:
    """Writes checkpoints as the state changes, and deletes expired data."""

    def __init__(
        self,
        loop: Loop,
        journal: Journal,
        archive: Archive,
        audit: Audit,
        retention: Retention,
        sources: Sources | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._archive = archive
        self._audit = audit
        self._retention = retention
        self._sources = sources
        """Jobs that others take files from; None if there are none."""
        self._outbox = outbox
        """Messages to people; None if nobody is told of anything."""
        self._checkpoint_at = loop.time.monotonic()
        self._swept_at = loop.time.monotonic() - SWEEP

    async def run(self) -> None:
        """Check regularly what is due, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            if self._loop.problem is None:
                try:
                    await self.look()
                except (StoreError, CommandError) as error:
                    log.warning("cannot clean up the store; will retry", error=str(error))

    async def look(self) -> None:
        """Write a checkpoint and sweep, if they are due."""
        now, dirty = self._loop.time.monotonic(), self._loop.state.dirty.count
        if dirty >= DIRTY or (dirty and now - self._checkpoint_at >= OLDEST):
            await self._loop.checkpoints.write()
            self._checkpoint_at = now
        if now - self._swept_at >= SWEEP:
            self._swept_at = now
            await self.sweep()

    async def sweep(self) -> None:
        """Delete jobs, events and blobs past their retention, and what machines cost on days before that."""
        now, epoch = self._loop.now(), self._loop.epoch
        if self._loop.state.spends:
            await self._loop.propose(DropMachineCosts(now - self._retention.jobs))
        taken = () if self._sources is None else await self._sources.numbers()
        jobs = await self._archive.forget(now - self._retention.jobs, epoch, taken)
        audit = await self._audit.forget(now - self._retention.audit, epoch)
        old = await last_before(self._journal, now - self._retention.events, self._loop.gate.durable)
        # What people did stays in the journal until it is in the audit, and what they are told of until it is written.
        seen = await self._audit.audited()
        if self._outbox is not None:
            seen = min(seen, await self._outbox.noted())
        events = await self._journal.compact(min(old, seen), epoch)
        blobs = await self._loop.checkpoints.forget_blobs()
        if jobs or events or blobs or audit:
            log.info("deleted data past its retention", jobs=jobs, events=events, blobs=blobs, audit=audit)
