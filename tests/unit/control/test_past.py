"""Jobs that have ended, with what a simulation needs: each once, wherever it is."""

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.views import past
from spillover.control.views.past import past_job, past_jobs
from spillover.core.events import Usage
from spillover.core.proposals import Act, Change, Jump, Outcome, Result, Started
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Terms
from spillover.model.resources import Resources
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.ports.commands import Span
from spillover.testing.stores import a_finished
from spillover.wire.api import PastJob
from tests.support.inside import Inside

EVER = Span()


async def register(control: Inside) -> None:
    """A machine of 8 CPUs."""
    intro = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(8000), (), {}, 0, (), 0)
    await AgentRequests(control.loop, Hub(), DAY).register(intro)


async def start(control: Inside, job: str) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed)
    await control.propose(Started(found.phase.key, found.lease, 0))


async def end(control: Inside, job: str, seconds: int) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed | Running)
    usage = Usage(seconds * SECOND)
    await control.propose(Result(found.phase.key, found.lease, Outcome.EXITED, 0, None, usage, 0))


async def told(control: Inside, span: Span = EVER) -> dict[str, PastJob]:
    jobs = [job async for job in past_jobs(control.loop, control.store.archive, span)]
    found = {job.id: job for job in jobs}
    assert len(found) == len(jobs)
    return found


async def test_a_job_is_told_once_in_the_state_and_in_the_archive(control: Inside) -> None:
    await register(control)
    first, second, running = await control.submit("first", "second", "running", estimate="5m")
    for job in (first, second, running):
        await start(control, job)
    await end(control, first, 10)
    await control.archive()
    await end(control, second, 20)
    found = await told(control)
    assert list(found) == [second, first]
    assert (found[second].ran_ns, found[second].estimate_ns) == (20 * SECOND, 5 * MINUTE)
    assert (found[first].cluster, found[first].node, found[first].state) == ("onprem", "n1", "SUCCEEDED")
    await control.archive()
    assert await told(control) == found


async def test_a_held_job_is_ready_when_it_is_released(control: Inside) -> None:
    await register(control)
    (first,) = await control.submit("first")
    (second,) = await control.submit("second", after=[{"job": "first"}])
    control.clock.pass_by(60)
    await start(control, first)
    control.clock.pass_by(60)
    await end(control, first, 60)
    await start(control, second)
    await end(control, second, 1)
    for archived in (False, True):
        if archived:
            await control.archive()
        found = await told(control)
        assert found[first].ready_ns == found[first].submitted_ns == found[second].submitted_ns
        assert found[second].ready_ns == found[second].submitted_ns + 120 * SECOND
        assert found[second].ready_ns == found[second].started_ns


async def test_time_in_which_nobody_decided_is_no_waiting(control: Inside) -> None:
    (job,) = await control.submit("patient")
    control.clock.pass_by(3600)
    await control.propose(Jump(3600 * SECOND))
    await register(control)
    await start(control, job)
    control.clock.pass_by(60)
    await control.propose(Jump(60 * SECOND))  # while it runs: that is none of its waiting
    await end(control, job, 60)
    found = (await told(control))[job]
    assert found.started_ns is not None
    assert found.ready_ns == found.started_ns == found.submitted_ns + 3600 * SECOND


async def test_a_job_that_never_ran_says_so(control: Inside) -> None:
    (job,) = await control.submit("never")
    await control.propose(Change(Act.CANCEL, (JobId(job),), "ada"))
    found = (await told(control))[job]
    assert (found.started_ns, found.cluster, found.state) == (None, None, "CANCELLED")


async def test_members_of_arrays_are_told_and_arrays_are_not(control: Inside) -> None:
    await register(control)
    (array,) = await control.submit("many", array="1-3")
    for index in (1, 2, 3):
        await end(control, f"{array}.{index}", index)
    for archived in (False, True):
        if archived:
            await control.archive()
        assert sorted(await told(control)) == [f"{array}.{index}" for index in (1, 2, 3)]


async def test_a_span_is_of_submissions_and_pages_are_not_seen(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "PAGE", 3)
    rows = [a_finished(f"{number:012}", number) for number in range(10)]
    await control.store.archive.put(rows, control.loop.epoch)
    assert len(await told(control)) == 10
    numbers = [int(job) for job in await told(control, Span(1_003, 1_008))]
    assert numbers == [7, 6, 5, 4, 3]
    numbers = [int(job) for job in await told(control, Span(until=1_008, ended_since=3_006))]
    assert numbers == [7, 6]


def test_rows_of_older_versions_are_ready_when_they_were_submitted_or_may_begin() -> None:
    def ready(**changes: object) -> int:
        return past_job(a_finished(**changes)).ready_ns  # type: ignore[arg-type]

    assert ready(ready=1_200) == 1_200
    assert ready(ready=None, not_before=None) == 1_001
    assert ready(ready=None, not_before=1_500) == 1_500
    assert ready(ready=None, not_before=2_500) == 2_001  # as it started all the same
    assert ready(ready=None, not_before=2_500, started=None) == 2_500
    assert past_job(a_finished(terms=Terms(max_cost=1_500_000, data=7))).max_cost == 1.5
