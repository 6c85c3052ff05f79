"""Jobs on clusters that others run and that are not configured any more."""

import pytest

from spillover.control.controllers.unwatched import Unwatched
from spillover.core.events import JobState, SeenNode
from spillover.core.proposals import DRIVER, Act, Change, SeeCluster, SeeNodes, Started, StartEpoch
from spillover.deciding.explain import reason_of
from spillover.model.cluster import ClusterSpec, Health, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NotConfigured
from spillover.model.resources import Resources
from spillover.testing.inside import leading

LAB = ClusterName("lab")
NEVER = PolicySet(wait=Choice("never"))


@pytest.mark.parametrize(("act", "state"), [(Act.CANCEL, JobState.CANCELLED), (Act.REQUEUE, JobState.QUEUED)])
async def test_a_job_that_nobody_watches_waits_until_somebody_gives_it_up(act: Act, state: JobState) -> None:
    async with leading() as inside:
        lab = ClusterSpec(LAB, "kubernetes", Role.OWNED, gangs=True)
        await inside.propose(StartEpoch(inside.loop.epoch, (lab,), NEVER))
        await inside.propose(
            SeeNodes(LAB, (SeenNode(NodeName("n1"), Resources(2000, 2**30), Resources()),), whole=True)
        )
        await inside.propose(SeeCluster(LAB, Health.READY))
        (job_id,) = await inside.submit("train")
        job = inside.loop.state.jobs[JobId(job_id)]
        await inside.propose(Started(DRIVER, job.lease, 0))
        await inside.propose(StartEpoch(inside.loop.epoch, (), NEVER))
        unwatched = Unwatched(inside.loop)
        await unwatched.look()
        job = inside.loop.state.jobs[JobId(job_id)]
        assert job.state is JobState.RUNNING
        assert reason_of(inside.loop.engine, job) == NotConfigured(LAB)
        await inside.propose(Change(act, (job.id,), "ada"))
        await unwatched.look()
        assert inside.loop.state.jobs[job.id].state is state
