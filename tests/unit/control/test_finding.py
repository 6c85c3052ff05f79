"""Jobs are found, listed and submitted once, wherever they are."""

import pytest

from spillover.control.controllers.archiving import finished_of
from spillover.control.requests.lookup import PendingMember, id_of
from spillover.control.views.listing import list_jobs
from spillover.core.proposals import Act, Archived, Change
from spillover.core.records.jobs import Job
from spillover.model.ids import JobId
from spillover.model.units import SECOND, format_time
from spillover.ports.archive import Finished, Query
from spillover.ports.commands import CommandError, ErrorKind, JobQuery
from tests.support.inside import Inside, form


async def end(control: Inside, *jobs: str) -> None:
    await control.propose(Change(Act.CANCEL, tuple(JobId(job) for job in jobs), "ada"))


async def test_a_job_is_found_by_id_prefix_and_name_live_or_archived(control: Inside) -> None:
    (job,) = await control.submit("train")
    for ref in (job, "train"):
        found = await control.lookup.find(ref)
        assert isinstance(found, Job)
        assert found.id == job
    await end(control, job)
    await control.archive()
    assert job not in control.loop.state.jobs
    for ref in (job, "train"):
        found = await control.lookup.find(ref)
        assert isinstance(found, Finished)
        assert found.job == job


async def test_what_means_several_jobs_is_ambiguous_and_what_means_none_unknown(control: Inside) -> None:
    first, second = await control.submit("same", "same")
    assert first[:4] == second[:4]
    for ref in ("same", first[:4]):
        with pytest.raises(CommandError) as caught:
            await control.lookup.find(ref)
        assert caught.value.kind is ErrorKind.AMBIGUOUS
    with pytest.raises(CommandError) as caught:
        await control.lookup.find("nothing")
    assert caught.value.kind is ErrorKind.UNKNOWN


async def test_a_name_means_the_job_that_has_not_ended(control: Inside) -> None:
    first, second = await control.submit("same", "same")
    await end(control, first)
    await control.archive()
    assert id_of(await control.lookup.find("same")) == second
    (third,) = await control.submit("same")
    await end(control, third)
    assert id_of(await control.lookup.find("same")) == second  # older, but it can still be changed


async def test_a_name_of_ended_jobs_means_the_newest_wherever_it_is(control: Inside) -> None:
    first, second, third = await control.submit("same", "same", "same")
    await end(control, first, third)
    await control.archive()
    await end(control, second)
    assert id_of(await control.lookup.find("same")) == third
    (fourth,) = await control.submit("same")
    await end(control, fourth)
    assert id_of(await control.lookup.find("same")) == fourth


async def test_the_jobs_that_a_name_may_mean_are_listed(control: Inside) -> None:
    ids = await control.submit(*["same"] * 7)
    with pytest.raises(CommandError) as caught:
        await control.lookup.find("same")
    listed = ", ".join(f"{job} (same, QUEUED)" for job in ids[:5])
    assert caught.value.message == f"'same' matches several jobs: {listed} and others; use the id"


async def test_a_prefix_of_one_job_that_is_the_name_of_another_is_ambiguous(control: Inside) -> None:
    (job,) = await control.submit("train")
    (other,) = await control.submit(job[:6])
    with pytest.raises(CommandError) as caught:
        await control.lookup.find(job[:6])
    assert caught.value.kind is ErrorKind.AMBIGUOUS
    await end(control, other)
    await control.archive()
    with pytest.raises(CommandError) as caught:
        await control.lookup.find(job[:6])
    assert f"{other} ({job[:6]}, CANCELLED)" in caught.value.message


async def test_a_name_finds_one_of_very_many_jobs_only_if_that_is_quick(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.control.requests.lookup.MOST_ALIKE", 2)
    ids = await control.submit("same", "same", "same")
    await end(control, *ids)
    with pytest.raises(CommandError) as caught:
        await control.lookup.find("same")
    assert caught.value.kind is ErrorKind.AMBIGUOUS


async def test_a_pending_member_is_found_by_the_id_or_the_name_of_its_array(control: Inside) -> None:
    (array,) = await control.submit("my.sweep", array="1-3")
    for ref in (f"{array}.2", "my.sweep.2"):
        found = await control.lookup.find(ref)
        assert isinstance(found, PendingMember)
        assert (found.array.id, found.id) == (array, f"{array}.2")
        assert (await control.lookup.live(ref)).id == f"{array}.2"
    assert (await control.lookup.live("my.sweep")).id == array
    with pytest.raises(CommandError) as caught:
        await control.lookup.find("my.sweep.9")
    assert caught.value.kind is ErrorKind.UNKNOWN


async def test_an_ended_job_cannot_be_changed(control: Inside) -> None:
    (job,) = await control.submit("train")
    await end(control, job)
    await control.archive()
    with pytest.raises(CommandError) as caught:
        await control.lookup.live("train")
    assert caught.value.kind is ErrorKind.CONFLICT


async def test_pages_have_every_job_once_while_jobs_move_to_the_archive(control: Inside) -> None:
    ids = await control.submit(*(f"job{number}" for number in range(20)))
    seen: list[str] = []
    cursor = None
    for turn in range(30):
        page = await list_jobs(control.loop, control.store.archive, JobQuery(limit=3, cursor=cursor))
        seen += [job.id for job in page.jobs]
        await end(control, ids[turn], ids[-1 - turn])
        await control.archive()
        cursor = page.next
        if cursor is None:
            break
    assert seen == list(reversed(ids))


async def test_a_job_that_is_archived_while_a_page_is_read_is_on_it(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = await control.submit("train")
    await end(control, job)
    archive = control.store.archive
    ask = archive.list

    async def slow(query: Query) -> list[Finished]:
        rows = await ask(query)
        row = finished_of(control.loop.state.jobs[JobId(job)])
        assert row is not None
        await archive.put([row], control.loop.epoch)
        await control.propose(Archived((JobId(job),)))
        return rows

    monkeypatch.setattr(archive, "list", slow)
    page = await list_jobs(control.loop, archive, JobQuery())
    assert [each.id for each in page.jobs] == [job]


async def test_a_key_gives_the_same_job_also_from_the_archive(control: Inside) -> None:
    one = [form("nightly", key="k")]
    (job,) = await control.submitting.submit(one, "ada")
    assert await control.submitting.submit(one, "ada") == (job,)
    await end(control, job)
    await control.archive()
    assert await control.submitting.submit(one, "ada") == (job,)
    with pytest.raises(CommandError) as caught:
        await control.submitting.submit([form("nightly", key="k", priority=3)], "ada")
    assert caught.value.kind is ErrorKind.CONFLICT


async def test_a_deadline_that_has_passed_is_refused(control: Inside) -> None:
    deadline = format_time(control.clock.at)
    with pytest.raises(
        CommandError,
        match=r"late: its deadline .* UTC has passed \(the server's time is .* UTC\); write a later one",
    ) as caught:
        await control.submit("late", deadline=deadline)
    assert caught.value.kind is ErrorKind.INVALID
    assert [problem.path for problem in caught.value.problems] == ["jobs[0].spec.deadline"]
    assert not control.loop.state.jobs


async def test_a_job_is_known_by_its_key_after_its_deadline_too(control: Inside) -> None:
    one = [form("nightly", key="k", deadline=format_time(control.clock.at + SECOND))]
    (job,) = await control.submitting.submit(one, "ada")
    control.clock.pass_by(2)
    assert await control.submitting.submit(one, "ada") == (job,)
    await end(control, job)
    await control.archive()
    assert await control.submitting.submit(one, "ada") == (job,)


async def test_a_job_runs_after_one_that_is_archived_under_its_key(control: Inside) -> None:
    prepare = form("prepare", key="k")
    (job,) = await control.submitting.submit([prepare], "ada")
    await end(control, job)
    await control.archive()
    both = [prepare, form("train", after=[{"job": "prepare", "on": "any"}])]
    known, train = await control.submitting.submit(both, "ada")
    assert known == job
    assert control.loop.state.jobs[JobId(train)].extra.after == ()
