"""Helpers for the conformance suites of stores: one suite for each port, run on every implementation.

The suites are `JournalSuite`, `ElectionSuite`, `ArchiveSuite` and `AuditSuite`, in the modules beside this one. Inherit from a suite
and give it a fixture `opener` that opens stores on one set of data and closes them:

    class TestJournal(JournalSuite):
        pass
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms
from spillover.model.resources import Resources
from spillover.ports.archive import Finished
from spillover.ports.journal import Batch, Journal, Record, Stored
from spillover.stores.store import TERM, Store


class Opener(Protocol):
    """Opens a store on the data of one test, each time as if for another server."""

    async def __call__(self, term: float = TERM, monotonic: Callable[[], float] = time.monotonic) -> Store:
        """Open a store, which the fixture closes after the test."""
        ...


class Watchface:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the seconds that the test has set."""
        return self.now


def a_batch(*events: bytes, at: int = 1, blobs: Mapping[bytes, bytes] | None = None) -> Batch:
    """Return a batch of events."""
    return Batch(at=at, events=events, blobs=blobs or {})


def a_finished(job: str = "aaaaaaaaaaaa", number: int = 1, **changes: Any) -> Finished:
    """Return an ended job with a value in most fields; `changes` replaces values."""
    fields: dict[str, Any] = {
        "job": JobId(job),
        "number": number,
        "name": "train",
        "user": "ada",
        "project": "vision",
        "queue": "default",
        "priority": 3,
        "state": "SUCCEEDED",
        "submitted": 1_000 + number,
        "started": 2_000 + number,
        "finished": 3_000 + number,
        "cluster": "onprem",
        "node": "n1",
        "attempt": 2,
        "exit_code": 0,
        "signal": None,
        "cost": 12_345_678_901,
        "spec": b"\x00spec\xff",
        "shape": Shape(Resources(1500, 1 << 30, 1), ("gpu:a100",)),
        "terms": Terms(walltime=7_200_000_000_000),
        "why": None,
        "placed_why": b"\x81why",
        "usage": (5, 6, 7),
        "gpu": (2, 5, 8),
        "key": None,
        "body": b"digest",
        "deadline": 9_000_000_000_000_000_000,
        "not_before": None,
        "array": None,
        "ready": 1_500 + number,
        "tasks": b"tasks\xff",
    }
    return Finished(**(fields | changes))


async def lead(store: Store, name: str = "one") -> int:
    """Take the lead, which must be free."""
    epoch = await store.election.campaign(name, f"http://{name}")
    assert isinstance(epoch, int), f"{epoch} leads"
    return epoch


async def tail_of(journal: Journal, after: int = 0, limit: int | None = None) -> list[Stored]:
    """Read stored events."""
    return [stored async for stored in journal.tail(after, limit)]


async def events_of(journal: Journal, after: int = 0, limit: int | None = None) -> list[tuple[int, bytes]]:
    """Read revisions and events."""
    return [(stored.revision, stored.event) for stored in await tail_of(journal, after, limit)]


async def records_of(journal: Journal) -> list[Record]:
    """Read the records of the last checkpoint."""
    loaded = await journal.load()
    return [record async for page in journal.records(loaded.checkpoint) for record in page]
