"""Nodes of an external cluster for one job alone: others may use some of each, but no other job of ours does."""

import pytest
from msgspec.structs import replace

from spillover.core.events import SeenNode
from spillover.core.proposals import SeeBound, SeeCluster, SeeNodes
from spillover.deciding.explain.explain import explain
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import CannotRun, NoEmptyNode
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World

KUBE = ClusterSpec(
    ClusterName("kube"), "kubernetes", Role.OWNED, gangs=True, runs=("command", "constraints", "exclusive")
)
DAEMON = Resources(500)
"""What a pod of others uses of each node."""


class Kube(World):
    """Three nodes with four CPUs each, of which others use half a CPU."""

    def __init__(self, backfill: str = "out_of_order") -> None:
        policies = PolicySet(wait=Choice("never"), backfill=Choice(backfill), place=Choice("first_fit"))
        super().__init__(load, policies, (KUBE,))
        self.propose(SeeCluster(KUBE.name, ClusterHealth.READY))
        self.see("n1", "n2", "n3")

    def see(self, *nodes: str, foreign: Resources = DAEMON, pods: int = 1) -> None:
        """Report nodes, with what pods of others use of each."""
        seen = [SeenNode(NodeName(name), Resources(4000), foreign, 10 - pods) for name in nodes]
        self.propose(SeeNodes(KUBE.name, tuple(seen)))

    def bind(self, job: str, *nodes: str) -> None:
        """Report where its tasks really are."""
        names = tuple([NodeName(node) for node in nodes])
        self.propose(SeeBound(KUBE.name, (self.job(job).lease,), (names,)))

    def nodes(self, job: str) -> list[str]:
        return [task.node for task in self.job(job).tasks]


def alone(name: str) -> JobBuilder:
    return a_job(name).together(Topology(exclusive=True)).doing("exclusive")


@pytest.fixture
def kube() -> Kube:
    return Kube()


def test_a_node_on_which_only_others_are_counts_as_empty(kube: Kube) -> None:
    kube.submit(alone("alone").cpus(2))
    kube.submit(*[a_job(f"j{number}") for number in range(12)])
    assert kube.nodes("alone") == ["n1"]
    assert [kube.nodes(f"j{number}") for number in range(12)].count(["n1"]) == 0
    kube.see("n1", foreign=Resources(1500), pods=3)
    kube.start("alone")
    kube.finish("alone")
    assert [kube.nodes(f"j{number}") for number in range(12)].count(["n1"]) == 2, "others took some more"


def test_a_node_with_a_job_of_ours_is_not_empty_even_if_that_requests_nothing(kube: Kube) -> None:
    kube.submit(*[a_job(f"j{number}").cpus(0) for number in range(3)])
    for number in range(3):
        kube.start(f"j{number}")
        kube.bind(f"j{number}", f"n{number + 1}")
    kube.submit(alone("alone"))
    assert explain(kube.engine, kube.job("alone")).reason == NoEmptyNode(KUBE.name, 1, 0)
    kube.finish("j2")
    assert kube.nodes("alone") == ["n3"]


def test_a_node_stays_closed_to_others_where_the_job_really_is(kube: Kube) -> None:
    kube.submit(alone("alone").tasks(2).cpus(3), a_job("other"))
    assert (kube.nodes("alone"), kube.nodes("other")) == (["n1", "n2"], ["n3"])
    kube.start("alone")
    kube.bind("alone", "n2", "n3")
    kube.submit(a_job("more").cpus(2))
    assert kube.nodes("more") == ["n1"], "n1 is open again, and n3 is closed"
    kube.start("other")
    kube.bind("other", "n1")
    kube.finish("alone")
    assert not any(node.alone for node in kube.state.nodes.values())
    kube.submit(alone("next").tasks(2).cpus(3))
    assert kube.nodes("next") == ["n2", "n3"]


def test_a_node_opens_when_the_job_leaves_before_another_that_is_planned_there(kube: Kube) -> None:
    kube.submit(alone("alone").cpus(3), a_job("other"))
    kube.start("alone")
    kube.bind("alone", "n2")
    assert [node.name for node in kube.state.nodes.values() if node.alone] == ["n2"]
    kube.finish("alone")
    assert not any(node.alone for node in kube.state.nodes.values())
    kube.submit(a_job("third").cpus(2))
    assert kube.nodes("third") != []


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_reservation_counts_on_a_whole_node_that_a_job_leaves(backfill: str) -> None:
    kube = Kube(backfill)
    kube.submit(alone("first").tasks(3).cpus(3).expected(minutes=10))
    kube.start("first")
    kube.submit(alone("next").tasks(3).cpus(3).expected(minutes=10))
    kube.submit(a_job("late").cpus(1).expected(minutes=60))
    assert kube.nodes("late") == []
    kube.finish("first")
    assert len(kube.nodes("next")) == 3


def test_a_cluster_that_cannot_do_it_says_so() -> None:
    world = World(load, PolicySet(wait=Choice("never")), (replace(KUBE, runs=("command",)),))
    world.propose(SeeCluster(KUBE.name, ClusterHealth.READY))
    world.propose(SeeNodes(KUBE.name, (SeenNode(NodeName("n1"), Resources(4000), Resources(), 10),)))
    world.submit(alone("alone"))
    assert explain(world.engine, world.job("alone")).reason == CannotRun("exclusive")
