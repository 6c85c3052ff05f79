"""Jobs that ask for one rack, for spread tasks, or for nodes of their own."""

import pytest
from msgspec.structs import replace

from spillover.core.events import SeenNode
from spillover.core.proposals import SeeCluster, SeeNodes
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.explain.explain import explain
from spillover.deciding.explain.feasibility import too_large
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import (
    GangTooBig,
    KeptFor,
    NoEmptyNode,
    NoRoomTogether,
    NoSuchLevel,
    NoSuchNode,
    Reason,
    TooBig,
)
from spillover.model.resources import Resources
from spillover.model.topology import Level, Topology
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LAB = replace(OWNED, gangs=True, levels=(Level("zone", "zone"), Level("rack", "rack")))
IN_A_RACK = Topology(within="rack")
ALONE = Topology(exclusive=True)


class Racks(World):
    """Two racks of three nodes with four CPUs each."""

    def __init__(self, *, backfill: str = "out_of_order", place: str = "best_fit", queue: int = 0) -> None:
        policies = PolicySet(wait=Choice("never"), backfill=Choice(backfill), place=Choice(place))
        super().__init__(load, policies, (LAB,))
        for rack in ("r1", "r2"):
            for number in (1, 2, 3):
                self.agent(f"{rack}n{number}", cpus=4, queue=queue, labels={"zone": "a", "rack": rack})

    def nodes(self, job: str) -> list[str]:
        """The nodes of the tasks of a job, by rank; empty if it is not placed."""
        found = self.job(job)
        return [task.node for task in found.tasks] if isinstance(found.phase, Placed | Running) else []

    def racks(self, job: str) -> set[str]:
        return {node[:2] for node in self.nodes(job)}

    def why(self, job: str) -> Reason | None:
        return explain(self.engine, self.job(job)).reason


@pytest.fixture
def racks() -> Racks:
    return Racks()


def test_a_gang_starts_in_one_rack(racks: Racks) -> None:
    racks.submit(a_job("small").cpus(4), a_job("gang").cpus(4).tasks(3).together(IN_A_RACK))
    assert racks.where("small") == "onprem/r1n1"
    assert racks.racks("gang") == {"r2"}


@pytest.mark.parametrize("backfill", ["out_of_order", "easy", "conservative"])
def test_locality_puts_a_gang_on_one_node_else_in_one_rack_else_in_few_racks(backfill: str) -> None:
    near = Racks(backfill=backfill, place="locality")
    near.submit(a_job("one").cpus(2), a_job("node").tasks(4))
    assert near.where("one") == "onprem/r1n1"
    assert set(near.nodes("node")) == {"r1n2"}, "best fit would have begun with the node that is used"
    near.submit(a_job("rack").cpus(2).tasks(5))
    assert near.racks("rack") == {"r2"}, "the first rack has room for three"
    near.submit(a_job("racks").cpus(1).tasks(8))
    assert near.racks("racks") == {"r1", "r2"}
    assert near.nodes("racks").count("r2n3") == 2, "the rest of one rack, and six of the other"


def test_a_gang_is_kept_together_only_on_a_node_that_takes_so_many_tasks() -> None:
    name, small, large = ClusterName("kube"), NodeName("n1"), NodeName("n2")
    kube = ClusterSpec(name, "kubernetes", Role.OWNED, gangs=True)
    near = World(load, PolicySet(wait=Choice("never"), place=Choice("locality")), (kube,))
    room = Resources(8000, 2**30)
    near.propose(
        SeeNodes(name, (SeenNode(small, room, Resources(), 3), SeenNode(large, room, Resources(), 4)))
    )
    near.propose(SeeCluster(name, ClusterHealth.READY))
    near.submit(
        a_job("one").cpus(2), a_job("gang").tasks(4), a_job("next").together(Topology(within="node")).tasks(4)
    )
    assert near.where("one") == "kube/n1"
    assert {task.node for task in near.job("gang").tasks} == {large}
    assert near.where("next") is None


def test_locality_leaves_a_gang_as_it_asks_to_be() -> None:
    near = Racks(place="locality")
    near.submit(a_job("apart").tasks(2).together(Topology(spread="rack")))
    assert near.racks("apart") == {"r1", "r2"}


def test_a_gang_that_may_be_anywhere_says_how_many_of_its_tasks_fit_now(racks: Racks) -> None:
    racks.submit(a_job("large").cpus(4).tasks(5), a_job("gang").cpus(2).tasks(3))
    assert str(racks.why("gang")) == "waits for room for 3 tasks on onprem; at most 2 fit now"


def test_a_gang_waits_until_one_rack_has_room_and_says_how_much_it_has_now(racks: Racks) -> None:
    racks.submit(a_job("one").cpus(4), a_job("two").cpus(4).together(Topology(within="rack")))
    racks.submit(a_job("other").cpus(4).tasks(2).together(Topology(spread="rack")))
    racks.submit(a_job("gang").cpus(4).tasks(3).together(IN_A_RACK))
    assert racks.nodes("gang") == []
    assert racks.why("gang") == NoRoomTogether(ClusterName("onprem"), 3, 2, "rack")
    assert "room for 3 tasks in one rack of onprem; at most 2 fit now" in str(racks.why("gang"))
    for job in ("other",):
        racks.start(job)
        racks.finish(job)
    assert racks.racks("gang") == {"r2"}


def test_a_wish_for_one_rack_gives_way_to_as_few_racks_as_needed(racks: Racks) -> None:
    racks.submit(a_job("gang").cpus(4).tasks(5).together(Topology(within="rack", preferred=True)))
    assert sorted(racks.nodes("gang")) == ["r1n1", "r1n2", "r1n3", "r2n1", "r2n2"]
    racks.cancel("gang")


def test_tasks_that_are_spread_over_racks_are_in_different_ones(racks: Racks) -> None:
    racks.submit(a_job("gang").tasks(2).together(Topology(spread="rack")))
    assert racks.racks("gang") == {"r1", "r2"}


def test_each_node_gets_at_most_so_many_tasks(racks: Racks) -> None:
    racks.submit(a_job("gang").tasks(6).together(Topology(spread="node", most=2, exact=True)))
    assert [racks.nodes("gang").count(node) for node in set(racks.nodes("gang"))] == [2, 2, 2]


def test_nobody_shares_the_node_of_an_exclusive_job(racks: Racks) -> None:
    racks.submit(a_job("alone").cpus(1).together(ALONE))
    racks.submit(*[a_job(f"j{number}") for number in range(24)])
    node = racks.where("alone")
    others = [racks.where(f"j{number}") for number in range(24)]
    assert node is not None
    assert node not in others
    assert others.count(None) == 4
    racks.start("alone")
    racks.finish("alone")
    assert [racks.where(f"j{number}") for number in range(24)].count(node) == 4


def test_an_exclusive_job_waits_for_an_empty_node(racks: Racks) -> None:
    racks.submit(*[a_job(f"j{number}").cpus(3) for number in range(6)])
    racks.submit(a_job("alone").together(ALONE))
    assert racks.why("alone") == NoEmptyNode(ClusterName("onprem"), 1, 0)
    racks.start("j4")
    racks.finish("j4")
    assert racks.where("alone") is not None


def test_tasks_of_one_exclusive_job_share_its_nodes_until_the_last_one_ends(racks: Racks) -> None:
    racks.submit(a_job("gang").tasks(4).together(Topology(within="node", exclusive=True)))
    [node] = set(racks.nodes("gang"))
    racks.start("gang")
    for rank in (0, 1, 2):
        racks.finish_task("gang", rank)
    racks.submit(*[a_job(f"j{number}") for number in range(24)])
    assert f"onprem/{node}" not in [racks.where(f"j{number}") for number in range(24)]
    racks.finish_task("gang", 3)
    assert [racks.where(f"j{number}") for number in range(24)].count(f"onprem/{node}") == 4


def test_an_agent_prefetches_nothing_beside_an_exclusive_job() -> None:
    racks = Racks(queue=8)
    racks.submit(a_job("alone").expected(seconds=1).together(ALONE))
    racks.start("alone")
    racks.submit(*[a_job(f"j{number}").expected(seconds=1) for number in range(60)])
    node = racks.where("alone")
    assert node is not None
    assert list(racks.state.nodes[node].held) == ["alone"]


def test_a_reservation_for_a_rack_is_kept_from_jobs_that_would_run_into_it() -> None:
    racks = Racks(backfill="easy")
    racks.submit(a_job("a").cpus(4).expected(minutes=10))
    racks.submit(a_job("b").cpus(4).tasks(3).expected(minutes=600).together(IN_A_RACK))
    assert racks.racks("b") == {"r2"}
    racks.submit(a_job("gang").cpus(4).tasks(3).expected(minutes=5).together(IN_A_RACK))
    racks.submit(a_job("long").cpus(4).expected(minutes=60), a_job("short").cpus(4).expected(minutes=1))
    assert racks.nodes("gang") == []
    assert racks.where("short") is not None
    assert racks.where("long") is None
    assert racks.why("long") == KeptFor(JobId("gang"))


def test_a_reservation_counts_on_a_node_that_an_exclusive_job_leaves() -> None:
    racks = Racks(backfill="easy")
    racks.submit(
        a_job("alone").expected(minutes=10).tasks(6).together(Topology(spread="node", exclusive=True))
    )
    racks.submit(a_job("next").cpus(4).expected(minutes=5))
    assert racks.where("next") is None
    racks.start("alone")
    racks.finish("alone")
    assert racks.where("next") is not None


@pytest.mark.parametrize(
    ("topology", "tasks", "cpus", "reason"),
    [
        (Topology(within="row"), 2, 1, NoSuchLevel("row", ("zone", "rack", "node"))),
        (Topology(spread="row"), 2, 1, NoSuchLevel("row", ("zone", "rack", "node"))),
        (IN_A_RACK, 13, 1, GangTooBig(13, 12, ClusterName("onprem"), "rack")),
        (Topology(spread="rack"), 3, 1, GangTooBig(3, 2, ClusterName("onprem"), spread="rack")),
        (None, 25, 1, GangTooBig(25, 24, ClusterName("onprem"))),
        (ALONE, 7, 4, GangTooBig(7, 6, ClusterName("onprem"))),
        (None, 1, 5, TooBig(Resources(5000), Resources(4000, 2**40))),
    ],
)
def test_what_can_never_fit_is_told_with_the_nearest_that_does(
    racks: Racks, topology: Topology | None, tasks: int, cpus: int, reason: Reason
) -> None:
    job = a_job("job").tasks(tasks).cpus(cpus)
    racks.submit(job.together(topology) if topology is not None else job)
    assert racks.why("job") == reason
    assert reason.never
    assert too_large(racks.engine.index.capacity.values(), racks.job("job").kind.shape) == reason


def test_a_wish_for_an_unknown_level_is_no_obstacle(racks: Racks) -> None:
    racks.submit(a_job("gang").tasks(2).together(Topology(within="row", preferred=True)))
    assert len(racks.nodes("gang")) == 2


def test_lost_and_busy_nodes_are_not_a_never(racks: Racks) -> None:
    shape = Shape(Resources(4000), tasks=6)
    racks.submit(*[a_job(f"j{number}").cpus(4) for number in range(6)])
    assert too_large(racks.engine.index.capacity.values(), shape) is None
    unknown = World(load, clusters=(LAB,))
    assert too_large(unknown.engine.index.capacity.values(), Shape(Resources(10**9))) is None


def test_a_level_that_no_node_names_is_told_with_its_label() -> None:
    flat = World(load, clusters=(LAB,))
    flat.agent("n1", cpus=4)
    flat.submit(a_job("gang").tasks(2).together(IN_A_RACK))
    reason = explain(flat.engine, flat.job("gang")).reason
    assert reason == NoSuchNode("a label rack")
