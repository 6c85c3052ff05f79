"""Writes checkpoints in pieces, so that other work continues and the next start need not replay all events."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Final, Protocol

from spillover.control.live.gate import Gate
from spillover.control.live.slices import slices
from spillover.core.state import Dirty, State
from spillover.ports.journal import Changed, Journal
from spillover.wire.journal import changed_records

PIECE: Final = 2_000
"""Records to encode or stage at once; blocks the event loop, or appends, for a few milliseconds."""
IN_ONE: Final = 10_000
"""Most records to write in one commit; more are staged first, which takes twice as long in total."""
NEAR: Final = 20_000
"""Keys to group at once, in a few milliseconds."""
ROUNDS: Final = 8
"""Rounds after which to write the checkpoint although many records still change."""

Records = dict[tuple[str, str], bytes | None]
"""Encoded records by kind and key; None for a deleted one."""


class CheckpointSource(Protocol):
    """Provides the state to write."""

    @property
    def state(self) -> State:
        """The state, which may be ahead of what is durable."""

    applied: int
    """Revision of the state."""
    epoch: int
    gate: Gate
    problem: str | None
    """Why the state may be dropped; None if it is valid."""


class Checkpoints:
    """Writes the checkpoints of a journal, one at a time."""

    def __init__(self, journal: Journal, source: CheckpointSource) -> None:
        self._journal = journal
        self._source = source
        self._writing = asyncio.Lock()

    async def write(self) -> int:
        """Write the records that changed since the last checkpoint; return how many."""
        async with self._writing:  # staged records belong to one checkpoint
            return await self._write()

    async def forget_blobs(self) -> int:
        """Delete specs that no job uses any more; return how many.

        No checkpoint is written meanwhile. The store keeps specs of batches after the last one, so new submissions
        are safe.
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
                state.touch_facts()  # facts in the pieces are of earlier revisions
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
        return await _free_keys(taken)

    def _check_kept(self, state: State) -> None:
        """Refuse to write a state that was or will be dropped, as it may never become durable."""
        if state is not self._source.state or self._source.problem is not None:
            raise Gate.dropped(self._source.problem or "the state was reloaded")

    def _pieces(self, state: State, taken: list[Dirty]) -> Iterator[Records]:
        """Yield changed records in pieces, some empty, until few are left; add the keys of each round to `taken`.

        Other work runs between two pieces. A record that changes after it was yielded is yielded again. So the last
        versions of all records, with those that are left, are the state at one revision. Each round holds only what
        changed during the one before. If that stays large, the rest is left after some rounds.
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
                # In the order of keys, so that a piece touches few pages of the store, instead of one for each
                # record.
                for group in sorted(near):
                    keys = sorted(near.pop(group))
                    for start in range(0, len(keys), PIECE):
                        self._check_kept(state)
                        yield changed_records(state, {kind: keys[start : start + PIECE]})


async def _free_keys(taken: list[Dirty]) -> int:
    """Free written keys a few at a time, as a million at once would take long; return their number."""
    count = 0
    for keys in (keys for dirty in taken for keys in dirty.values()):
        count += len(keys)
        while keys:
            for _ in range(min(NEAR, len(keys))):
                keys.popitem()
            await asyncio.sleep(0)
    return count
