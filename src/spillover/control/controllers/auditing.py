"""Writes what people did to the audit, which is kept for longer than events.

The audit lags behind the journal by a moment; `control/views/audit.py` reads the rest from the journal. New events come
from memory. Events that an earlier server did not look at come from the journal, which keeps them until then.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from spillover.control.live.loop import Loop
from spillover.core.events import AnyEvent
from spillover.core.state import State
from spillover.model.ids import JobId, split_member
from spillover.ports.archive import Archive
from spillover.ports.audit import Audit, AuditEntry
from spillover.ports.journal import Journal, StoreError
from spillover.wire.journal import decode_event

log = structlog.get_logger()

LINGER: Final = 1.0
"""Seconds to collect what people do, so that one commit writes many entries."""
SPAN: Final = 10_000
"""Events after which the audit moves on although nobody did anything; more would slow down its readers."""
RETRY: Final = 2.0


class Auditing:
    """Follows the journal and writes what people did."""

    def __init__(self, loop: Loop, journal: Journal, archive: Archive, audit: Audit) -> None:
        self._loop = loop
        self._journal = journal
        self._archive = archive
        self._audit = audit
        self._after: int | None = None
        """Revision after which all events were seen; None while some must be read first."""
        self._entries: list[AuditEntry] = []
        self._last = 0
        """Revision of the last event that was seen."""
        self._enough = asyncio.Event()
        loop.listen(self._see)

    def _see(self, revision: int, events: Sequence[AnyEvent]) -> None:
        if self._after is None:
            return
        first = revision - len(events) + 1
        if self._last != first - 1:  # the state was reloaded in between
            self._forget()
            return
        self._last = revision
        found = [
            entry_of(first + at, self._loop.published_at, event, who, self._loop.state)
            for at, event in enumerate(events)
            if (who := event.caused_by())
        ]
        self._entries += found
        if found or revision - self._after >= SPAN:
            self._enough.set()

    async def run(self) -> None:
        """Write what people do as it becomes durable, until cancelled."""
        while True:
            if self._loop.problem is not None:
                await asyncio.sleep(RETRY)
                continue
            try:
                await self.catch_up()
                await self._enough.wait()
                await asyncio.sleep(LINGER)
                await self.some()
            except StoreError as error:
                log.warning("cannot write the audit; will retry", error=str(error))
                self._forget()
                await asyncio.sleep(RETRY)

    async def catch_up(self) -> None:
        """Write what an earlier server left; from then on events come from memory."""
        while self._after is None:
            after, durable = await self._audit.audited(), self._loop.gate.durable
            if durable == after:
                self._after, self._last, self._entries = after, durable, []  # `_see` adds events now
                return
            upto = min(durable, after + SPAN)
            entries = await read_entries(self._journal, self._loop.state, after, upto)
            await self._write(after, upto, entries)

    async def some(self) -> None:
        """Write what was seen."""
        self._enough.clear()
        if self._after is None:
            return
        after, last, entries = self._after, self._last, self._entries
        self._after, self._entries = last, []
        await self._write(after, last, entries)

    async def _write(self, after: int, upto: int, entries: Sequence[AuditEntry]) -> None:
        found = await with_projects(entries, self._archive)
        await self._audit.put(after, upto, found, self._loop.epoch)

    def _forget(self) -> None:
        """Drop what was seen, and start again from where the audit ends."""
        self._after, self._entries = None, []
        self._enough.set()


def entry_of(revision: int, at: int, event: AnyEvent, who: str, state: State) -> AuditEntry:
    """Return what a person did. The project is empty if the event and the state do not have it."""
    ids = event.about()
    job = ids[0] if len(ids) == 1 else JobId("")
    project = event.of_project()
    if project is None and job:
        known = state.jobs.get(_whole(job))
        project = None if known is None else known.kind.project
    kind = str(event.__struct_config__.tag)
    return AuditEntry(revision, at, who, kind, job, project or "", str(event))


async def read_entries(journal: Journal, state: State, after: int, upto: int) -> list[AuditEntry]:
    """Return what people did between two revisions, from the journal."""
    found: list[AuditEntry] = []
    async for stored in journal.tail(after, upto - after):
        if stored.revision > upto:  # compaction deleted the first ones meanwhile
            break
        event = decode_event(stored.event)
        if who := event.caused_by():
            found.append(entry_of(stored.revision, stored.at, event, who, state))
    return found


async def with_projects(entries: Iterable[AuditEntry], archive: Archive) -> list[AuditEntry]:
    """Return entries with the projects of jobs that have left the state, from the archive."""
    entries = list(entries)
    unknown = {_whole(JobId(each.job)) for each in entries if each.job and not each.project}
    if not unknown:
        return entries
    known = await archive.some(list(unknown))
    return [
        replace(each, project=known[job].project)
        if each.job and not each.project and (job := _whole(JobId(each.job))) in known
        else each
        for each in entries
    ]


def _whole(job: JobId) -> JobId:
    """Return the array of a member, or else the job itself."""
    member = split_member(job)
    return job if member is None else member[0]
