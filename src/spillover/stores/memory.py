"""Implements the store in memory: a minimal reference for the ports, used by tests and simulations.

A `Shelf` holds the data. Several stores on one shelf act like several servers on one database.
"""

import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from spillover.model.budget import CostBy
from spillover.model.ids import JobId
from spillover.ports.archive import (
    Finished,
    ProjectKey,
    Query,
    Spent,
    UsageQuery,
    Used,
    listed,
    spells,
    summed,
)
from spillover.ports.audit import AuditEntry, AuditQuery
from spillover.ports.election import Holder
from spillover.ports.journal import Batch, Changed, Loaded, Mentions, Record, Stored
from spillover.ports.outbox import Message, OutboxQuery, Waiting
from spillover.ports.secrets import SealedSecret, StoredSecret
from spillover.stores.mentions import bucket_of, check_indexed, mention_rows, revisions
from spillover.stores.rows import (
    COST_BY_ROW,
    BatchRow,
    check_audited,
    check_checkpoint,
    check_epoch,
    check_noted,
    check_tip,
    cost_rows,
    encode_events,
    spent_from,
)
from spillover.stores.store import TERM, Store
from spillover.stores.tail import read_records, read_tail
from spillover.stores.watch import Watch


class Shelf:
    """The data of a store."""

    def __init__(self) -> None:
        self.epoch = 0
        self.holder: Holder | None = None
        self.renewal = 0
        """Counts the renewals of an epoch, so that contenders see that the holder is alive."""
        self.batches: dict[int, BatchRow] = {}
        """By first revision, oldest first."""
        self.last = 0
        self.checkpoint = 0
        self.records: dict[tuple[str, str], bytes] = {}
        self.staged: dict[tuple[str, str], bytes | None] = {}
        """Records of the next checkpoint."""
        self.mentions: list[Mentions] = []
        """Spans of the index of events by job, oldest first."""
        self.indexed = 0
        self.blobs: dict[bytes, tuple[int, bytes]] = {}
        """By digest: the newest revision that named the blob, and its content."""
        self.finished: dict[JobId, Finished] = {}
        self.audit: list[AuditEntry] = []
        """Oldest first."""
        self.audited = 0
        self.secrets: dict[tuple[str, str, int], SealedSecret] = {}
        self.outbox: dict[str, Message] = {}
        self.noted = 0


class MemoryJournal:
    """The journal in a dict."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """See Journal."""
        shelf = self._shelf
        check_epoch(shelf.epoch, epoch)
        last = after + len(batch.events)
        row = (after + 1, last, batch.at, epoch, encode_events(batch.events))
        if shelf.last > after and shelf.batches.get(after + 1) == row:
            return last
        check_tip(shelf.last, after)
        if batch.events:
            shelf.batches[after + 1] = row
            shelf.last = last
        shelf.blobs.update((digest, (last, blob)) for digest, blob in batch.blobs.items())
        return last

    async def load(self) -> Loaded:
        """See Journal."""
        shelf = self._shelf
        return Loaded(checkpoint=shelf.checkpoint, count=len(shelf.records), last=shelf.last)

    async def records(self, checkpoint: int) -> AsyncIterator[Sequence[Record]]:
        """See Journal."""
        shelf = self._shelf
        keys = sorted(shelf.records)

        async def page(kind: str, key: str, rows: int) -> tuple[int, list[Record]]:
            start = bisect_right(keys, (kind, key))
            some = [each for each in keys[start : start + rows] if each in shelf.records]
            return shelf.checkpoint, [(*each, shelf.records[each]) for each in some]

        async for some in read_records(page, checkpoint):
            yield some

    async def tail(self, after: int, limit: int | None = None) -> AsyncIterator[Stored]:
        """See Journal."""

        async def page(due: int, end: int, rows: int) -> list[BatchRow]:
            found = (row for row in self._shelf.batches.values() if row[1] >= due and row[0] <= end)
            return list(islice(found, rows))

        async for stored in read_tail(page, after, self._shelf.last, limit):
            yield stored

    async def oldest(self) -> int:
        """See Journal."""
        return next(iter(self._shelf.batches), self._shelf.last + 1)

    async def checkpoint(self, changed: Changed, epoch: int) -> None:
        """See Journal."""
        shelf = self._shelf
        check_epoch(shelf.epoch, epoch)
        check_checkpoint(changed.revision, shelf.checkpoint, shelf.last)
        staged, shelf.staged = shelf.staged, {}
        for key, body in {**(staged if changed.staged else {}), **changed.records}.items():
            if body is None:
                shelf.records.pop(key, None)
            else:
                shelf.records[key] = body
        shelf.checkpoint = changed.revision

    async def stage(self, records: Mapping[tuple[str, str], bytes | None], epoch: int, *, anew: bool) -> None:
        """See Journal."""
        shelf = self._shelf
        check_epoch(shelf.epoch, epoch)
        if anew:
            shelf.staged = {}
        shelf.staged.update(records)

    async def index(self, mentions: Mentions, epoch: int) -> None:
        """See Journal."""
        shelf = self._shelf
        check_epoch(shelf.epoch, epoch)
        check_indexed(shelf.indexed, mentions, shelf.last)
        shelf.mentions.append(mentions)
        shelf.indexed = mentions.upto

    async def indexed(self) -> int:
        """See Journal."""
        return self._shelf.indexed

    async def mentioned(self, mark: int, after: int) -> list[int]:
        """See Journal."""
        oldest = await self.oldest()
        rows = [
            (first, body)
            for span in self._shelf.mentions
            for bucket, first, _, body in mention_rows(span)
            if bucket == bucket_of(mark)
        ]
        return revisions(rows, mark, max(after, oldest - 1))

    async def compact(self, upto: int, epoch: int) -> int:
        """See Journal."""
        shelf = self._shelf
        check_epoch(shelf.epoch, epoch)
        bound = min(upto, shelf.checkpoint)
        gone = [row for row in shelf.batches.values() if row[1] <= bound]
        for row in gone:
            del shelf.batches[row[0]]
            shelf.indexed = max(shelf.indexed, row[1])
        shelf.mentions = [span for span in shelf.mentions if not gone or span.upto > gone[-1][1]]
        return sum(last - first + 1 for first, last, *_ in gone)

    async def blobs(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """See Journal."""
        there = self._shelf.blobs
        return {digest: there[digest][1] for digest in digests if digest in there}

    async def forget_blobs(self, keep: Container[bytes], epoch: int) -> int:
        """See Journal."""
        shelf = self._shelf
        check_epoch(shelf.epoch, epoch)
        archived = {job.spec for job in shelf.finished.values()}
        gone = [
            digest
            for digest, (revision, _) in shelf.blobs.items()
            if revision <= shelf.checkpoint and digest not in keep and digest not in archived
        ]
        for digest in gone:
            del shelf.blobs[digest]
        return len(gone)

    async def close(self) -> None:
        """Do nothing, because there is nothing to close."""


class MemoryElection:
    """One contender for the lead on a shelf."""

    def __init__(self, shelf: Shelf, term: float, monotonic: Callable[[], float]) -> None:
        self.term = term
        self._shelf = shelf
        self._watch = Watch(term, monotonic)
        self._epoch = 0
        """The last epoch that this contender took; 0 if none."""

    async def campaign(self, name: str, url: str, least: int = 0) -> int | Holder:
        """See Election."""
        shelf = self._shelf
        if (
            shelf.holder is not None
            and shelf.epoch != self._epoch
            and not self._watch.expired(shelf.epoch, shelf.renewal)
        ):
            return shelf.holder
        shelf.epoch = max(shelf.epoch + 1, least)
        shelf.renewal = 0
        shelf.holder = Holder(name=name, url=url, epoch=shelf.epoch)
        self._epoch = shelf.epoch
        return shelf.epoch

    async def renew(self, epoch: int) -> bool:
        """See Election."""
        if self._shelf.epoch != epoch or self._shelf.holder is None:
            return False
        self._shelf.renewal += 1
        return True

    async def resign(self, epoch: int) -> None:
        """See Election."""
        if self._shelf.epoch == epoch:
            self._shelf.holder = None

    async def holder(self) -> Holder | None:
        """See Election."""
        return self._shelf.holder


class MemoryArchive:
    """The archive in a dict."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def put(self, jobs: Sequence[Finished], epoch: int) -> None:
        """See Archive."""
        check_epoch(self._shelf.epoch, epoch)
        self._shelf.finished.update((job.job, job) for job in jobs)

    async def get(self, job: JobId) -> Finished | None:
        """See Archive."""
        return self._shelf.finished.get(job)

    async def some(self, jobs: Sequence[JobId]) -> dict[JobId, Finished]:
        """See Archive."""
        return {job: row for job in jobs if (row := self._shelf.finished.get(job)) is not None}

    async def find(self, prefix: str, limit: int, project: str | None = None) -> list[JobId]:
        """See Archive."""
        members = "." in prefix
        found = (
            job
            for job in _newest(self._shelf)
            if job.job.startswith(prefix)
            and (members or "." not in job.job)
            and project in {None, job.project}
        )
        return [job.job for job in islice(found, limit)]

    async def keyed(self, keys: Sequence[ProjectKey]) -> dict[ProjectKey, Finished]:
        """See Archive."""
        wanted = set(keys)
        return {
            (job.project, job.key): job
            for job in reversed(_newest(self._shelf))
            if job.key is not None and (job.project, job.key) in wanted
        }

    async def list(self, query: Query) -> list[Finished]:
        """See Archive."""
        found = (job for job in _newest(self._shelf) if _matches(job, query))
        return list(islice(found, query.limit))

    async def costs(
        self, by: CostBy, since: int | None, without: Sequence[str], project: str | None = None
    ) -> Sequence[Spent]:
        """See Archive."""
        left_out = set(without)
        found: dict[str | int, tuple[int, set[str]]] = {}
        for row in cost_rows(self._shelf.finished.values()):
            ours = project in {None, row[2]}
            if ours and row[0] not in left_out and (since is None or row[1] >= since):
                amount, jobs = found.setdefault(COST_BY_ROW[by](row), (0, set()))
                jobs.add(row[0])
                found[COST_BY_ROW[by](row)] = amount + row[5], jobs
        return [spent_from(by, key, amount, len(jobs)) for key, (amount, jobs) in sorted(found.items())]

    async def usage(self, query: UsageQuery) -> Sequence[Used]:
        """See Archive."""
        left_out = set(query.without)
        found = [
            spell
            for job in self._shelf.finished.values()
            if job.job not in left_out
            and query.project in {None, job.project}
            and (query.array is None or job.job.startswith(f"{query.array}."))
            for spell in spells(job)
            if query.since is None or spell.at >= query.since
        ]
        return summed(query.by, found)

    async def count(self) -> int:
        """See Archive."""
        return len(self._shelf.finished)

    async def forget(self, before: int, epoch: int, but: Collection[int] = ()) -> int:
        """See Archive."""
        check_epoch(self._shelf.epoch, epoch)
        finished = self._shelf.finished.values()
        gone = [job.job for job in finished if job.finished < before and job.number not in but]
        for job in gone:
            del self._shelf.finished[job]
        return len(gone)


class MemoryAudit:
    """The audit in a list."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def audited(self) -> int:
        """See Audit."""
        return self._shelf.audited

    async def put(self, after: int, upto: int, entries: Sequence[AuditEntry], epoch: int) -> None:
        """See Audit."""
        check_epoch(self._shelf.epoch, epoch)
        check_audited(self._shelf.audited, after, upto, self._shelf.last)
        self._shelf.audit.extend(entries)
        self._shelf.audited = upto

    async def list(self, query: AuditQuery) -> list[AuditEntry]:
        """See Audit."""
        return list(islice(filter(query.selects, reversed(self._shelf.audit)), query.limit))

    async def forget(self, before: int, epoch: int) -> int:
        """See Audit."""
        check_epoch(self._shelf.epoch, epoch)
        kept = [entry for entry in self._shelf.audit if entry.at >= before]
        gone = len(self._shelf.audit) - len(kept)
        self._shelf.audit = kept
        return gone


class MemorySecrets:
    """The encrypted values in a dict."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def put(self, sealed: SealedSecret, epoch: int) -> None:
        """See Secrets."""
        check_epoch(self._shelf.epoch, epoch)
        one = sealed.stored
        self._shelf.secrets[one.project, one.name, one.version] = sealed

    async def get(self, project: str, name: str, version: int) -> SealedSecret | None:
        """See Secrets."""
        return self._shelf.secrets.get((project, name, version))

    async def list(self) -> list[StoredSecret]:
        """See Secrets."""
        return [self._shelf.secrets[each].stored for each in sorted(self._shelf.secrets)]

    async def forget(self, versions: Sequence[StoredSecret], epoch: int) -> None:
        """See Secrets."""
        check_epoch(self._shelf.epoch, epoch)
        for each in versions:
            self._shelf.secrets.pop((each.project, each.name, each.version), None)


class MemoryOutbox:
    """The outbox in a dict."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def noted(self) -> int:
        """See Outbox."""
        return self._shelf.noted

    async def put(self, after: int, upto: int, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        check_epoch(self._shelf.epoch, epoch)
        check_noted(self._shelf.noted, after, upto, self._shelf.last)
        await self.add(messages, epoch)
        self._shelf.noted = upto

    async def add(self, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        check_epoch(self._shelf.epoch, epoch)
        for each in messages:
            self._shelf.outbox.setdefault(each.id, each)

    async def next(self, channel: str, limit: int, after: tuple[int, str] = (-1, "")) -> list[Message]:
        """See Outbox."""
        wanted = [
            each
            for each in self._shelf.outbox.values()
            if each.channel == channel and not each.failed and _written(each) > after
        ]
        return sorted(wanted, key=_written)[:limit]

    async def page(self, query: OutboxQuery) -> list[Message]:
        """See Outbox."""
        found = [
            each
            for each in self._shelf.outbox.values()
            if query.failed in {None, each.failed}
            and (query.before is None or (each.at, each.id) < query.before)
        ]
        return sorted(found, key=_written, reverse=True)[: query.limit]

    async def some(self, ids: Sequence[str]) -> list[Message]:
        """See Outbox."""
        return [self._shelf.outbox[each] for each in ids if each in self._shelf.outbox]

    async def change(self, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        check_epoch(self._shelf.epoch, epoch)
        for each in messages:
            if (known := self._shelf.outbox.get(each.id)) is not None:
                self._shelf.outbox[each.id] = replace(
                    known, due=each.due, tries=each.tries, failed=each.failed, error=each.error
                )

    async def remove(self, ids: Sequence[str], epoch: int) -> None:
        """See Outbox."""
        check_epoch(self._shelf.epoch, epoch)
        for each in ids:
            self._shelf.outbox.pop(each, None)

    async def counts(self) -> list[Waiting]:
        """See Outbox."""
        found: dict[str, tuple[int, int]] = {}
        for each in self._shelf.outbox.values():
            waiting, failed = found.get(each.channel, (0, 0))
            found[each.channel] = (waiting + (not each.failed), failed + each.failed)
        return [Waiting(channel, *found[channel]) for channel in sorted(found)]

    async def forget(self, before: int, most: int, epoch: int) -> int:
        """See Outbox."""
        check_epoch(self._shelf.epoch, epoch)
        failed = sorted(
            [each for each in self._shelf.outbox.values() if each.failed], key=_written, reverse=True
        )
        gone = [each.id for at, each in enumerate(failed) if each.due < before or at >= most]
        await self.remove(gone, epoch)
        return len(gone)


def _written(message: Message) -> tuple[int, str]:
    return message.at, message.id


def _newest(shelf: Shelf) -> list[Finished]:
    """Return all ended jobs in the order of lists."""
    return sorted(shelf.finished.values(), key=lambda job: listed(job.number, job.job))


def _matches(job: Finished, query: Query) -> bool:
    """Return whether a job matches a query."""
    return (
        (query.members or "." not in job.job)
        and (query.state is None or job.state == query.state)
        and (query.project is None or job.project == query.project)
        and (query.user is None or job.user == query.user)
        and (query.name is None or job.name == query.name)
        and (query.queue is None or job.queue == query.queue)
        and (query.number is None or job.number == query.number)
        and (query.since is None or job.submitted >= query.since)
        and (query.until is None or job.submitted < query.until)
        and (query.ended_since is None or job.finished >= query.ended_since)
        and (query.before is None or listed(job.number, job.job) > listed(*query.before))
    )


def open_memory(
    shelf: Shelf | None = None, term: float = TERM, monotonic: Callable[[], float] = time.monotonic
) -> Store:
    """Open a store on a shelf, by default on a new one."""
    shelf = Shelf() if shelf is None else shelf
    return Store(
        journal=MemoryJournal(shelf),
        election=MemoryElection(shelf, term, monotonic),
        archive=MemoryArchive(shelf),
        audit=MemoryAudit(shelf),
        secrets=MemorySecrets(shelf),
        outbox=MemoryOutbox(shelf),
    )
