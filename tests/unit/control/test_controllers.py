"""Leases run out in their own time, and the store is kept small, on a clock set by hand."""

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents import Desk
from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.controllers.leases import Leases
from spillover.core.events import AnyEvent, JobState, SeenNode
from spillover.core.jobs import Placed
from spillover.core.proposals import Act, Change, Register, SeeCluster, SeeNodes, Started, StartEpoch
from spillover.model.cluster import ClusterSpec, Health, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.testing.inside import Inside
from spillover.wire.journal import encode_event

BEAT = 2 * SECOND
SHORT = 4 * BEAT


class Yard:
    """Agents that registered once and are silent since."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.hub = Hub()
        self.desk = Desk(control.loop, self.hub, DAY, BEAT)
        self.leases = Leases(control.loop, self.hub, self.desk)

    async def agent(self, name: str) -> None:
        incarnation = self.control.loop.state.facts.incarnations + 1
        key = f"onprem/{name}"
        self.hub.open(key, incarnation, self.control.clock.monotonic())
        await self.control.propose(
            Register(
                ClusterName("onprem"), NodeName(name), incarnation, Resources(1000, 2**40), (), {}, 0, ()
            )
        )
        self.hub.activate(key, incarnation)

    async def start(self, job: str) -> None:
        found = self.control.loop.state.jobs[JobId(job)]
        assert isinstance(found.phase, Placed)
        await self.control.propose(Started(found.phase.node, found.lease, 0))

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


async def test_a_checkpoint_is_written_once_changes_are_old_enough(control: Inside) -> None:
    keeping = Keeping(control.loop, control.store.journal, control.store.archive, Retention())
    await control.submit("train")
    await keeping.look()
    assert (await control.store.journal.load()).checkpoint == 0
    control.clock.pass_by(31)
    await keeping.look()
    loaded = await control.store.journal.load()
    assert loaded.checkpoint == loaded.last == control.loop.applied
    assert not control.loop.state.dirty


async def test_a_sweep_forgets_what_is_old_and_keeps_specs_that_are_used(control: Inside) -> None:
    keeping = Keeping(control.loop, control.store.journal, control.store.archive, Retention(DAY, DAY))
    gone, kept = await control.submit("gone"), await control.submit("kept", priority=3)
    await control.propose(Change(Act.CANCEL, (JobId(gone[0]),), "ada"))
    specs = [control.loop.state.jobs[JobId(job)].spec for job in (gone[0], kept[0])]
    await control.archive()
    control.clock.pass_by(2 * DAY / SECOND)
    await control.submit("later", priority=4)
    await control.loop.checkpoint()
    await keeping.sweep()
    assert await control.store.archive.count() == 0
    assert list(await control.store.journal.blobs(specs)) == specs[1:]
    assert await control.store.journal.oldest() > 1


@pytest.mark.parametrize("kept", [0, 1, 5, 9, 20])
async def test_a_sweep_forgets_all_events_that_are_old_and_no_other(control: Inside, kept: int) -> None:
    keeping = Keeping(control.loop, control.store.journal, control.store.archive, Retention(DAY, kept * DAY))
    for _ in range(10):
        control.clock.pass_by(DAY / SECOND)
        await control.submit("daily")
    await control.loop.checkpoint()
    events = [each async for each in control.store.journal.tail(0)]
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
    await control.propose(SeeCluster(ClusterName("kube"), Health.READY))
    (job,) = await control.submit("train")
    assert yard.state_of(job) is JobState.PLACED
    control.clock.pass_by(DAY / SECOND)
    await yard.leases.look()
    assert yard.state_of(job) is JobState.PLACED
    assert control.loop.state.nodes["kube/n1"].status == "ready"
    assert yard.desk.terms().heartbeat == BEAT


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
