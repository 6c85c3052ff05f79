"""Writing what changed, so that the next start need not go through all events: in pieces, while others have their turn."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Final, Protocol

from spillover.control.gate import Gate
from spillover.control.slices import slices
from spillover.core.state import Dirty, State
from spillover.ports.journal import Changed, Journal
from spillover.wire.journal import changed_records

PIECE: Final = 2_000
"""Records that are encoded at once, and staged at once: some milliseconds of the event loop, and of who waits to append."""
IN_ONE: Final = 10_000
"""Records that are written in one commit; more are staged, which takes twice as long in all."""
NEAR: Final = 20_000
"""Records that are brought in order at once: some milliseconds likewise."""
ROUNDS: Final = 8
"""Rounds after which a checkpoint is written although many records have changed meanwhile."""

Records = dict[tuple[str, str], bytes | None]
"""By kind and key; None for one that is gone."""


class CheckpointSource(Protocol):
    """Whose state is written."""

    @property
    def state(self) -> State:
        """The book, which may be ahead of what is durable."""

    applied: int
    """Its revision."""
    epoch: int
    gate: Gate
    problem: str | None
    """Why the book may be given up; None when all is well."""


class Checkpoints:
    """The checkpoints of a journal; one is written at a time."""

    def __init__(self, journal: Journal, source: CheckpointSource) -> None:
        self._journal = journal
        self._source = source
        self._writing = asyncio.Lock()

    async def write(self) -> int:
        """Write the records that changed since the last one; returns how many were written."""
        async with self._writing:  # what is staged is of one
            return await self._write()

    async def forget_blobs(self) -> int:
        """Drop specs that no job has any more; returns how many.

        No checkpoint is written meanwhile, so what is submitted is safe: the store spares what batches after the last one name.
        """
        async with self._writing:
            kept: set[bytes] = set()
            async for jobs in slices(list(self._source.state.jobs.values())):
                kept.update([job.spec for job in jobs])
            return await self._journal.forget_blobs(kept, self._source.epoch)

    async def _write(self) -> int:
        source, state = self._source, self._source.state
        taken: list[Dirty] = []
        gathered: Records = {}
        staged, anew = state.dirty.count > IN_ONE, True
        try:
            for piece in self._pieces(state, taken):
                if staged and piece:
                    await self._journal.stage(piece, source.epoch, anew=anew)
                    anew = False
                else:
                    gathered.update(piece)
                    await asyncio.sleep(0)
            self._check_kept(state)
            if taken:
                state.touch_facts()  # those of the pieces are of earlier revisions
            revision, records = source.applied, {**gathered, **changed_records(state, state.dirty)}
            taken.append(state.dirty)
            state.dirty = Dirty()
            await source.gate.passed(revision)
            await self._journal.checkpoint(Changed(revision, records, staged), source.epoch)
        except BaseException:
            if state is source.state:
                for keys in taken:
                    state.dirty.add(keys)
            raise
        return await _let_go(taken)

    def _check_kept(self, state: State) -> None:
        """Refuse to write a state that was given up, or is about to be: what it shows may never become durable."""
        if state is not self._source.state or self._source.problem is not None:
            raise Gate.dropped(self._source.problem or "the state was loaded anew")

    def _pieces(self, state: State, taken: list[Dirty]) -> Iterator[Records]:
        """Records that changed, some at a time or none yet, until few are left; `taken` gets which, a round at a time.

        Others have their turn between two pieces. What changes after it was given is given again, so that the last ones of all, with
        those that are left, are the state at one revision. Each round has only what changed during the one before; should that
        always be much, the rest is left after some rounds.
        """
        for _ in range(ROUNDS):
            if state.dirty.count <= PIECE:
                return
            dirty, state.dirty = state.dirty, Dirty()
            taken.append(dirty)
            for kind, changed in dirty.items():
                near: dict[str, list[str]] = {}
                left = iter(changed)
                while some := list(itertools.islice(left, NEAR)):
                    for key in some:
                        near.setdefault(key[:2], []).append(key)
                    yield {}
                # In the order of their keys: a piece is then a few pages of the store, and not as many as it has records.
                for group in sorted(near):
                    keys = sorted(near.pop(group))
                    for start in range(0, len(keys), PIECE):
                        self._check_kept(state)
                        yield changed_records(state, {kind: keys[start : start + PIECE]})


async def _let_go(taken: list[Dirty]) -> int:
    """Free what was written, some at a time: to free a million keys at once would take long; returns how many there were."""
    count = 0
    for keys in (keys for dirty in taken for keys in dirty.values()):
        count += len(keys)
        while keys:
            for _ in range(min(NEAR, len(keys))):
                keys.popitem()
            await asyncio.sleep(0)
    return count
