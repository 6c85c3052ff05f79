"""What was spent, counted once wherever a job is; budgets as they are shown; and the time that a cap pays for on its way to the agent."""

import asyncio

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.controllers.archiving import finished_of
from spillover.control.views.costs import budget_views, cost_report
from spillover.core.events import Usage
from spillover.core.proposals import Outcome, Result, Started, StartEpoch
from spillover.core.records.jobs import Placed, Running
from spillover.model.budget import Budget, Of, Per, period_of
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import DAY, MONEY, SECOND, parse_time
from spillover.ports.archive import COST_BY
from spillover.testing.world import OWNED, RENTED
from spillover.wire import agents_pb2 as pb
from tests.support.inside import Inside

ZERO = PolicySet(wait=Choice("zero"))


async def begin(control: Inside, *budgets: Budget) -> Hub:
    """A rented machine with room; renting costs 0.001 for each CPU-second."""
    await control.propose(StartEpoch(control.loop.epoch, (OWNED, RENTED), ZERO, 0, budgets))
    hub = Hub()
    requests = AgentRequests(control.loop, hub, DAY)
    intro = Introduction(ClusterName("cloud"), NodeName("v1"), Resources(8000), (), {}, 0, (), 0)
    await requests.register(intro)
    return hub


async def start(control: Inside, job: str) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed)
    await control.propose(Started(found.phase.key, found.lease, 0))


async def end(control: Inside, job: str, seconds: int, code: int = 0) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed | Running)
    usage = Usage(seconds * SECOND)
    await control.propose(Result(found.phase.key, found.lease, Outcome.EXITED, code, None, usage, 0))


async def test_a_job_counts_once_whether_it_runs_has_ended_or_is_archived(control: Inside) -> None:
    await begin(control)
    done, tried, running = await control.submit("done", "tried", "running", retry={"exit": 1})
    for job in (done, tried, running):
        await start(control, job)
    await end(control, done, 10)
    await end(control, tried, 20, 1)
    control.clock.pass_by(5)
    for archived in (False, True):
        if archived:
            await control.archive()
            assert JobId(done) not in control.loop.state.jobs
        keys = []
        for by in COST_BY:
            report = await cost_report(control.loop, control.store.archive, by, None, "USD")
            assert (report.total.cost, report.total.jobs) == (0.03, 3), by
            assert report.total.running == 0.005
            keys += [row.key for row in report.rows]
        assert keys[-3:] == ["2027-01-15", "2027-W02", "2027-01"]
    later = control.loop.now() + 1
    report = await cost_report(control.loop, control.store.archive, "cluster", later, "USD")
    assert (report.total.cost, report.total.running, [row.key for row in report.rows]) == (
        0.0,
        0.005,
        ["cloud"],
    )


async def test_what_is_archived_but_still_in_the_state_counts_once(control: Inside) -> None:
    await begin(control)
    (job,) = await control.submit("a")
    await start(control, job)
    await end(control, job, 10)
    row = finished_of(control.loop.state.jobs[JobId(job)])
    assert row is not None
    await control.store.archive.put([row], control.loop.epoch)
    report = await cost_report(control.loop, control.store.archive, "user", None, "USD")
    assert (report.total.cost, report.total.jobs) == (0.01, 1)


async def test_budgets_for_all_are_shown_for_those_who_spent_of_them(control: Inside) -> None:
    every = Budget(Of.PROJECT, "*", Per.MONTH, MONEY)
    own = Budget(Of.PROJECT, "vision", Per.MONTH, 2 * MONEY)
    await begin(control, every, own)
    state = control.loop.state
    assert [(one.name, one.left) for one in budget_views(state, control.loop.now())] == [
        ("*", 1.0),
        ("vision", 2.0),
    ]
    (job,) = await control.submit("a", walltime="1m")
    first, second = budget_views(state, control.loop.now())
    assert (first.name, first.held, first.left, first.period) == ("default", 0.1, 0.9, "2027-01")
    assert first.ends_at == "2027-02-01T00:00:00.000000Z"
    await start(control, job)
    await end(control, job, 10)
    first, second = budget_views(state, control.loop.now())
    assert (first.spent, first.held, first.over) == (0.01, 0.0, 0.0)
    assert second.name == "vision"


async def test_the_time_that_a_cap_pays_for_is_the_walltime_that_the_agent_is_given(control: Inside) -> None:
    hub = await begin(control)
    runner = LeaseSender(control.loop, hub, control.specs)
    running = asyncio.create_task(runner.run())
    try:
        requests = AgentRequests(control.loop, hub, DAY)
        await requests.register(
            Introduction(ClusterName("cloud"), NodeName("v2"), Resources(9000), (), {}, 0, (), 0)
        )
        await control.submit("a", max_cost=1, resources={"cpu": 9})
        session = hub.session(control.loop.state.facts.incarnations)
        assert session is not None
        grants: list[pb.Grant] = []
        async with asyncio.timeout(10):
            async for message in session.messages(1):
                grants += message.grants
                if grants:
                    break
        assert [grant.task.walltime // SECOND for grant in grants] == [111 - 40]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_budget_tells_when_it_will_be_used_up_at_the_pace_so_far(control: Inside) -> None:
    day = Budget(Of.PROJECT, "default", Per.DAY, MONEY // 10)
    await begin(control, day, Budget(Of.PROJECT, "default", Per.EVER, MONEY))
    now = control.loop.now()
    since = period_of(Per.DAY, now).since
    assert since <= now < period_of(Per.DAY, now).until
    daily, ever = budget_views(control.loop.state, now)
    assert (daily.runs_out_at, ever.runs_out_at) == (None, None), "nothing was spent"
    (job,) = await control.submit("job", walltime="40s")
    await start(control, job)
    await end(control, job, 40)
    control.clock.pass_by(3600)
    now = control.loop.now()
    daily, ever = budget_views(control.loop.state, now)
    assert daily.runs_out_at is not None
    pace = daily.spent / (now - since)
    assert parse_time(daily.runs_out_at) == pytest.approx(now + daily.left / pace, abs=SECOND)
    assert ever.runs_out_at is None, "it has no pace"
    assert budget_views(control.loop.state, since + 60 * SECOND)[0].runs_out_at is None, "too early to say"
