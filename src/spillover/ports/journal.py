"""The journal: durable history, checkpoints and specs.

`append` is one atomic, durable commit: it checks the epoch and writes events and blobs, or writes nothing. `after`
makes a retry safe: if the journal already continues after it with the same batch, `append` returns the answer that
was lost.
"""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import Protocol, TypeAlias
from zlib import crc32

from msgspec import Struct


class Batch(Struct, frozen=True):
    """Encoded events that become durable together, and the blobs that they refer to."""

    at: int
    """When the events were decided, nanoseconds UTC."""
    events: tuple[bytes, ...]
    blobs: Mapping[bytes, bytes] = {}
    """Content by digest."""


class Stored(Struct, frozen=True):
    """An event as read from the journal."""

    revision: int
    """Position in the journal, from 1."""
    at: int
    event: bytes


class Changed(Struct, frozen=True):
    """Records of the state that changed since the last checkpoint; None for a deleted one."""

    revision: int
    """The records are of the state after this event."""
    records: Mapping[tuple[str, str], bytes | None]
    """By kind and key."""
    staged: bool = False
    """Whether the staged records belong to it; those in `records` are newer."""


class Mentions(Struct, frozen=True):
    """Index of a span of events by job."""

    after: int
    upto: int
    """Revision of the last event in the span."""
    entries: Sequence[int]
    """Sorted; for each event and each job in it, the mark of the job (32 bits) and revision minus `after` (32 bits)."""


Record: TypeAlias = tuple[str, str, bytes]
"""Kind, key, body."""


class Loaded(Struct, frozen=True):
    """What a server starts from: `records` reads the last checkpoint, and `tail` the events after it."""

    checkpoint: int
    """Revision of the last checkpoint; 0 if there is none."""
    count: int
    """Approximate number of records in the checkpoint, as the store may still merge staged ones."""
    last: int
    """Revision of the last event; 0 for an empty journal."""


def mark_of(job: str) -> int:
    """Return the mark of a job in the index: 32 bits, which other jobs may share."""
    return crc32(job.encode())


class StoreError(Exception):
    """Base class of errors of a store."""


class Fenced(StoreError):
    """A newer epoch has begun: step down. Nothing was written."""


class Moved(StoreError):
    """The store is not at the revision that the caller expects. Nothing was written; load again.

    Either the journal does not end at `after`, or a compaction deleted events while they were read.
    """


class Unwritable(StoreError):
    """The store cannot be written now (disk full, read-only, connection lost). The batch may have been written."""


class Unreadable(StoreError):
    """The store cannot be read now: the connection is lost, or the file is damaged or not a store."""


class Damaged(StoreError):
    """The store was read, but its content is not valid: other software or a bug wrote it."""

    def __init__(self, what: str, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(
            f"{what} cannot be read ({why}); check the data folder with `spill doctor`; "
            "repair it, or restore a backup (docs/operations.md)"
        )


class TooNew(StoreError):
    """A newer version of the software wrote the data, and only that can read it."""


class Journal(Protocol):
    """The durable history."""

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """Write a batch right after revision `after`; return the revision of its last event once it is durable."""
        ...

    async def load(self) -> Loaded:
        """Return the revisions of the last checkpoint and of the last event."""
        ...

    def records(self, checkpoint: int) -> AsyncIterator[Sequence[Record]]:
        """Yield the records of a checkpoint in pages, in the order of kind and key.

        Raises Moved if another checkpoint replaces it meanwhile, so the records are never a mixture of two.
        """
        ...

    def tail(self, after: int, limit: int | None = None) -> AsyncIterator[Stored]:
        """Yield durable events after a revision, oldest first; starts at the oldest kept one.

        Raises Moved if a compaction overtakes the reader, so there is never a silent gap.
        """
        ...

    async def oldest(self) -> int:
        """Return the revision of the oldest kept event; one after the end if there is none."""
        ...

    async def checkpoint(self, changed: Changed, epoch: int) -> None:
        """Replace the changed records in one commit; raise Fenced under a newer epoch."""
        ...

    async def stage(self, records: Mapping[tuple[str, str], bytes | None], epoch: int, *, anew: bool) -> None:
        """Write some records of the next checkpoint before its commit, as one large commit would delay appends.

        Staged records count only once the checkpoint is committed. `anew` starts a checkpoint, and drops records that
        were staged for one that was never committed.
        """
        ...

    async def index(self, mentions: Mentions, epoch: int) -> None:
        """Add a span to the index of events by job; raise Moved unless it starts where the index ends."""
        ...

    async def indexed(self) -> int:
        """Return the last indexed revision."""
        ...

    async def mentioned(self, mark: int, after: int) -> Sequence[int]:
        """Return, sorted, revisions after `after` of kept and indexed events that may be about a job with this mark."""
        ...

    async def compact(self, upto: int, epoch: int) -> int:
        """Delete whole batches up to a revision, but never after the checkpoint; return the number of deleted events.

        An ended job is in the archive before the state drops it, so this limit protects both.
        """
        ...

    async def blobs(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the blobs that exist."""
        ...

    async def forget_blobs(self, keep: Container[bytes], epoch: int) -> int:
        """Delete blobs that neither `keep`, the archive nor a batch after the checkpoint refers to; return how many."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...
