"""The journal as people read it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from spillover.control.views.history import history
from spillover.core.proposals import Act, Change
from spillover.model.ids import JobId
from spillover.ports.journal import Journal, Stored
from tests.support.inside import Inside
from tests.support.waiting import turn


async def told(control: Inside, job: str | None = None, after: int | None = None) -> list[str]:
    lines = history(control.loop, control.store.journal, after, follow=False, job=job)
    return [f"{each.type}: {each.text}" async for each in lines]


async def test_each_event_is_a_line_in_words(control: Inside) -> None:
    (job,) = await control.submit("train")
    await control.propose(Change(Act.HOLD, (JobId(job),), "ada"))
    lines = await told(control)
    assert "job_submitted: ada submitted train" in lines
    assert lines[-1] == "job_held: held by ada"


async def test_the_history_of_one_job_leaves_others_out_and_has_its_members(control: Inside) -> None:
    first, _ = await control.submit("one", "two")
    await control.propose(Change(Act.CANCEL, (JobId(first),), "ada"))
    lines = await told(control, first)
    assert [line.split(":")[0] for line in lines] == ["job_submitted", "jobs_admitted", "job_ended"]
    assert lines[-1] == "job_ended: CANCELLED: cancelled by ada"


async def test_following_gives_what_becomes_durable_and_nothing_twice(control: Inside) -> None:
    after = control.loop.gate.durable
    following = history(control.loop, control.store.journal, None, follow=True, job=None)
    waiting = asyncio.ensure_future(anext(following))
    await turn()
    await control.submit("train")
    seen = [await waiting]
    while seen[-1].revision < control.loop.gate.durable:
        seen.append(await anext(following))
    await following.aclose()
    assert [each.revision for each in seen] == list(range(after + 1, control.loop.gate.durable + 1))


class Counted:
    """A journal that counts how often it is read, and is read a few times at the most."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.tails = 0

    def tail(self, after: int, limit: int | None = None) -> AsyncIterator[Stored]:
        self.tails += 1
        assert self.tails < 10, "it is read again and again"
        return self._journal.tail(after, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


async def test_following_from_before_all_that_is_kept_waits_for_what_comes(control: Inside) -> None:
    await control.submit("before")
    await control.loop.checkpoints.write()
    end = control.loop.gate.durable
    await control.store.journal.compact(end, control.loop.epoch)
    assert await control.store.journal.oldest() == end + 1
    journal = Counted(control.store.journal)
    following = history(control.loop, journal, 0, follow=True, job=None)
    waiting = asyncio.ensure_future(anext(following))
    await turn()
    assert journal.tails == 1
    await control.submit("after")
    assert (await waiting).revision == end + 1
    await following.aclose()
