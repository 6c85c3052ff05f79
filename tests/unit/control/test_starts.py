"""Expected starts of a server: who gets them, and how forecasts are shared."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.requests import starts
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.policies import PolicyRequests
from spillover.core.proposals import Act, Change
from spillover.deciding.expected import StartForecast
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.ports.commands import JobQuery
from spillover.wire.api import PolicyPatch
from tests.support.inside import Inside, form

HOUR = {"estimate": "1h", "resources": {"cpu": 8}}


@pytest.fixture
async def commands(control: Inside) -> LiveCommands:
    intro = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(8000), (), {}, 0, (), 0)
    await AgentRequests(control.loop, Hub(), DAY).register(intro)
    store = control.store
    parts = Parts(
        control.loop,
        store.journal,
        store.archive,
        Hub(),
        control.specs,
        control.lookup,
        control.submitting,
    )
    return LiveCommands(parts)


async def test_a_pending_member_of_an_array_is_told_of_and_not_its_array(
    control: Inside, commands: LiveCommands
) -> None:
    await control.submit("running", resources={"cpu": 8})
    (array,) = await control.submit("sweep", array="0-9")
    of_array, of_member = await commands.why(array), await commands.why(f"{array}.6")
    assert of_array.sentence.startswith(f"{array} has waited 0s: ")
    assert of_member.sentence.startswith(f"{array}.6 has waited 0s: ")
    assert of_member.id == f"{array}.6"
    assert (of_array.ahead, of_member.ahead) == (0, 6)
    assert "6 jobs are ahead of it" in of_member.sentence
    assert (of_array.estimated_cost, of_member.estimated_cost) != (None, None)
    assert of_member.estimated_cost == pytest.approx((of_array.estimated_cost or 0) / 10)


async def test_a_waiting_job_has_an_expected_start_and_a_running_one_has_none(
    control: Inside, commands: LiveCommands
) -> None:
    running, waits = await control.submit("running", "waits", **HOUR)
    assert (await commands.why(running)).expected_start is None
    why = await commands.why(waits)
    assert why.expected_start is not None
    assert why.expected_start_note is None
    ends = (await commands.why(running)).ends_at
    assert (why.expected_start.p50, why.expected_start.p90) == (ends, ends)
    assert (await commands.job(waits)).expected_start == why.expected_start


async def test_a_list_has_expected_starts_if_it_is_asked_or_they_are_known(
    control: Inside, commands: LiveCommands
) -> None:
    await control.submit("running", "waits", **HOUR)
    assert [job.expected_start for job in (await commands.jobs(JobQuery())).jobs] == [None, None]
    asked = (await commands.jobs(JobQuery(starts=True))).jobs
    assert [job.expected_start is not None for job in asked] == [True, False]
    assert (await commands.jobs(JobQuery())).jobs == asked


async def test_a_forecast_is_made_again_when_something_has_happened(
    control: Inside, commands: LiveCommands
) -> None:
    _, waits, last = await control.submit("running", "waits", "last", **HOUR)
    before = (await commands.why(last)).expected_start
    await control.propose(Change(Act.CANCEL, (JobId(waits),), "ada"))
    control.clock.pass_by(1)
    after = (await commands.why(last)).expected_start
    assert before is not None
    assert after is not None
    assert str(after.p50) < str(before.p50)


async def test_a_job_submitted_since_the_last_forecast_has_one_too(
    control: Inside, commands: LiveCommands
) -> None:
    await control.submit("running", **HOUR)
    (first,) = await control.submit("first", **HOUR)
    await commands.why(first)
    (second,) = await control.submit("second", **HOUR)
    assert (await commands.why(second)).expected_start is not None


async def test_a_held_job_and_one_that_never_starts_have_no_expected_start(
    control: Inside, commands: LiveCommands
) -> None:
    _, held = await control.submit("running", "held", **HOUR)
    await control.propose(Change(Act.HOLD, (JobId(held),), "ada"))
    why = await commands.why(held)
    assert (why.expected_start, why.expected_start_note) == (None, None)
    (elsewhere,) = await control.submit("elsewhere", needs=["gpu:a100"])
    why = await commands.why(elsewhere)
    assert why.expected_start is None
    assert why.expected_start_note == "it does not start if nothing changes, or starts too far ahead to tell"


async def test_who_asks_while_a_forecast_takes_long_is_told_so(
    control: Inside, commands: LiveCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "PATIENCE", 0.0)
    _, waits = await control.submit("running", "waits", **HOUR)
    why = await commands.why(waits)
    assert (why.expected_start, why.expected_start_note) == (
        None,
        "the server still computes it; ask again in some seconds",
    )
    monkeypatch.setattr(starts, "PATIENCE", 10.0)
    assert (await commands.why(waits)).expected_start is not None


async def test_a_dry_run_tells_when_a_job_would_start(control: Inside, commands: LiveCommands) -> None:
    await PolicyRequests(control.loop).change(PolicyPatch("backfill=conservative"), "ada")
    running, waits = await control.submit("running", "waits", **HOUR)
    del running
    before = (await commands.why(waits)).expected_start
    (tried,) = (await commands.forecast([form("tried", **HOUR)], "ada")).jobs
    assert tried.expected_start is not None
    assert before is not None
    assert str(tried.expected_start.p50) > str(before.p50)
    assert "tried" not in [job.name for job in control.loop.state.jobs.values()]


async def test_a_server_that_stops_ends_its_forecast(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    def endless(*_: object, enough: Callable[[], bool], **options: object) -> StartForecast:
        del options
        began.set()
        while not enough():
            pass
        ended.set()
        return StartForecast({}, {})

    await control.submit("waits")
    monkeypatch.setattr(starts, "expected_starts", endless)
    forecasts = starts.StartForecasts(control.loop)
    making = asyncio.create_task(forecasts.of_all())
    await asyncio.to_thread(began.wait, 10)
    for task in asyncio.all_tasks():
        if task.get_coro().__qualname__.endswith("StartForecasts._forecast"):  # type: ignore[union-attr]
            task.cancel()
    assert await asyncio.to_thread(ended.wait, 10)
    with contextlib.suppress(asyncio.CancelledError):
        await making
