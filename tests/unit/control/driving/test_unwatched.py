"""Jobs on external clusters and that are not configured any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spillover.control.controllers.removed import RemovedClusters
from spillover.core.events import JobState, SeenNode
from spillover.core.proposals import (
    DRIVER,
    Act,
    Change,
    ClearedCluster,
    RemoveCluster,
    SeeCluster,
    SeeNodes,
    Started,
    StartEpoch,
)
from spillover.deciding.explain.explain import reason_of
from spillover.model.cluster import ClusterHealth, ClusterSpec, Leave, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NotConfigured
from spillover.model.resources import Resources
from spillover.ports.commands import CommandError
from tests.support.inside import Inside, leading

LAB = ClusterName("lab")
NEVER = PolicySet(wait=Choice("never"))


@asynccontextmanager
async def unconfigured(*names: str) -> AsyncIterator[tuple[Inside, list[JobId]]]:
    """A server with jobs that run on a cluster that is not configured any more."""
    async with leading() as inside:
        lab = ClusterSpec(LAB, "kubernetes", Role.OWNED, gangs=True)
        await inside.propose(StartEpoch(inside.loop.epoch, (lab,), NEVER))
        room = Resources(2000 * len(names), len(names) * 2**30)
        await inside.propose(SeeNodes(LAB, (SeenNode(NodeName("n1"), room, Resources()),), whole=True))
        await inside.propose(SeeCluster(LAB, ClusterHealth.READY))
        jobs = [JobId(each) for each in await inside.submit(*names)]
        for job in jobs:
            await inside.propose(Started(DRIVER, inside.lease(job), 0))
        await inside.propose(StartEpoch(inside.loop.epoch, (), NEVER))
        yield inside, jobs


@pytest.mark.parametrize(("act", "state"), [(Act.CANCEL, JobState.CANCELLED), (Act.REQUEUE, JobState.QUEUED)])
async def test_a_job_that_nobody_watches_waits_until_somebody_gives_it_up(act: Act, state: JobState) -> None:
    async with unconfigured("train") as (inside, [job_id]):
        unwatched = RemovedClusters(inside.loop)
        await unwatched.look()
        job = inside.loop.state.jobs[job_id]
        assert job.state is JobState.RUNNING
        assert reason_of(inside.loop.engine, job) == NotConfigured(LAB)
        await inside.propose(Change(act, (job_id,), "ada"))
        await unwatched.look()
        assert inside.loop.state.jobs[job_id].state is state


async def test_a_job_that_is_given_up_while_another_is_ends_too() -> None:
    async with unconfigured("one", "two") as (inside, [one, two]):
        unwatched = RemovedClusters(inside.loop)
        await inside.propose(Change(Act.CANCEL, (one,), "ada"))
        await asyncio.gather(unwatched.look(), inside.propose(Change(Act.CANCEL, (two,), "ada")))
        states = [inside.loop.state.jobs[each].state for each in (one, two)]
        assert states == [JobState.CANCELLED, JobState.RUNNING]
        await unwatched.look()
        assert inside.loop.state.jobs[two].state is JobState.CANCELLED


async def test_a_job_that_could_not_be_given_up_is_looked_at_again() -> None:
    async with unconfigured("train") as (inside, [job]):
        unwatched = RemovedClusters(inside.loop)
        await inside.propose(Change(Act.CANCEL, (job,), "ada"))
        inside.loop.problem = "the disk is full"
        with pytest.raises(CommandError, match="the disk is full"):
            await unwatched.look()
        inside.loop.problem = None
        await unwatched.look()
        assert inside.loop.state.jobs[job].state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("how", "state"),
    [(Leave.CANCEL, JobState.CANCELLED), (Leave.MOVE, JobState.QUEUED), (Leave.FINISH, None)],
)
async def test_jobs_on_a_failed_cluster_that_is_removed_are_given_up_unless_they_are_to_end_there(
    how: Leave, state: JobState | None
) -> None:
    async with leading() as inside:
        lab = ClusterSpec(LAB, "kubernetes", Role.OWNED, gangs=True)
        await inside.propose(StartEpoch(inside.loop.epoch, (lab,), NEVER))
        node = SeenNode(NodeName("n1"), Resources(2000, 2**30), Resources())
        await inside.propose(SeeNodes(LAB, (node,), whole=True))
        await inside.propose(SeeCluster(LAB, ClusterHealth.READY))
        (job,) = [JobId(each) for each in await inside.submit("train")]
        await inside.propose(Started(DRIVER, inside.lease(job), 0))
        unwatched = RemovedClusters(inside.loop)
        await unwatched.look()
        await inside.propose(RemoveCluster(LAB, "ada", how, form='{"name": "lab"}'))
        await unwatched.look()
        assert inside.loop.state.jobs[job].state is JobState.RUNNING, (
            "it answers, and says itself what becomes of it"
        )
        await inside.propose(SeeCluster(LAB, ClusterHealth.FAILED, "no answer"))
        await unwatched.look()
        assert inside.loop.state.jobs[job].state is (state or JobState.RUNNING)
        await inside.propose(ClearedCluster(LAB))
        assert (LAB in inside.loop.state.clusters) is (state is None)
