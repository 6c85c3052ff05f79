"""A checkpoint that is written in pieces while jobs come, change and go is the state at one revision, or it is not there."""

import asyncio
import contextlib
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from spillover.control.live import checkpoints
from spillover.control.live.loop import Loop
from spillover.core.proposals import Act, Archived, Change, SetPriority
from spillover.core.transitions import TERMINAL
from spillover.model.ids import JobId
from spillover.model.policy import PolicySet
from spillover.policies.loading import load
from spillover.ports.commands import CommandError
from spillover.ports.journal import Changed, StoreError, Unwritable
from spillover.stores.memory import MemoryJournal
from spillover.testing.builders import a_job
from tests.support.live import Live, a_live_loop
from tests.support.sameness import said_by
from tests.support.waiting import turn

STEPS = 60


class SlowJournal(MemoryJournal):
    """Takes some turns for each piece, and fails now and then."""

    dice: Random
    failing = False

    async def stage(self, records: Mapping[tuple[str, str], bytes | None], epoch: int, *, anew: bool) -> None:
        await self._linger()
        await super().stage(records, epoch, anew=anew)
        await self._linger()

    async def checkpoint(self, changed: Changed, epoch: int) -> None:
        await self._linger()
        await super().checkpoint(changed, epoch)

    async def _linger(self) -> None:
        for _ in range(self.dice.randrange(4)):
            await turn()
        if self.failing and self.dice.random() < 0.05:
            raise Unwritable("the disk is full")


async def _something(live: Live, dice: Random, names: list[str]) -> None:
    """Something happens to some jobs."""
    state = live.loop.state
    match dice.randrange(6):
        case 0 | 1:
            some = [f"job{len(names) + each}" for each in range(dice.randrange(1, 12))]
            names += some
            await live.submit(*[a_job(name) for name in some])
        case 2:
            act = dice.choice([Act.HOLD, Act.RELEASE, Act.CANCEL])
            job = JobId(dice.choice(names))
            await live.loop.propose(Change(act, (job,), "ada"))
        case 3:
            await live.loop.propose(SetPriority(JobId(dice.choice(names)), dice.randrange(9), "ada"))
        case 4:
            ended = tuple(job.id for job in state.jobs.values() if job.state in TERMINAL)
            await live.loop.propose(Archived(ended[: dice.randrange(5)]))
        case _:  # all of them change in one step
            await live.loop.propose(*[SetPriority(job, dice.randrange(9), "ada") for job in list(state.jobs)])


async def _as_started(live: Live, journal: Any) -> dict[str, Any]:
    """What a server that starts now would know."""
    other = Loop(journal, load, live.clock)
    await other.load()
    return said_by(other.state)


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_a_start_at_any_moment_finds_the_durable_state(
    seed: int, failing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PIECE", 3)
    monkeypatch.setattr(checkpoints, "IN_ONE", 12)
    monkeypatch.setattr(checkpoints, "ROUNDS", 3)
    dice = Random(seed)
    async with a_live_loop(PolicySet()) as live:
        inner = live.journal._journal
        journal = SlowJournal(inner._shelf)  # type: ignore[attr-defined]
        journal.dice, journal.failing = dice, failing
        live.journal._journal = journal

        async def checkpointing() -> None:
            while True:
                with contextlib.suppress(StoreError, CommandError):
                    await live.loop.checkpoints.write()
                await turn()

        tasks = [asyncio.create_task(checkpointing()) for _ in range(2)]
        names = ["job0"]
        await live.submit(a_job("job0"))
        for _ in range(STEPS):
            with contextlib.suppress(CommandError):
                await _something(live, dice, names)
            for _ in range(dice.randrange(6)):
                await turn()
            await live.loop.read()
            expected = said_by(live.loop.state)
            assert await _as_started(live, journal) == expected
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        journal.failing = False
        await live.loop.checkpoints.write()
        assert (await journal.load()).checkpoint == live.loop.applied
        assert await _as_started(live, journal) == said_by(live.loop.state)
