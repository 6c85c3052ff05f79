"""Measures the store without a server: the same bytes with the same durability, and nothing else."""

import time
from pathlib import Path

from msgspec import Struct

from bench.servers import folder
from spillover.core.events import JobSubmitted
from spillover.ports.journal import Batch
from spillover.stores.open import open_store
from spillover.wire.journal import decode_event


class Round(Struct, frozen=True):
    """One measurement."""

    rate: float
    """Submissions a second."""
    server: float = 0.0
    """CPU microseconds of the server, or of the store, for each."""
    clients: float = 0.0
    """CPU microseconds of the clients for each."""
    waited: float = 0.0
    """Milliseconds until half of the requests were answered."""


class Written(Struct, frozen=True):
    """What a server writes for one submission."""

    events: tuple[bytes, ...]
    blobs: dict[bytes, bytes]


async def written_for_one(data: Path) -> Written:
    """Return what a stopped server wrote for the first submission in a commit of its own."""
    store = await open_store("sqlite", data)
    try:
        events: list[bytes] = []
        digest, at = b"", -1
        async for stored in store.journal.tail(0):
            event = decode_event(stored.event)
            if isinstance(event, JobSubmitted):
                if events:
                    break
                digest, at = event.spec, stored.at
            if stored.at == at:
                events.append(stored.event)
        return Written(tuple(events), await store.journal.blobs([digest]))
    finally:
        await store.close()


async def store_alone(written: Written, together: int, count: int) -> Round:
    """Append the events of so many submissions, with several in each commit."""
    with folder("store") as path:
        store = await open_store("sqlite", path)
        try:
            epoch = await store.election.campaign("bench", "http://127.0.0.1:1")
            assert isinstance(epoch, int)
            batch = Batch(1, written.events * together, written.blobs)
            begin, used = time.monotonic(), time.process_time()
            at = 0
            for _ in range(count // together):
                at = await store.journal.append(at, batch, epoch)
            seconds = time.monotonic() - begin
            count -= count % together
            return Round(count / seconds, (time.process_time() - used) / count * 1e6)
        finally:
            await store.close()
