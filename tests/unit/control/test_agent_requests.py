"""What agents are told: which registration counts, what to stop, what to give back."""

import pytest
from msgspec.structs import replace

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, AgentWelcome, Introduction
from spillover.core.events import AnyEvent, JobState, Lease, Usage
from spillover.core.proposals import Act, AgentGone, Change, CreateToken, Outcome, Result, Started, Verdict
from spillover.core.records.jobs import Ended
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.reasons import ReportUnusable
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY, SECOND
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.journal import encode_event
from tests.support.inside import Inside

NODE = NodeName("n1")
HOLDER = NodeKey("onprem/n1")


class Agent:
    """One agent that speaks to a requests."""

    def __init__(self, control: Inside, cpus: int = 1) -> None:
        self.control = control
        self.cpus = cpus
        self.hub = Hub()
        self.requests = AgentRequests(control.loop, self.hub, DAY)
        self.runner = LeaseSender(control.loop, self.hub, control.specs)

    async def register(self, *held: Lease, epoch: int = 0) -> AgentWelcome:
        intro = Introduction(
            ClusterName("onprem"), NODE, Resources(1000 * self.cpus, 2**40), (), {}, 0, tuple(held), epoch
        )
        return await self.requests.register(intro)


async def test_an_older_registration_is_fenced_and_its_results_are_not_answered(control: Inside) -> None:
    agent = Agent(control)
    (job,) = await control.submit("train")
    first = await agent.register()
    lease = control.lease(job)
    second = await agent.register(lease)
    assert second.keep == (lease,)
    assert second.incarnation > first.incarnation
    done = Result(HOLDER, lease, Outcome.EXITED, 0, None, Usage(1), 0)
    stale = await agent.requests.report(first.incarnation, [], [done], [])
    assert (stale.fenced, stale.verdicts) == (True, [])
    assert (await agent.requests.heartbeat(first.incarnation)).fenced
    fresh = await agent.requests.report(second.incarnation, [], [done], [])
    assert (fresh.fenced, fresh.verdicts) == (False, [Verdict.ACCEPTED])


async def test_an_agent_that_was_given_up_registers_anew_instead_of_being_fenced(control: Inside) -> None:
    agent = Agent(control)
    (job,) = await control.submit("train")
    welcome = await agent.register()
    lease = control.lease(job)
    await agent.requests.report(welcome.incarnation, [Started(HOLDER, lease, 0)], [], [])
    await control.propose(AgentGone(ClusterName("onprem"), NODE, welcome.incarnation))
    with pytest.raises(CommandError) as caught:
        await agent.requests.heartbeat(welcome.incarnation)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert (await agent.register(lease)).keep == (lease,)


async def test_a_heartbeat_is_answered_with_what_is_to_be_stopped(control: Inside) -> None:
    agent = Agent(control)
    (job,) = await control.submit("train")
    welcome = await agent.register()
    lease = control.lease(job)
    assert (await agent.requests.heartbeat(welcome.incarnation)).stops == ()
    await control.propose(Change(Act.CANCEL, (JobId(job),), "ada"))
    for _ in range(2):  # again and again, until it is confirmed
        assert (await agent.requests.heartbeat(welcome.incarnation)).stops == (lease,)


async def test_an_agent_that_has_seen_a_newer_epoch_is_not_taken_in(control: Inside) -> None:
    agent = Agent(control)
    with pytest.raises(CommandError) as caught:
        await agent.register(epoch=control.loop.epoch + 1)
    assert caught.value.kind is ErrorKind.NOT_LEADER


async def test_a_lease_of_before_a_new_registration_is_never_sent(control: Inside) -> None:
    agent = Agent(control)
    await control.submit("train")
    await agent.register()
    first = agent.runner._grants.copy()
    assert len(first) == 1
    await agent.register()  # names nothing: what was granted before is void
    agent.runner._grants.clear()
    await agent.runner._hand_out(first)
    session = agent.hub.session(control.loop.state.facts.incarnations)
    assert session is not None
    assert not session._starts


async def test_a_stranger_does_not_pass_for_a_later_life_of_an_agent(control: Inside) -> None:
    agent = Agent(control)

    def intro(token: str, life: str, number: int) -> Introduction:
        about = Introduction(ClusterName("onprem"), NODE, Resources(1000, 2**40), (), {}, 0, (), 0)
        return replace(about, token=token, admin=False, life=life, number=number)

    for token in ("own", "other"):
        await control.propose(CreateToken(token, TokenRole.AGENT, b"", "ada"))
    await agent.requests.register(intro("own", "first", 1))
    agent.hub.heard(f"onprem/{NODE}", 1, control.loop.time.monotonic())
    with pytest.raises(CommandError, match="belongs to an agent with token own"):
        await agent.requests.register(intro("other", "second", 1))
    await agent.requests.register(intro("own", "first", 2))


async def test_a_stop_says_whether_it_is_for_a_walltime_or_deadline(control: Inside) -> None:
    agent = Agent(control)
    late, unwanted = await control.submit(
        "late", "unwanted", walltime="1m", grace="1s", resources={"cpu": "500m"}
    )
    welcome = await agent.register()
    leases = [control.lease(job) for job in (late, unwanted)]
    await agent.requests.report(welcome.incarnation, [Started(HOLDER, lease, 0) for lease in leases], [], [])
    await control.propose(Change(Act.CANCEL, (JobId(unwanted),), "ada"))
    control.clock.pass_by(2 * 60)
    await control.propose(Change(Act.CANCEL, (), "ada"))  # has the alarm heard
    orders = await agent.requests.heartbeat(welcome.incarnation)
    assert orders.stops == tuple(leases)
    assert orders.overdue == {leases[0]}
    # A person may want it gone although its walltime lets it bring its files away.
    await control.propose(Change(Act.CANCEL, (JobId(late),), "ada"))
    assert not (await agent.requests.heartbeat(welcome.incarnation)).overdue


async def test_a_task_whose_outputs_arrive_after_its_walltime_has_succeeded(control: Inside) -> None:
    agent = Agent(control)
    (job,) = await control.submit("train", walltime="1m", grace="1s")
    welcome = await agent.register()
    lease = control.lease(job)
    await agent.requests.report(welcome.incarnation, [Started(HOLDER, lease, 0)], [], [])
    control.clock.pass_by(10 * 60)
    assert (await agent.requests.heartbeat(welcome.incarnation)).fenced is False
    await control.propose(Change(Act.CANCEL, (), "ada"))
    assert (await agent.requests.heartbeat(welcome.incarnation)).overdue == {lease}
    done = Result(HOLDER, lease, Outcome.EXITED, 0, None, Usage(59 * SECOND), 0)
    await agent.requests.report(welcome.incarnation, [], [done], [])
    assert control.loop.state.jobs[JobId(job)].state is JobState.SUCCEEDED


def breaking(control: Inside, *jobs: str) -> None:
    """Events of these jobs cannot be written, unless they end as unusable."""

    def encode(event: AnyEvent) -> bytes:
        if getattr(event, "job", None) in jobs and type(getattr(event, "why", None)) is not ReportUnusable:
            raise OverflowError("too large")
        return encode_event(event)

    control.loop.engine._encode = encode


async def test_a_result_that_cannot_be_decided_ends_its_job_and_is_answered(control: Inside) -> None:
    agent = Agent(control, cpus=2)
    jobs = await control.submit("bad", "good")
    incarnation = (await agent.register()).incarnation
    leases = [control.lease(job) for job in jobs]
    breaking(control, jobs[0])
    results = [Result(HOLDER, lease, Outcome.EXITED, 0, None, Usage(1), 0) for lease in leases]
    starts = [Started(HOLDER, lease, 0) for lease in leases]
    answers = await agent.requests.report(incarnation, starts, results, [])
    assert (answers.started, answers.verdicts) == ([leases[1]], [Verdict.ACCEPTED, Verdict.ACCEPTED])
    phase = control.loop.state.jobs[JobId(jobs[0])].phase
    assert isinstance(phase, Ended)
    assert phase.state is JobState.FAILED
    assert "internal error (OverflowError: too large); nothing was changed" in str(phase.why)


async def test_a_lease_that_cannot_be_handed_back_keeps_no_other_from_that(control: Inside) -> None:
    agent = Agent(control, cpus=2)
    jobs = await control.submit("bad", "good")
    incarnation = (await agent.register()).incarnation
    leases = [control.lease(job) for job in jobs]
    breaking(control, jobs[0])
    await agent.requests.report(incarnation, [], [], leases)
    assert [control.loop.state.jobs[JobId(job)].seq for job in jobs] == [leases[0].seq, leases[1].seq + 2]


async def test_a_registration_that_cannot_be_decided_is_told_as_a_fault_of_ours(control: Inside) -> None:
    def encode(_: AnyEvent) -> bytes:
        raise OverflowError("too large")

    control.loop.engine._encode = encode
    with pytest.raises(CommandError, match="too large") as refused:
        await Agent(control).register()
    assert refused.value.kind is ErrorKind.INTERNAL
