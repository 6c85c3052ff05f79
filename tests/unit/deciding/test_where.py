"""Jobs that ask for clusters and nodes, and clusters of which only so much may be used."""

import pytest
from msgspec.structs import replace

from spillover.core.events import SeenNode
from spillover.core.proposals import SeeCluster, SeeNodes
from spillover.deciding.explain.explain import explain
from spillover.model.cluster import ClusterHealth, ClusterSpec, Price, Role, Taint
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import (
    AtLimit,
    CannotRun,
    NoNodeReady,
    NoRoom,
    NoSuchNode,
    NotWhere,
    OnlyRented,
    OverLimit,
    Reason,
    Tainted,
    TooBig,
    TooLate,
)
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.model.where import PROPERTY, NodeTerm, Requirement, Rules, Toleration, Where
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World

LAB = ClusterSpec(ClusterName("lab"), "agents", Role.OWNED, region="north")
KUBE = ClusterSpec(
    ClusterName("kube"),
    "kubernetes",
    Role.OWNED,
    gangs=True,
    region="south",
    labels={"disk": "ssd"},
    runs=("command",),
)
CLOUD = ClusterSpec(
    ClusterName("cloud"), "kubernetes", Role.RENTED, Price(3_600_000), gangs=True, region="west"
)


class Places(World):
    """Clusters of several kinds, each with one node of four CPUs."""

    def __init__(self, *clusters: ClusterSpec, wait: str = "never", backfill: str = "out_of_order") -> None:
        every = clusters or (LAB, KUBE, CLOUD)
        super().__init__(load, PolicySet(wait=Choice(wait), backfill=Choice(backfill)), every)
        for spec in every:
            if spec.kind == "agents":
                self.agent(f"{spec.name}-1", cpus=4, cluster=spec.name)
            else:
                self.see(spec.name, a_node(f"{spec.name}-1"))

    def see(self, cluster: str, *nodes: SeenNode) -> None:
        name = ClusterName(cluster)
        self.step(SeeNodes(name, nodes, whole=True), SeeCluster(name, ClusterHealth.READY))

    def why(self, job: str) -> Reason | None:
        return explain(self.engine, self.job(job)).reason

    def said(self, job: str) -> dict[str, Reason | None]:
        return {each.cluster: each.reason for each in explain(self.engine, self.job(job)).verdicts}


def a_node(
    name: str,
    cpus: int = 4,
    *,
    other: tuple[tuple[str, int], ...] = (),
    taints: tuple[Taint, ...] = (),
    **labels: str,
) -> SeenNode:
    return SeenNode(
        NodeName(name), Resources(cpus * 1000, 2**40, 0, other), Resources(), labels=labels, taints=taints
    )


# --- clusters


@pytest.mark.parametrize(
    ("where", "cluster"),
    [
        (Where(), "lab"),
        (Where(kinds=("kubernetes",)), "kube"),
        (Where(clusters=("kube", "cloud")), "kube"),
        (Where(regions=("south",)), "kube"),
        (Where(labels=(("disk", "ssd"),)), "kube"),
        (Where(avoid=("lab",)), "kube"),
    ],
)
def test_a_job_runs_on_the_first_cluster_that_it_asks_for(where: Where, cluster: str) -> None:
    world = Places()
    world.submit(a_job("a").where(where))
    assert world.where("a") == f"{cluster}/{cluster}-1"


def test_a_job_that_asks_for_rented_clusters_only_does_not_wait_for_owned_ones() -> None:
    world = Places()
    world.submit(a_job("a").where(Where(clusters=("cloud",))))
    assert world.where("a") == "cloud/cloud-1"
    assert world.placed_because("a") == OnlyRented()


def test_each_cluster_says_why_it_is_refused() -> None:
    world = Places()
    world.submit(a_job("a").where(Where(regions=("east",), clusters=("lab", "cloud"))))
    assert world.said("a") == {
        "lab": NotWhere(("region: east",)),
        "kube": NotWhere(("cluster: lab, cloud",)),
        "cloud": NotWhere(("region: east",)),
    }
    assert str(world.why("a")) == "ruled out by its `where`: region: east; cluster: lab, cloud"


def test_what_a_cluster_cannot_do_is_not_placed_there() -> None:
    world = Places(KUBE)
    world.submit(a_job("plain").doing("command"), a_job("call").doing("python"))
    assert world.where("plain") == "kube/kube-1"
    assert world.why("call") == CannotRun("python")
    both = Places(KUBE, LAB)
    both.submit(a_job("call").doing("python").cpus(4), a_job("next").doing("python"))
    assert both.where("call") == "lab/lab-1"
    assert both.said("next") == {"kube": CannotRun("python"), "lab": NoRoom(Resources(1000), (LAB.name,))}


def test_a_job_with_secrets_runs_on_agents_only() -> None:
    world = Places(KUBE, LAB)
    world.submit(a_job("a").doing("command", "secrets").cpus(4), a_job("b").doing("command", "secrets"))
    assert world.where("a") == "lab/lab-1"
    assert str(world.said("b")["kube"]) == "`secrets` work on agents only"


def test_a_job_that_is_too_big_where_it_could_run_is_told_so() -> None:
    world = Places(KUBE, LAB)
    world.submit(a_job("a").doing("python").cpus(5))
    assert isinstance(world.why("a"), TooBig)


# --- nodes

GPU = Taint("gpu", "yes", "NoSchedule")


def test_a_pod_goes_to_a_node_whose_labels_it_asks_for_and_whose_taints_it_tolerates() -> None:
    world = Places(KUBE)
    world.see("kube", a_node("n1"), a_node("n2", zone="a", taints=(GPU,)), a_node("n3", zone="b"))
    world.submit(a_job("a").on_nodes(Rules((("zone", "b"),))))
    world.submit(a_job("b").on_nodes(Rules(tolerations=(Toleration("gpu", "Exists"),))).cpus(4))
    far = NodeTerm((Requirement("zone", "In", ("a", "c")),))
    world.submit(a_job("c").on_nodes(Rules((), (far,), (Toleration("gpu", "Equal", "yes"),))))
    world.submit(a_job("d").on_nodes(Rules((), (far,))))
    assert [world.where(job) for job in "abcd"] == ["kube/n3", "kube/n1", "kube/n2", None]
    assert world.why("d") == Tainted(("gpu=yes:NoSchedule",))


def test_a_taint_that_a_node_has_while_it_is_cordoned_is_not_for_ever() -> None:
    world = Places(KUBE)
    cordoned = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    world.see("kube", a_node("n1", taints=(cordoned,)), a_node("n2", taints=(GPU,)))
    world.submit(a_job("a"))
    assert world.why("a") == NoNodeReady((ClusterName("kube"),))
    world.see("kube", a_node("n1", taints=(cordoned, GPU)), a_node("n2", taints=(GPU,)))
    assert world.why("a") == Tainted(("gpu=yes:NoSchedule",))


def test_jobs_without_rules_stay_off_nodes_with_taints() -> None:
    world = Places(KUBE)
    world.see("kube", a_node("n1", taints=(GPU,)))
    world.submit(a_job("a"))
    assert world.why("a") == Tainted(("gpu=yes:NoSchedule",))
    world.see("kube", a_node("n1", taints=(replace(GPU, effect="PreferNoSchedule"),)))
    assert world.where("a") == "kube/n1"


def test_a_label_that_no_node_has_is_told_and_helps_when_it_comes() -> None:
    world = Places(KUBE)
    world.submit(a_job("a").on_nodes(Rules((("disk", "ssd"), ("zone", "a")))))
    world.see("kube", a_node("kube-1", disk="ssd"))
    assert world.why("a") == NoSuchNode("zone=a")
    world.see("kube", a_node("kube-1", disk="ssd", zone="a"))
    assert world.where("a") == "kube/kube-1"


def test_resources_of_any_name_are_held_and_given_back() -> None:
    world = Places(KUBE)
    world.see("kube", a_node("n1", other=(("fpga", 2),)), a_node("n2"))
    world.submit(a_job("a").others(fpga=1), a_job("b").others(fpga=1), a_job("c").others(fpga=1))
    assert [world.where(job) for job in "abc"] == ["kube/n1", "kube/n1", None]
    assert isinstance(world.why("c"), NoRoom)
    world.finish("a")
    assert world.where("c") == "kube/n1"
    world.submit(a_job("d").others(fpga=3))
    assert str(world.why("d")) == "requests 3 fpga per task; the largest machine has 2 fpga"


def test_pods_of_a_gang_share_what_nodes_have() -> None:
    world = Places(KUBE)
    world.see("kube", a_node("n1", other=(("fpga", 1),)), a_node("n2", other=(("fpga", 1),)))
    world.submit(a_job("a").others(fpga=1).tasks(3), a_job("b").others(fpga=1).tasks(2))
    assert world.where("a") is None
    assert sorted(node.used.cpu for node in world.state.nodes.values()) == [1000, 1000]


# --- limits


def test_no_more_jobs_than_the_limit_are_there_at_a_time() -> None:
    world = Places(replace(KUBE, most_jobs=2))
    world.submit(a_job("a"), a_job("b").tasks(2), a_job("c"))
    assert [world.where(job) for job in "abc"] == ["kube/kube-1", "kube/kube-1", None]
    assert world.why("c") == AtLimit(KUBE.name, "jobs", 2, 2)
    assert str(world.why("c")) == "kube is at its limit of 2 jobs (2 jobs in use)"
    world.finish("a")
    assert world.where("c") == "kube/kube-1"


def test_no_more_than_the_limit_is_used_at_a_time_and_what_is_over_it_goes_elsewhere() -> None:
    limited = replace(KUBE, most=Resources(3000))
    world = Places(limited, LAB)
    world.submit(a_job("a").cpus(2), a_job("b").cpus(2))
    assert [world.where(job) for job in "ab"] == ["kube/kube-1", "lab/lab-1"]
    world.submit(a_job("c").cpus(4))
    assert world.said("c") == {
        "kube": OverLimit(KUBE.name, "cpu", 4000, 3000),
        "lab": NoRoom(Resources(4000), (LAB.name,)),
    }


def test_members_of_an_array_count_one_by_one() -> None:
    world = Places(replace(KUBE, most_jobs=3))
    world.submit(a_job("a").array(1, 5))
    assert len(world.placed()) == 3
    world.finish("a.1")
    assert len(world.placed()) == 3


# --- rented clusters


def test_rented_clusters_are_tried_by_price_then_by_how_soon_they_start_then_as_configured() -> None:
    def rented(name: str, price: int, startup: int) -> ClusterSpec:
        return ClusterSpec(ClusterName(name), "kubernetes", Role.RENTED, Price(price), startup=startup)

    clusters = (rented("a", 3, 0), rented("b", 2, 9 * MINUTE), rented("c", 2, MINUTE), rented("d", 2, MINUTE))
    world = Places(*clusters)
    for number in range(4):
        world.submit(a_job(f"j{number}").cpus(4).burst(Burst.ALWAYS))
    assert [world.where(f"j{number}") for number in range(4)] == ["c/c-1", "d/d-1", "b/b-1", "a/a-1"]


# --- deadlines


def test_a_cluster_where_a_job_would_end_too_late_is_passed_over() -> None:
    slow = replace(CLOUD, name=ClusterName("slow"), startup=10 * MINUTE, price=Price(1))
    world = Places(slow, CLOUD)
    due = world.now + 15 * MINUTE
    world.submit(a_job("a").burst(Burst.ALWAYS).expected(minutes=6).between(deadline=due))
    assert world.where("a") == "cloud/cloud-1"
    world.submit(a_job("b").burst(Burst.ALWAYS).expected(minutes=5).between(deadline=due))
    assert world.where("b") == "slow/slow-1"


def test_a_job_that_is_too_late_everywhere_waits_in_nobodys_way() -> None:
    for backfill in ("strict", "easy", "out_of_order"):
        world = Places(LAB, backfill=backfill)
        due = world.now + 5 * MINUTE
        late = a_job("late").expected(minutes=6).between(deadline=due)
        world.submit(late, a_job("next").expected(minutes=1))
        assert world.where("late") is None
        assert world.where("next") == "lab/lab-1"
        reason = TooLate(due, world.now + 6 * MINUTE)
        assert world.why("late") == reason
        assert world.said("late") == {"lab": reason}


def test_a_job_of_which_nothing_is_known_is_not_too_late() -> None:
    world = Places(LAB)
    world.submit(a_job("a").between(deadline=world.now + 1))
    assert world.where("a") == "lab/lab-1"


def test_a_walltime_alone_makes_no_job_too_late() -> None:
    w = World(load)
    w.agent("n1")
    limited = a_job("limited").terms(walltime=3600 * SECOND).between(deadline=w.now + 600 * SECOND)
    expected = a_job("expected").expected(seconds=3600).between(deadline=w.now + 600 * SECOND)
    w.submit(limited, expected)
    assert w.where("limited") == "onprem/n1"
    assert w.where("expected") is None


def test_a_job_may_ask_for_properties_that_a_node_has_or_has_not() -> None:
    def having(word: str, operator: str = "In") -> Rules:
        return Rules(affinity=(NodeTerm((), (Requirement(PROPERTY, operator, (word,)),)),))

    w = Places(LAB)
    w.agent("lab-1", cpus=4, cluster="lab", offers=("old",), labels={"ssd": ""})
    w.submit(a_job("a").on_nodes(having("ssd")), a_job("b").on_nodes(having("old", "NotIn")))
    w.submit(a_job("c").on_nodes(having("fast")))
    assert [w.where(each) for each in "abc"] == ["lab/lab-1", None, None]
    assert w.why("b") == NoSuchNode("not the property old")
    assert w.why("c") == NoSuchNode("the property fast")
    w.finish("a")
    w.agent("lab-1", cpus=4, cluster="lab", labels={"ssd": ""})
    assert w.where("b") == "lab/lab-1", "it no longer offers the word"
    w.agent("lab-2", cluster="lab", offers=("fast",))
    assert w.where("c") == "lab/lab-2"
