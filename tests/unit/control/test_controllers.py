"""Leases run out in their own time, and the store is kept small, on a clock set by hand."""

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_terms import lease_terms
from spillover.control.agents.requests import AgentRequests
from spillover.control.controllers.auditing import Auditing
from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.controllers.leases import FORGET_AFTER, Leases
from spillover.core.events import AnyEvent, JobState, SeenNode, Usage
from spillover.core.proposals import (
    Act,
    Change,
    Drain,
    Outcome,
    Register,
    Result,
    SeeCluster,
    SeeNodes,
    Started,
    StartEpoch,
)
from spillover.core.records.jobs import Placed, Running
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.wire.journal import encode_event
from tests.support.inside import Inside

BEAT = 2 * SECOND
SHORT = 4 * BEAT


class Yard:
    """Agents that registered once and are silent since."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.hub = Hub()
        self.requests = AgentRequests(control.loop, self.hub, DAY, BEAT)
        self.leases = Leases(control.loop, self.hub, self.requests)

    def begin_anew(self) -> None:
        """Another server leads on the same book: nobody has registered with it."""
        self.hub = Hub()
        self.requests = AgentRequests(self.control.loop, self.hub, DAY, BEAT)
        self.leases = Leases(self.control.loop, self.hub, self.requests)

    async def restart(self) -> None:
        state = self.control.loop.state
        epoch = StartEpoch(state.facts.epoch + 1, state.facts.clusters, state.facts.policies)
        await self.control.propose(epoch)
        self.begin_anew()

    def status(self, name: str) -> str:
        return self.control.loop.state.agents[f"onprem/{name}"].status

    async def agent(self, name: str) -> None:
        incarnation = self.control.loop.state.facts.incarnations + 1
        key = f"onprem/{name}"
        self.hub.open(key, incarnation, self.control.clock.monotonic(), terms=self.requests.terms())
        await self.control.propose(
            Register(
                ClusterName("onprem"), NodeName(name), incarnation, Resources(1000, 2**40), (), {}, 0, ()
            )
        )
        self.hub.activate(key, incarnation)

    async def start(self, job: str) -> None:
        found = self.control.loop.state.jobs[JobId(job)]
        assert isinstance(found.phase, Placed)
        await self.control.propose(Started(found.phase.key, found.lease, 0))

    def state_of(self, job: str) -> JobState:
        return self.control.loop.state.jobs[JobId(job)].state


@pytest.fixture
async def yard(control: Inside) -> Yard:
    return Yard(control)


async def test_a_lease_without_a_start_lasts_the_short_term(control: Inside, yard: Yard) -> None:
    await yard.agent("n1")
    (job,) = await control.submit("train")
    control.clock.pass_by((SHORT + BEAT) / SECOND)
    await yard.leases.look()
    assert yard.state_of(job) is JobState.PLACED
    control.clock.pass_by(1)
    await yard.leases.look()
    assert yard.state_of(job) is JobState.QUEUED
    assert control.loop.state.nodes["onprem/n1"].status == "lost"


async def test_a_started_task_lasts_as_long_as_its_job_says(control: Inside, yard: Yard) -> None:
    await yard.agent("n1")
    (job,) = await control.submit("train", lost_after="1m")
    await yard.start(job)
    control.clock.pass_by((MINUTE + BEAT) / SECOND)
    await yard.leases.look()
    assert yard.state_of(job) is JobState.RUNNING
    control.clock.pass_by(1)
    await yard.leases.look()
    assert yard.state_of(job) is JobState.QUEUED


async def test_when_many_agents_expire_at_once_reclaiming_is_held_back_for_one_term(
    control: Inside, yard: Yard
) -> None:
    for number in range(5):
        await yard.agent(f"n{number}")
    jobs = await control.submit(*(f"job{number}" for number in range(5)))
    control.clock.pass_by((SHORT + BEAT) / SECOND + 1)
    await yard.leases.look()
    assert {yard.state_of(job) for job in jobs} == {JobState.PLACED}
    control.clock.pass_by(SHORT / SECOND)
    await yard.leases.look()
    assert {yard.state_of(job) for job in jobs} == {JobState.QUEUED}


async def test_agents_that_fell_silent_together_are_held_back_together_whenever_each_was_heard_last(
    control: Inside, yard: Yard
) -> None:
    apart = BEAT / SECOND / 5
    for number in range(5):
        await yard.agent(f"n{number}")
        control.clock.pass_by(apart)
    jobs = await control.submit(*(f"job{number}" for number in range(5)))
    control.clock.pass_by((SHORT + BEAT) / SECOND - 4.5 * apart)
    for _ in jobs:  # one after the other runs out
        await yard.leases.look()
        assert {yard.state_of(job) for job in jobs} == {JobState.PLACED}
        control.clock.pass_by(apart)


async def test_an_agent_whose_stream_ended_is_lost_a_heartbeat_later_and_one_without_a_stream_yet_is_not(
    control: Inside, yard: Yard
) -> None:
    for name in ("left", "new"):
        await yard.agent(name)
    session = yard.hub.session(1)
    assert session is not None
    stream = session.messages(1)
    session.nudge()
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    control.clock.pass_by(BEAT / SECOND + 1)
    await yard.leases.look()
    assert (yard.status("left"), yard.status("new")) == ("lost", "ready")


async def test_an_agent_that_does_not_come_back_after_a_restart_is_lost_like_any_other(
    control: Inside, yard: Yard
) -> None:
    await yard.agent("n1")
    (job,) = await control.submit("train", lost_after="1m")
    await yard.start(job)
    await yard.restart()
    control.clock.pass_by(SHORT / SECOND)
    await yard.leases.look()
    assert yard.status("n1") == "unobserved"
    control.clock.pass_by(1)
    await yard.leases.look()
    assert yard.status("n1") == "lost"
    assert yard.state_of(job) is JobState.RUNNING, "its leases last as long as they would"
    control.clock.pass_by(MINUTE / SECOND)
    await yard.leases.look()
    assert yard.state_of(job) is JobState.QUEUED


async def test_an_agent_that_is_lost_for_long_and_holds_nothing_leaves_the_book_by_itself(
    control: Inside, yard: Yard
) -> None:
    for name in ("idle", "drained", "busy"):
        await yard.agent(name)
    await control.propose(Drain(ClusterName("onprem"), NodeName("drained"), "ada"))
    jobs = await control.submit("one", "two", lost_after="30d")
    for job in jobs:
        await yard.start(job)
    busy = {control.loop.state.jobs[JobId(job)].phase.node for job in jobs}  # type: ignore[union-attr]
    assert busy == {"idle", "busy"}
    ended = control.loop.state.jobs[JobId(jobs[0])]
    assert isinstance(ended.phase, Running)
    await control.propose(Result(ended.phase.key, ended.lease, Outcome.EXITED, 0, None, Usage(), 0))
    control.clock.pass_by((SHORT + BEAT) / SECOND)
    await yard.leases.look()
    assert {yard.status(name) for name in ("idle", "drained", "busy")} == {"lost"}
    control.clock.pass_by((FORGET_AFTER - MINUTE) / SECOND)
    await yard.leases.look()
    assert len(control.loop.state.agents) == 3
    control.clock.pass_by(2 * MINUTE / SECOND)
    await yard.leases.look()
    assert len(control.loop.state.agents) == 2
    assert "onprem/drained" in control.loop.state.agents, "it would come back ready"


async def test_the_time_without_a_server_is_not_counted_until_an_agent_is_forgotten(
    control: Inside, yard: Yard
) -> None:
    await yard.agent("n1")
    control.clock.pass_by((SHORT + BEAT) / SECOND)
    await yard.leases.look()
    away = 2 * FORGET_AFTER
    control.clock.pass_by(away / SECOND)
    facts = control.loop.state.facts
    await control.propose(StartEpoch(facts.epoch + 1, facts.clusters, facts.policies, away))
    yard.begin_anew()
    await yard.leases.look()
    assert yard.status("n1") == "lost"
    control.clock.pass_by((FORGET_AFTER + SECOND) / SECOND)
    await yard.leases.look()
    assert not control.loop.state.agents


async def test_agents_that_are_lost_neither_lengthen_heartbeats_nor_hide_that_many_expire_at_once(
    control: Inside, yard: Yard
) -> None:
    for number in range(20):
        await yard.agent(f"gone{number}")
    control.clock.pass_by((SHORT + BEAT) / SECOND)
    await yard.leases.look()
    requests = AgentRequests(control.loop, yard.hub, DAY)
    assert requests.terms() == lease_terms(0)
    for number in range(5):
        await yard.agent(f"n{number}")
    assert requests.terms() == lease_terms(5)
    assert requests.longest_terms() == lease_terms(25)
    jobs = await control.submit(*(f"job{number}" for number in range(5)))
    control.clock.pass_by((SHORT + BEAT) / SECOND + 1)
    await yard.leases.look()
    assert {yard.state_of(job) for job in jobs} == {JobState.PLACED}, "delaying the reclaim"


async def test_a_checkpoint_is_written_once_changes_are_old_enough(control: Inside) -> None:
    keeping = Keeping(
        control.loop, control.store.journal, control.store.archive, control.store.audit, Retention()
    )
    await control.submit("train")
    await keeping.look()
    assert (await control.store.journal.load()).checkpoint == 0
    control.clock.pass_by(31)
    await keeping.look()
    loaded = await control.store.journal.load()
    assert loaded.checkpoint == loaded.last == control.loop.applied
    assert not control.loop.state.dirty


async def test_a_sweep_forgets_what_is_old_and_keeps_specs_that_are_used(control: Inside) -> None:
    keeping = Keeping(
        control.loop, control.store.journal, control.store.archive, control.store.audit, Retention(DAY, DAY)
    )
    gone, kept = await control.submit("gone"), await control.submit("kept", priority=3)
    await control.propose(Change(Act.CANCEL, (JobId(gone[0]),), "ada"))
    specs = [control.loop.state.jobs[JobId(job)].spec for job in (gone[0], kept[0])]
    await control.archive()
    control.clock.pass_by(2 * DAY / SECOND)
    await control.submit("later", priority=4)
    await control.loop.checkpoints.write()
    await Auditing(control.loop, control.store.journal, control.store.archive, control.store.audit).catch_up()
    await keeping.sweep()
    assert await control.store.archive.count() == 0
    assert list(await control.store.journal.blobs(specs)) == specs[1:]
    assert await control.store.journal.oldest() > 1


@pytest.mark.parametrize("kept", [0, 1, 5, 9, 20])
async def test_a_sweep_forgets_all_events_that_are_old_and_no_other(control: Inside, kept: int) -> None:
    keeping = Keeping(
        control.loop,
        control.store.journal,
        control.store.archive,
        control.store.audit,
        Retention(DAY, kept * DAY),
    )
    for _ in range(10):
        control.clock.pass_by(DAY / SECOND)
        await control.submit("daily")
    await control.loop.checkpoints.write()
    events = [each async for each in control.store.journal.tail(0)]
    await Auditing(control.loop, control.store.journal, control.store.archive, control.store.audit).catch_up()
    await keeping.sweep()
    left = [each async for each in control.store.journal.tail(0)]
    assert left == [each for each in events if each.at >= control.loop.now() - kept * DAY]


async def test_nodes_of_a_cluster_that_others_run_hold_no_leases_that_could_run_out(
    control: Inside, yard: Yard
) -> None:
    specs = (ClusterSpec(ClusterName("kube"), "kubernetes", Role.OWNED),)
    await control.propose(StartEpoch(2, specs, control.loop.state.facts.policies))
    node = SeenNode(NodeName("n1"), Resources(1000, 2**40), Resources())
    await control.propose(SeeNodes(ClusterName("kube"), (node,)))
    await control.propose(SeeCluster(ClusterName("kube"), ClusterHealth.READY))
    (job,) = await control.submit("train")
    assert yard.state_of(job) is JobState.PLACED
    control.clock.pass_by(DAY / SECOND)
    await yard.leases.look()
    assert yard.state_of(job) is JobState.PLACED
    assert control.loop.state.nodes["kube/n1"].status == "ready"
    assert yard.requests.terms().heartbeat == BEAT


async def test_a_lease_that_cannot_be_reclaimed_is_set_aside_and_the_others_are(
    control: Inside, yard: Yard
) -> None:
    await control.propose(
        Register(ClusterName("onprem"), NodeName("n1"), 1, Resources(3000, 2**40), (), {}, 0, ())
    )
    jobs = await control.submit("a", "b", "c")

    def encode(event: AnyEvent) -> bytes:
        if bad and getattr(event, "job", None) == jobs[1]:
            raise OverflowError("too large")
        return encode_event(event)

    bad = True
    control.loop.engine._encode = encode
    control.clock.pass_by((SHORT + BEAT) / SECOND + 1)
    await yard.leases.look()
    assert [yard.state_of(job) for job in jobs] == [JobState.QUEUED, JobState.PLACED, JobState.QUEUED]
    (failed,) = control.loop.aside
    assert (failed.work, failed.subject) == ("leases", jobs[1])
    await yard.leases.look()
    assert next(iter(control.loop.aside)).tries == 1  # it is not its time yet
    bad = False
    control.clock.pass_by(1)
    await yard.leases.look()
    assert yard.state_of(jobs[1]) is JobState.QUEUED
