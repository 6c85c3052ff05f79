"""The history of one job is found by an index, and is what all of history says of it."""

import asyncio
from random import Random

import pytest

from spillover.control.controllers.indexing import Indexing
from spillover.control.views.history import concerns, history, spans
from spillover.core.proposals import Act, Change, SetPriority
from spillover.model.ids import JobId
from spillover.wire.journal import decode_event
from tests.support.inside import Inside
from tests.support.waiting import turn


async def revisions(control: Inside, job: str, after: int) -> list[int]:
    """Where the history of a job is, as it is told."""
    lines = history(control.loop, control.store.journal, after, follow=False, job=job)
    return [line.revision async for line in lines]


async def plainly(control: Inside, job: str, after: int) -> list[int]:
    """The same from all of history."""
    journal = control.store.journal
    return [each.revision async for each in journal.tail(after) if concerns(decode_event(each.event), job)]


async def something(control: Inside, dice: Random, jobs: list[str]) -> None:
    """Jobs come and change."""
    if not jobs or dice.random() < 0.3:
        jobs += await control.submit(f"job{len(jobs)}", **({"array": "0-3"} if dice.random() < 0.3 else {}))
    some = tuple(JobId(job) for job in dice.sample(jobs, min(len(jobs), 3)))
    await control.propose(Change(dice.choice([Act.HOLD, Act.RELEASE, Act.CANCEL]), some[:1], "ada"))
    for job in some:
        await control.propose(SetPriority(job, dice.randrange(9), "ada"))


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_told_of_a_job_is_what_all_of_history_says(control: Inside, seed: int) -> None:
    dice = Random(seed)
    jobs: list[str] = []
    for _ in range(20):
        await something(control, dice, jobs)  # as under an older version, which indexed nothing
    indexing = Indexing(control.loop, control.store.journal, span=dice.choice([1, 7, 30]))
    running = asyncio.create_task(indexing.run())
    for _ in range(20):
        await something(control, dice, jobs)
        for _ in range(dice.randrange(4)):
            await turn()
        for job in (dice.choice(jobs), f"{dice.choice(jobs)}.2"):
            after = dice.choice([0, dice.randrange(control.loop.gate.durable)])
            assert await revisions(control, job, after) == await plainly(control, job, after)
        if dice.random() < 0.1:
            await control.loop.checkpoints.write()
            await control.store.journal.compact(dice.randrange(control.loop.gate.durable), control.loop.epoch)
    for _ in range(200):
        await turn()
    assert control.loop.gate.durable - await control.store.journal.indexed() < indexing._span
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_index_that_missed_something_begins_anew(control: Inside) -> None:
    indexing = Indexing(control.loop, control.store.journal, span=1)
    await indexing.catch_up()
    await control.submit("one")
    indexing._see(control.loop.gate.durable + 5, [])
    await indexing.some()
    await indexing.catch_up()
    (two,) = await control.submit("two")
    await indexing.some()
    assert await control.store.journal.indexed() == control.loop.gate.durable
    assert await revisions(control, two, 0) == await plainly(control, two, 0)


def test_revisions_that_are_close_are_read_together() -> None:
    assert list(spans([])) == []
    assert list(spans([5])) == [(5, 5)]
    assert list(spans([5, 6, 80, 300, 301])) == [(5, 80), (300, 301)]
