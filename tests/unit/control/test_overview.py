"""A glance at the server: who is next, what runs, what ended of late and what an hour costs."""

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.live.clock import OtherClocks
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.views.overview import head_of_queue
from spillover.core.events import Usage
from spillover.core.proposals import Outcome, Result, Started, StartEpoch
from spillover.core.records.jobs import Placed, Running
from spillover.forms.jobs.reading import JobForm, read_job
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.ports.commands import CommandError, ErrorKind
from spillover.testing.world import OWNED, RENTED
from tests.support.inside import Inside


def form(name: str, project: str, cpu: int = 1) -> JobForm:
    return read_job(
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": name, "project": project},
            "spec": {"run": "true", "resources": {"cpu": cpu}},
        }
    )


async def begin(control: Inside, *, cpus: int = 2, order: str = "fifo", wait: str = "never") -> LiveCommands:
    """One machine of our own and one that is rented."""
    policies = PolicySet(order=Choice(order), wait=Choice(wait))
    await control.propose(StartEpoch(control.loop.epoch, (OWNED, RENTED), policies, 0))
    hub = Hub()
    requests = AgentRequests(control.loop, hub, DAY)
    for cluster, name in (("onprem", "n1"), ("cloud", "v1")):
        intro = Introduction(ClusterName(cluster), NodeName(name), Resources(cpus * 1000), (), {}, 0, (), 0)
        await requests.register(intro)
    return LiveCommands(
        Parts(
            control.loop,
            control.store.journal,
            control.store.archive,
            hub,
            control.specs,
            control.lookup,
            control.submitting,
        )
    )


async def start(control: Inside, job: str) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed)
    await control.propose(Started(found.phase.key, found.lease, 0))


async def end(control: Inside, job: str) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed | Running)
    usage = Usage(SECOND)
    await control.propose(Result(found.phase.key, found.lease, Outcome.EXITED, 0, None, usage, 0))


async def test_the_head_of_the_queue_is_in_the_order_in_which_jobs_are_tried(control: Inside) -> None:
    commands = await begin(control, order="priority")
    await control.submit("running", resources={"cpu": 2})
    low = await control.submit("low1", "low2", priority=1)
    wide = await control.submit("wide", priority=2, resources={"cpu": 2})
    high = await control.submit("high1", "high2", priority=3)
    array = await control.submit("array", priority=2, array="1-1000")
    shown = await commands.overview(10, 4, 10)
    assert [job.id for job in shown.queued] == [*high, *wide, *array]
    assert all(job.reason is not None for job in shown.queued)
    assert shown.server.queued == 2 + 1 + 2 + 1000
    assert [job.id for job in (await commands.overview(0, 100, 0)).queued] == [*high, *wide, *array, *low]


async def test_the_head_follows_ranks_of_projects(control: Inside) -> None:
    commands = await begin(control, order="fair_share")
    await control.submitting.submit([form("busy", "a", 2)], "ada")
    control.clock.pass_by(600)
    first = await control.submitting.submit([form("a1", "a"), form("a2", "a"), form("b1", "b")], "ada")
    shown = await commands.overview(10, 10, 10)
    assert [job.id for job in shown.queued] == [first[2], first[0], first[1]]
    assert [job.id for job in head_of_queue(control.loop.engine, 1, "a")] == [first[0]]


async def test_what_runs_longest_comes_first_and_each_job_once(control: Inside) -> None:
    commands = await begin(control)
    one, two, waits = await control.submit("one", "two", "waits")
    await start(control, two)
    control.clock.pass_by(1)
    shown = await commands.overview(10, 10, 10)
    assert [job.id for job in shown.running] == [two, one]
    assert shown.running_in_all == 2
    assert [job.id for job in shown.queued] == [waits]
    shown = await commands.overview(1, 0, 1)
    assert ([job.id for job in shown.running], shown.running_in_all) == ([two], 2)
    assert ([agent.name for agent in shown.agents], shown.agents_in_all) == (["n1"], 2)
    assert shown.queued == []


async def test_what_ended_is_counted_for_a_minute_and_an_array_by_its_members(control: Inside) -> None:
    commands = await begin(control, cpus=4)
    (array,) = await control.submit("array", array="1-2")
    for member in (f"{array}.1", f"{array}.2"):
        await start(control, member)
        await end(control, member)
        control.clock.pass_by(30)
    assert (await commands.overview(0, 0, 0)).ended_a_minute == 1  # the first ended a minute ago
    control.clock.pass_by(29)
    assert (await commands.overview(0, 0, 0)).ended_a_minute == 1
    control.clock.pass_by(2)
    assert (await commands.overview(0, 0, 0)).ended_a_minute == 0


async def test_an_hour_costs_what_runs_on_rented_capacity(control: Inside) -> None:
    commands = await begin(control, wait="zero")
    owned, rented = await control.submit("owned", "rented", resources={"cpu": 2})
    for job in (owned, rented):
        assert (await commands.overview(0, 0, 0)).cost_an_hour == 0.0
        await start(control, job)
    price = (await commands.clusters())[1].price["cpu_hour"]
    assert (await commands.overview(0, 0, 0)).cost_an_hour == 2 * price > 0


YEAR = 365 * DAY


async def test_a_clock_that_is_believed_is_followed_and_there_is_nothing_to_accept(control: Inside) -> None:
    commands = await begin(control)
    view = await commands.clock()
    assert (view.state, view.now, view.differs_s) == ("followed", view.wall, 0.0)
    assert (await commands.server()).clock is None
    with pytest.raises(CommandError, match="nothing to accept") as refused:
        await commands.accept_clock("ada")
    assert refused.value.kind is ErrorKind.CONFLICT


async def test_a_clock_that_is_held_back_is_told_and_followed_once_it_is_accepted(control: Inside) -> None:
    commands = await begin(control)
    true = (await commands.clock()).now
    control.clock.at += YEAR
    view = await commands.clock()
    assert (view.state, view.now, view.differs_s) == ("held", true, YEAR / SECOND)
    assert "spill clock accept" in view.message
    assert (await commands.overview(1, 1, 1)).server.clock == view.message
    view = await commands.accept_clock("ada")
    assert (view.state, view.now) == ("followed", view.wall)


async def test_a_clock_that_was_set_back_is_told(control: Inside) -> None:
    commands = await begin(control)
    control.clock.at -= YEAR
    view = await commands.clock()
    assert (view.state, view.differs_s) == ("behind", -YEAR / SECOND)
    with pytest.raises(CommandError, match="never goes back"):
        await commands.accept_clock("ada")


async def test_agents_of_other_machines_say_what_time_it_is(control: Inside) -> None:
    commands = await begin(control)
    control.loop.clocks = OtherClocks(here="this machine")
    hub = Hub()
    requests = AgentRequests(control.loop, hub, DAY)
    LeaseSender(control.loop, hub, control.specs)  # which makes registrations count
    for name, boot, ahead in (("n1", "this machine", 0), ("n2", "that machine", 0), ("n3", "a third", YEAR)):
        intro = Introduction(
            ClusterName("onprem"), NodeName(name), Resources(1000), (), {}, 0, (), 0, boot=boot
        )
        welcome = await requests.register(intro)
        assert welcome.now == control.loop.now()
        await requests.heartbeat(welcome.incarnation, wall=control.clock.wall() + ahead)
    view = await commands.clock()
    assert (view.agree, view.disagree) == (1, 1)
