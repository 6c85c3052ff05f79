"""A long queue is looked at in slices: everybody else gets their turn, and what is told is what is there."""

import asyncio
import gc
from collections.abc import Iterator, Sequence

import pytest

from spillover.control.live import garbage as collecting
from spillover.control.live.garbage import IN_A_ROW, MANY, FrozenState
from spillover.control.live.slices import SLICE
from spillover.control.views.listing import list_jobs
from spillover.core.apply import apply
from spillover.core.events import JobSubmitted
from spillover.core.proposals import Act, Change, SetPriority
from spillover.core.records.jobs import Job
from spillover.model.ids import JobId, job_id
from spillover.model.job import Range, Shape, Terms
from spillover.model.resources import Resources
from spillover.ports.archive import listed
from spillover.ports.commands import CommandError, JobQuery
from spillover.ports.journal import Batch
from tests.support.inside import Inside
from tests.support.waiting import turn

JOBS = 2 * SLICE + 100


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Nothing is kept from the collector in other tests."""
    yield
    gc.unfreeze()


@pytest.fixture
def queue(control: Inside) -> list[Job]:
    """More jobs than are looked at at once, of which few are of the name, the project and the user `rare`."""
    state = control.loop.state
    for number in range(JOBS):
        word = "rare" if number % 4_000 == 7 else "common"
        event = JobSubmitted(
            job_id((number * 0x9E3779B97F4A7C15) & (2**60 - 1)),
            number,
            word,
            word,
            word,
            "default",
            0,
            b"",
            Shape(Resources(1000)),
            Terms(),
            array=(Range(0, 9),) if number % 1_000 == 3 else (),
        )
        apply(state, event)
    return list(state.jobs.values())


async def all_pages(control: Inside, query: JobQuery) -> list[str]:
    """The ids of all pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        asked = JobQuery(
            query.states, query.project, query.user, query.name, limit=query.limit, cursor=cursor
        )
        page = await list_jobs(control.loop, control.store.archive, asked)
        found += [view.id for view in page.jobs]
        if (cursor := page.next) is None:
            return found


@pytest.mark.parametrize(
    "query",
    [
        JobQuery(name="rare", limit=2),
        JobQuery(user="rare", limit=2),
        JobQuery(project="rare", limit=2),
        JobQuery(frozenset({"HELD", "SUCCEEDED"}), limit=2),
        JobQuery(user="rare", project="common", limit=2),
        JobQuery(name="common", limit=4_000),
        JobQuery(limit=4_000),
    ],
)
async def test_a_list_has_each_job_that_matches_once_newest_first(
    control: Inside, queue: list[Job], query: JobQuery
) -> None:
    await control.propose(Change(Act.HOLD, (queue[5].id, queue[50].id, queue[-1].id), "ada"))
    expected = [
        job
        for job in queue
        if (not query.states or job.state in query.states)
        and (
            query.name in {None, job.name}
            and query.user in {None, job.user}
            and query.project in {None, job.kind.project}
        )
    ]
    expected.sort(key=lambda job: listed(job.number, job.id))
    assert await all_pages(control, query) == [job.id for job in expected]


@pytest.mark.usefixtures("queue")
async def test_others_get_their_turn_while_a_long_queue_is_looked_at(control: Inside) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for look in (
        lambda: all_pages(control, JobQuery(user="rare")),
        lambda: control.loop.scan(lambda jobs: jobs),
        control.loop.checkpoints.forget_blobs,
    ):
        turns = 0
        await look()
        assert turns >= JOBS // SLICE
    counting.cancel()


async def test_a_job_that_goes_while_a_list_is_made_is_not_in_it_and_no_other_is_missed(
    control: Inside, queue: list[Job]
) -> None:
    rare = [job.id for job in reversed(queue) if job.name == "rare"]
    listing = asyncio.create_task(all_pages(control, JobQuery(user="rare", limit=1)))
    await control.propose(Change(Act.CANCEL, (rare[-1],), "ada"))
    await control.archive()
    assert set(await listing) >= set(rare[:-1])


async def test_what_a_scan_saw_is_durable_when_it_returns(
    control: Inside, queue: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    last = queue[-1].id
    disk, append = asyncio.Event(), control.store.journal.append

    async def slow(after: int, batch: Batch, epoch: int) -> int:
        await disk.wait()
        return await append(after, batch, epoch)

    monkeypatch.setattr(control.store.journal, "append", slow)

    def look(jobs: Sequence[Job]) -> list[int]:
        return [job.priority for job in jobs if job.id == last]

    scanning = asyncio.create_task(control.loop.scan(look))
    changing = asyncio.create_task(control.propose(SetPriority(last, 7, "ada")))
    for _ in range(20):
        await turn()
    assert queue[-1].priority == 7
    assert not scanning.done()
    disk.set()
    assert await scanning == [7]
    await changing


async def test_a_job_is_found_among_many_by_name_and_by_the_first_letters_of_its_id(
    control: Inside, queue: list[Job]
) -> None:
    (unique,) = await control.submit("unique")
    assert (await control.lookup.find("unique")) is control.loop.state.jobs[JobId(unique)]
    alone = next(job for job in queue[1:] if sum(each.id.startswith(job.id[:6]) for each in queue) == 1)
    assert (await control.lookup.find(alone.id[:6])) is alone
    with pytest.raises(CommandError, match="matches several jobs"):
        await control.lookup.find("rare")
    with pytest.raises(CommandError, match="there is no job"):
        await control.lookup.within("default").find("rare")


async def test_the_collector_does_not_look_into_what_has_to_be_written(
    control: Inside, queue: list[Job]
) -> None:
    assert len(control.loop.state.dirty["job"]) == JOBS
    assert not gc.is_tracked(control.loop.state.dirty["job"])


def test_the_collector_is_kept_from_a_queue_each_time_it_has_grown_by_much() -> None:
    spared = FrozenState()
    assert [spared.look(jobs) for jobs in (10, MANY - 1, MANY, 2 * MANY - 1, 2 * MANY, 3 * MANY)] == [
        *(False, False, True),
        *(False, True, True),
    ]
    assert not spared.look(2 * MANY)
    assert not spared.look(3 * MANY)
    assert not spared.look(MANY)  # of lists that were spared, many are gone
    assert spared.look(2 * MANY)


def test_the_collector_is_kept_from_long_lists_that_are_made_anew_and_not_from_short_ones() -> None:
    spared = FrozenState()
    assert not spared.look(MANY - 1, rebuilt=True)
    assert spared.look(MANY, rebuilt=True)
    assert spared.look(MANY, rebuilt=True)
    assert not spared.look(MANY)


def test_the_collector_is_kept_from_lists_that_many_steps_in_a_row_add_to() -> None:
    spared = FrozenState()
    assert spared.look(MANY)
    assert not any(spared.look(MANY, goes_on=True) for _ in range(IN_A_ROW - 1))
    assert spared.look(MANY, goes_on=True)
    assert not any(spared.look(MANY, goes_on=number % IN_A_ROW > 0) for number in range(3 * IN_A_ROW))


async def test_a_server_spares_the_collector_a_long_queue(
    control: Inside, queue: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "MANY", JOBS)
    held = [*range(300, 400)]
    await control.submit("one")
    assert not any(each is held for each in gc.get_objects())
    gc.unfreeze()
    assert any(each is held for each in gc.get_objects())
