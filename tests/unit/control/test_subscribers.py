"""A commit wakes those who wait for something in it, and nobody else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from spillover.control.live.subscribers import MANY, Subscribers, Subscription
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.projects import OwnHistory
from spillover.control.views.history import history
from spillover.core.events import AnyEvent, ClockJumped, JobHeld, JobsAdmitted, JobState, MembersDropped
from spillover.core.proposals import SetPriority
from spillover.model.ids import JobId
from spillover.model.job import Range
from spillover.ports.journal import Journal, Stored
from tests.support.inside import Inside
from tests.support.waiting import turn

HELD = JobHeld(JobId("a"), 0, "ada")
MEMBER = JobHeld(JobId("a.5"), 0, "ada")
DROPPED = MembersDropped(JobId("a"), 0, (Range(0, 9),), JobState.CANCELLED, "ada")
OTHER = JobHeld(JobId("b"), 0, "ada")
JUMPED = ClockJumped(1)


async def is_told(subscription: Subscription) -> int | None:
    """The revision before the first news; None if there are none."""
    waiting = asyncio.ensure_future(subscription.wait())
    await turn()
    if waiting.done():
        return waiting.result()
    waiting.cancel()
    return None


@pytest.mark.parametrize(
    ("events", "job", "member", "everything"),
    [
        ([HELD], True, False, True),
        ([MEMBER], True, True, True),
        ([DROPPED], True, True, True),
        ([OTHER, JUMPED], False, False, True),
        ([OTHER, HELD], True, False, True),
        ([JobsAdmitted((JobId("b"), JobId("a")), (0, 0))], True, False, True),
        ([JobsAdmitted((JobId("b"),) * MANY, (0,) * MANY)], True, True, True),
    ],
)
async def test_who_follows_a_job_is_told_of_it_and_of_its_members(
    events: Sequence[AnyEvent], job: bool, member: bool, everything: bool
) -> None:
    subscribers = Subscribers()
    with (
        subscribers.to_jobs(["a"]) as to_job,
        subscribers.to_jobs(["a.5", "c", "c"]) as to_member,
        subscribers.to_all() as to_all,
    ):
        subscribers.tell(7, events, {})
        subscribers.tell(9, events, {})
        for subscription, told in ((to_job, job), (to_member, member), (to_all, everything)):
            assert await is_told(subscription) == (7 if told else None)
            assert await is_told(subscription) is None
    subscribers.tell(9, events, {})
    assert not subscribers._to_jobs
    assert not subscribers._to_all


async def test_who_follows_a_project_is_told_of_its_jobs(control: Inside) -> None:
    (job,) = await control.submit("train")
    with (
        control.loop.subscribers.to_project("default") as ours,
        control.loop.subscribers.to_project("other") as theirs,
    ):
        await control.propose(SetPriority(JobId(job), 3, "ada"))
        assert await is_told(ours) is not None
        assert await is_told(theirs) is None
        await control.submit("more")
        assert await is_told(ours) is not None
        assert await is_told(theirs) is None


class Counted:
    """A journal that counts how often it is read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.read = 0

    def tail(self, after: int, limit: int | None = None) -> AsyncIterator[Stored]:
        self.read += 1
        return self._journal.tail(after, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


@pytest.mark.parametrize("project", [None, "default"])
async def test_a_hundred_followers_of_other_jobs_do_not_read_what_is_committed(
    control: Inside, project: str | None
) -> None:
    jobs = await control.submit(*[f"job{number}" for number in range(100)])
    journal = Counted(control.store.journal)
    own = OwnHistory(Lookup(control.loop, control.store.archive, project)) if project else None
    seen: list[str] = []

    async def follow(job: str) -> None:
        async for line in history(control.loop, journal, None, follow=True, job=job, own=own):
            seen.append(f"{job}: {line.type}")  # noqa: PERF401 - as they come

    tasks = [asyncio.create_task(follow(job)) for job in jobs]
    for _ in range(5):
        await turn()
    before = journal.read
    for priority in range(10):
        await control.propose(SetPriority(JobId(jobs[7]), priority, "ada"))
    for _ in range(5):
        await turn()
    assert journal.read - before <= 11
    assert set(seen) == {f"{jobs[7]}: job_reprioritised"}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
