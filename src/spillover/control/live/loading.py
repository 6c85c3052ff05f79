"""Loads the state at the end of a journal, in short steps, so that the server can renew its lead meanwhile."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from spillover.control.live.garbage import FrozenState, not_collecting
from spillover.core.rebuild import Rebuilding
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.backoff import reason_of
from spillover.ports.journal import Damaged, Journal, Moved, StoreError
from spillover.wire.journal import BadRecord, decode_event, decode_records

log = structlog.get_logger()

STEP: Final = 500
"""Events to apply before other work runs; takes a few milliseconds."""
TRIES: Final = 3
"""Tries to read a checkpoint that is replaced while it is read."""
TOLD: Final = 3.0
"""Seconds between two log lines on progress."""


class LoadedEngine(NamedTuple):
    """An engine at the end of its journal."""

    engine: Engine
    revision: int
    at: int
    """Nanoseconds UTC of the last event; 0 if there is none."""


class Progress:
    """Counts loaded records, and logs the count regularly."""

    def __init__(self, tell: Callable[[str], object] = log.info) -> None:
        self._tell = tell
        self.total = 0
        """Records to read plus events to apply."""
        self.done = 0
        self._told = asyncio.get_running_loop().time()

    def __str__(self) -> str:
        return f"loading: {self.done:,} of {self.total:,} records" if self.total else "loading"

    def add(self, count: int) -> None:
        """Count records as done, and log the progress if it is time."""
        self.done += count
        now = asyncio.get_running_loop().time()
        if now - self._told >= TOLD:
            self._told = now
            self._tell(str(self))


async def load(journal: Journal, build: Callable[[State], Engine], progress: Progress) -> LoadedEngine:
    """Return the engine at the end of a journal; raise StoreError if it cannot be read.

    `build` makes an engine without its index, as building that at once would block. It is built here in steps.
    """
    with not_collecting():
        revision, state = await load_checkpoint(journal, progress)
        engine = build(state)
        at, taken = state.facts.now, 0
        async for stored in journal.tail(revision):
            try:
                engine.apply(decode_event(stored.event))
            except Exception as error:  # any error: without this event the later state is wrong
                raise Damaged(f"event {stored.revision} of the journal", reason_of(error)) from error
            revision, at = stored.revision, max(at, stored.at)
            taken += 1
            if taken == STEP:
                progress.add(taken)
                taken = 0
                await asyncio.sleep(0)
        while not engine.build():  # noqa: ASYNC110 - each call builds a part; nothing else does
            await asyncio.sleep(0)
        FrozenState().look(len(state.jobs))
    engine.now = max(engine.now, at)
    return LoadedEngine(engine, revision, at)


async def load_checkpoint(journal: Journal, progress: Progress | None = None) -> tuple[int, State]:
    """Return revision and state of the last checkpoint; raise Moved if it is replaced during every try."""
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
    except Exception as error:  # any error: valid records may still contradict each other
        why = str(error) if isinstance(error, BadRecord) else reason_of(error)
        raise Damaged(f"the checkpoint at revision {loaded.checkpoint}", why) from error
    return loaded.checkpoint, rebuilding.state
