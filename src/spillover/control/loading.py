"""Brings a state to where a journal ends, in steps so short that the server goes on meanwhile: above all, renewing its lead."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from spillover.control.collecting import Spared, not_collecting
from spillover.core.rebuild import Rebuilding
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.backoff import reason_of
from spillover.ports.journal import Damaged, Journal, Moved, StoreError
from spillover.wire.journal import BadRecord, decode_event, decode_records

log = structlog.get_logger()

STEP: Final = 500
"""Events that are applied before somebody else has a turn: some milliseconds."""
TRIES: Final = 3
"""How often a checkpoint that was replaced while it was read is read anew."""
TOLD: Final = 3.0
"""Seconds between two lines about how far it is."""


class Brought(NamedTuple):
    """An engine that is where its journal ends."""

    engine: Engine
    revision: int
    at: int
    """Nanoseconds UTC of the last event; 0 if there is none."""


class Progress:
    """How far it is."""

    def __init__(self, tell: Callable[[str], object] = log.info) -> None:
        self._tell = tell
        self.total = 0
        """Records to read, and events to apply."""
        self.done = 0
        self._told = asyncio.get_running_loop().time()

    def __str__(self) -> str:
        return f"loading: {self.done:,} of {self.total:,} records" if self.total else "loading"

    def add(self, count: int) -> None:
        """So many more are done; says so now and then."""
        self.done += count
        now = asyncio.get_running_loop().time()
        if now - self._told >= TOLD:
            self._told = now
            self._tell(str(self))


async def load(journal: Journal, build: Callable[[State], Engine], progress: Progress) -> Brought:
    """The engine at the end of a journal; raises StoreError if it cannot be read.

    `build` makes one that is not whole: its index would be one long step, and is built here instead.
    """
    with not_collecting():
        revision, state = await load_checkpoint(journal, progress)
        engine = build(state)
        at, taken = state.facts.now, 0
        async for stored in journal.tail(revision):
            try:
                engine.apply(decode_event(stored.event))
            except Exception as error:  # of whatever kind: the events before it cannot be trusted without it
                raise Damaged(f"event {stored.revision} of the journal", reason_of(error)) from error
            revision, at = stored.revision, max(at, stored.at)
            taken += 1
            if taken == STEP:
                progress.add(taken)
                taken = 0
                await asyncio.sleep(0)
        while not engine.build():  # noqa: ASYNC110 - nobody else builds it, a part at a time
            await asyncio.sleep(0)
        Spared().look(len(state.jobs))
    engine.now = max(engine.now, at)
    return Brought(engine, revision, at)


async def load_checkpoint(journal: Journal, progress: Progress | None = None) -> tuple[int, State]:
    """The last checkpoint: its revision and its state; raises Moved if it is replaced again and again while it is read."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(Moved):
            return await _load_checkpoint(journal, progress)
    return await _load_checkpoint(journal, progress)


async def _load_checkpoint(journal: Journal, progress: Progress | None) -> tuple[int, State]:
    loaded = await journal.load()
    if progress is not None:
        progress.done, progress.total = 0, loaded.count + loaded.last - loaded.checkpoint
    rebuilding = Rebuilding()
    try:
        async for records in journal.records(loaded.checkpoint):
            rebuilding.take(decode_records(records))
            if progress is not None:
                progress.add(len(records))
            await asyncio.sleep(0)
        for _ in rebuilding.index():
            await asyncio.sleep(0)
    except StoreError:
        raise
    except Exception as error:  # of whatever kind: records that can be decoded may contradict each other
        why = str(error) if isinstance(error, BadRecord) else reason_of(error)
        raise Damaged(f"the checkpoint at revision {loaded.checkpoint}", why) from error
    return loaded.checkpoint, rebuilding.state
