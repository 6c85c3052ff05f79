"""What Python calls returned, from the state and from the archive, as soon as it is there."""

import asyncio

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.waiting import EndsOfJobs
from spillover.control.views.results import results_of, results_of_jobs
from spillover.core.events import Usage
from spillover.core.proposals import Act, Change, Outcome, Result
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.ports.commands import CommandError
from spillover.wire.api import ResultsAsked, ResultsOfJobs, ResultView
from tests.support.inside import Inside
from tests.support.waiting import turn


async def register(control: Inside, cpu: int = 8000) -> None:
    intro = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(cpu), (), {}, 0, (), 0)
    await AgentRequests(control.loop, Hub(), DAY).register(intro)


async def end(control: Inside, job: str, value: bytes, code: int = 0, digest: str = "") -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed | Running)
    result = Result(found.phase.key, found.lease, Outcome.EXITED, code, None, Usage(5), 0, "", value, digest)
    await control.propose(result)


async def told(control: Inside, job: str, **asked: object) -> dict[str, ResultView]:
    found = await Lookup(control.loop, control.store.archive).find(job)
    asking = ResultsAsked(**asked)  # type: ignore[arg-type]
    page = await results_of(control.loop, control.store.archive, control.specs, found, asking)
    return {result.id: result for result in page.results}


async def test_a_job_that_has_not_ended_has_no_result(control: Inside) -> None:
    await register(control)
    (job,) = await control.submit("one")
    assert await told(control, job) == {}


async def test_a_value_is_the_same_before_and_after_it_is_archived(control: Inside) -> None:
    await register(control)
    good, bad = await control.submit("good", "bad")
    await end(control, good, b"value")
    await end(control, bad, b"", 1, "ab" * 32)
    before = [await told(control, job) for job in (good, bad)]
    await control.archive()
    assert JobId(good) not in control.loop.state.jobs
    assert [await told(control, job) for job in (good, bad)] == before
    assert (before[0][good].value, before[0][good].state) == (b"value", "SUCCEEDED")
    failed = before[1][bad]
    assert (failed.value, failed.value_digest, failed.exit_code, failed.state) == (
        None,
        "ab" * 32,
        1,
        "FAILED",
    )


async def test_members_are_told_wherever_they_are(control: Inside) -> None:
    await register(control, cpu=4000)
    (array,) = await control.submit("array", array="0-9")
    await end(control, f"{array}.0", b"zero")
    await control.archive()
    await end(control, f"{array}.2", b"two")
    found = await told(control, array, members="0-9")
    assert {job: result.value for job, result in found.items()} == {
        f"{array}.0": b"zero",
        f"{array}.2": b"two",
    }
    assert list(await told(control, array, members="0-9", limit=1)) == [f"{array}.0"]
    assert list(await told(control, array, members="1-9")) == [f"{array}.2"]
    assert list(await told(control, f"{array}.2")) == [f"{array}.2"]


async def test_members_that_were_given_up_are_told_so(control: Inside) -> None:
    await register(control, cpu=1000)
    (array,) = await control.submit("array", array="0-4")
    await control.propose(Change(Act.CANCEL, (JobId(f"{array}.3"),), "ada"))
    found = await told(control, array, members="0-4")
    assert {job: result.state for job, result in found.items()} == {f"{array}.3": "CANCELLED"}


async def test_whoever_waits_is_told_of_the_first_end(control: Inside) -> None:
    await register(control)
    (array,) = await control.submit("array", array="0-3")
    waiting = asyncio.create_task(told(control, array, members="0-3", timeout=50.0))
    await turn()
    await end(control, f"{array}.1", b"one")
    await end(control, f"{array}.2", b"two")
    assert set(await waiting) == {f"{array}.1", f"{array}.2"}


async def test_nothing_is_told_after_the_time_that_was_given(control: Inside) -> None:
    await register(control)
    (job,) = await control.submit("one")
    assert await told(control, job, timeout=0.01) == {}


async def test_large_values_come_in_several_answers(control: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillover.control.views.results.MOST_BYTES", 10)
    await register(control)
    (array,) = await control.submit("array", array="0-3")
    for index in range(4):
        await end(control, f"{array}.{index}", b"x" * 6)
    assert list(await told(control, array, members="0-3")) == [f"{array}.0"]
    assert list(await told(control, array, members="1-3")) == [f"{array}.1"]


@pytest.mark.parametrize("members", [None, "9-1", "abc"])
async def test_which_members_must_be_said(control: Inside, members: str | None) -> None:
    await register(control)
    (array,) = await control.submit("array", array="0-3")
    with pytest.raises(CommandError, match="members"):
        await told(control, array, members=members)


async def test_of_what_is_no_member_nothing_is_told(control: Inside) -> None:
    await register(control)
    (array,) = await control.submit("array", array="1-2")
    for index in (1, 2):
        await end(control, f"{array}.{index}", b"value")
    for archived in (False, True):
        if archived:
            await control.archive()
        assert list(await told(control, array, members="0-5,9")) == [f"{array}.1", f"{array}.2"]
        assert await told(control, array, members="7") == {}


async def of_jobs(control: Inside, *jobs: str, project: str | None = None, **asked: object) -> dict[str, str]:
    asking = ResultsOfJobs(list(jobs), **asked)  # type: ignore[arg-type]
    ends = EndsOfJobs(control.loop)
    page = await results_of_jobs(control.loop, control.store.archive, ends, project, asking)
    assert not ends.waiting
    return {result.id: result.state for result in page.results}


async def test_of_many_jobs_those_that_ended_are_told_wherever_they_are(control: Inside) -> None:
    await register(control)
    one, two, three = await control.submit("one", "two", "three")
    assert await of_jobs(control, one, two, three) == {}
    await end(control, one, b"1")
    await control.archive()
    await end(control, two, b"", 1)
    assert await of_jobs(control, one, two, three, one) == {one: "SUCCEEDED", two: "FAILED"}
    assert len(await of_jobs(control, one, two, three, limit=1)) == 1


async def test_whoever_waits_for_many_jobs_is_told_of_the_first_end(control: Inside) -> None:
    await register(control)
    jobs = await control.submit("one", "two", "three")
    waiting = asyncio.create_task(of_jobs(control, *jobs, timeout=50.0))
    await turn()
    await end(control, jobs[1], b"two")
    assert await waiting == {jobs[1]: "SUCCEEDED"}
    assert await of_jobs(control, jobs[0], jobs[2], timeout=0.01) == {}


async def test_arrays_unknown_jobs_and_those_of_other_projects_are_refused(control: Inside) -> None:
    await register(control)
    (array,) = await control.submit("array", array="0-3")
    (job,) = await control.submit("one")
    with pytest.raises(CommandError, match="is an array"):
        await of_jobs(control, job, array)
    with pytest.raises(CommandError, match="there is no job 'nothing'"):
        await of_jobs(control, job, "nothing")
    for ended in (False, True):
        if ended:
            await end(control, job, b"1")
            await control.archive()
        with pytest.raises(CommandError, match="there is no job"):
            await of_jobs(control, job, project="another")
