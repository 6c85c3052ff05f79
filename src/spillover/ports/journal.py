"""Where history is kept.

`append` is one atomic, durable commit: the epoch is checked, events and blobs are written, or nothing is. `after` makes a retry
safe: if the journal already ends past it with the very same batch, the answer is the one that was lost.
"""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import Protocol, TypeAlias
from zlib import crc32

from msgspec import Struct


class Batch(Struct, frozen=True):
    """Events that become durable together, each already encoded, and the blobs that they refer to."""

    at: int
    """Nanoseconds UTC when it was decided."""
    events: tuple[bytes, ...]
    blobs: Mapping[bytes, bytes] = {}
    """By digest."""


class Stored(Struct, frozen=True):
    """One event as it is read back."""

    revision: int
    """Counts events from 1."""
    at: int
    event: bytes


class Changed(Struct, frozen=True):
    """Records of the state that differ from the last checkpoint; None means it is gone."""

    revision: int
    """The state is what it was after this event."""
    records: Mapping[tuple[str, str], bytes | None]
    """By kind and key."""
    staged: bool = False
    """Whether those that were staged belong to it; what is here as well is newer."""


class Mentions(Struct, frozen=True):
    """Which events of a span are about which jobs."""

    after: int
    upto: int
    """Revision of the last event of the span."""
    entries: Sequence[int]
    """For each event and job of it: the mark of the job (32 bits), then by how much its revision is past `after` (32 bits); sorted."""


Record: TypeAlias = tuple[str, str, bytes]
"""Kind, key, body."""


class Loaded(Struct, frozen=True):
    """What a server starts from: the last checkpoint, read with `records`; what came after it is read with `tail`."""

    checkpoint: int
    """0 if there is none."""
    count: int
    """Records of the checkpoint, about: some may be on their way to their place."""
    last: int
    """Revision of the newest event; 0 for an empty journal."""


def mark_of(job: str) -> int:
    """What stands for a job in the index of events: 32 bits, which other jobs may share."""
    return crc32(job.encode())


class StoreError(Exception):
    """Base of what a store can answer instead of doing it."""


class Fenced(StoreError):
    """A newer epoch has begun: step down. Nothing was written."""


class Moved(StoreError):
    """The store is not where its caller believes it to be. Nothing was written; load again.

    The journal does not end at `after`, or events were forgotten while they were read.
    """


class Unwritable(StoreError):
    """The store cannot be written now (disk full, read-only, connection lost). Whether the batch was written is unknown."""


class Unreadable(StoreError):
    """The store cannot be read now: the connection is lost, or the file is damaged or not ours."""


class Damaged(StoreError):
    """The store was read, and something in it cannot be understood: it was written by other software, or by a fault of ours."""

    def __init__(self, what: str, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(
            f"{what} cannot be read ({why}); `spill doctor` checks the data folder: "
            "mend it, or restore a backup (docs/operations.md)"
        )


class TooNew(StoreError):
    """The data were written by a newer version of the software, which must be used."""


class Journal(Protocol):
    """The durable history."""

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """Make a batch durable right after revision `after`; returns the revision of its last event."""
        ...

    async def load(self) -> Loaded:
        """Where the last checkpoint is and where the journal ends."""
        ...

    def records(self, checkpoint: int) -> AsyncIterator[Sequence[Record]]:
        """The records of a checkpoint, page by page, in the order of kind and key.

        Raises Moved if another checkpoint replaces it meanwhile: there is never a mixture of two.
        """
        ...

    def tail(self, after: int, limit: int | None = None) -> AsyncIterator[Stored]:
        """Events after a revision, oldest first, that are durable when asked; starts at the oldest kept one.

        Raises Moved if a compaction overtakes the reader: there is never a silent gap.
        """
        ...

    async def oldest(self) -> int:
        """Revision of the oldest event that is still kept, or one past the end when none is."""
        ...

    async def checkpoint(self, changed: Changed, epoch: int) -> None:
        """Replace the records that changed, in one commit; raises Fenced under a newer epoch."""
        ...

    async def stage(self, records: Mapping[tuple[str, str], bytes | None], epoch: int, *, anew: bool) -> None:
        """Write records of the next checkpoint ahead of it, as one commit of many would hold up appends; they count once it is there.

        `anew` begins a checkpoint: what was staged for one that never came is dropped.
        """
        ...

    async def index(self, mentions: Mentions, epoch: int) -> None:
        """Add a span to the index of events by job, right after where that ends; raises Moved elsewhere."""
        ...

    async def indexed(self) -> int:
        """Revision up to which events are in that index."""
        ...

    async def mentioned(self, mark: int, after: int) -> Sequence[int]:
        """Revisions past `after`, in order, of events that may be about the job of a mark: all that are indexed and kept."""
        ...

    async def compact(self, upto: int, epoch: int) -> int:
        """Forget whole batches up to a revision, never past the checkpoint; returns how many events went.

        What ended is in the archive before the state drops it, so the checkpoint is bound enough for both.
        """
        ...

    async def blobs(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The blobs that are there."""
        ...

    async def forget_blobs(self, keep: Container[bytes], epoch: int) -> int:
        """Drop blobs that neither `keep`, the archive nor a batch after the checkpoint refers to; returns how many."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...
