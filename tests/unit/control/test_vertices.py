"""A driver is told which rack the scheduler chose for a gang, as the nodes of the placement have it."""

from collections.abc import AsyncIterator

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.core.events import SeenNode
from spillover.core.proposals import SeeCluster, SeeNodes, StartEpoch
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.topology import Level
from spillover.model.where import NodeTerm, Requirement
from spillover.ports.cluster import Start
from tests.support.inside import Inside, leading

KUBE = ClusterSpec(
    ClusterName("kube"), "kubernetes", Role.OWNED, gangs=True, levels=(Level("zone", "z"), Level("rack", "r"))
)
POLICIES = PolicySet(wait=Choice("never"), place=Choice("best_fit"))
PLACES = {"n1": ("a", "r1"), "n2": ("b", "r1"), "n3": ("b", "r1"), "n4": ("b", "r2")}
"""Zone and rack of each node, which has room for one task."""


@pytest.fixture
async def control() -> AsyncIterator[Inside]:
    async with leading() as control:
        await control.propose(StartEpoch(control.loop.epoch, (KUBE,), POLICIES))
        await control.propose(SeeCluster(KUBE.name, ClusterHealth.READY))
        seen = [
            SeenNode(NodeName(name), Resources(1000), Resources(), labels={"z": zone, "r": rack})
            for name, (zone, rack) in PLACES.items()
        ]
        await control.propose(SeeNodes(KUBE.name, tuple(seen), whole=True))
        yield control


async def start_of(control: Inside, **asked: object) -> Start:
    """What the driver gets for a gang."""
    (job,) = await control.submit("g", resources={"cpu": 1}, **asked)
    sender = LeaseSender(control.loop, Hub(), control.specs)
    (start,) = await sender.starts([control.loop.state.jobs[JobId(job)]])
    return start


def vertex(**labels: str) -> NodeTerm:
    return NodeTerm(tuple([Requirement(label, "In", (value,)) for label, value in labels.items()]))


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({"tasks": 2, "within": "rack"}, vertex(z="b", r="r1")),
        ({"tasks": 3, "within": "zone"}, vertex(z="b")),
        ({"tasks": 2, "within": {"prefer": "rack"}}, vertex(z="b", r="r1")),
        ({"tasks": 4, "within": {"prefer": "rack"}}, None),
        ({"tasks": 2}, None),
        ({"within": "rack"}, None),
    ],
)
async def test_a_driver_gets_the_vertex_that_was_chosen(
    control: Inside, asked: dict[str, object], chosen: NodeTerm | None
) -> None:
    start = await start_of(control, **asked)
    assert start.vertex == chosen
