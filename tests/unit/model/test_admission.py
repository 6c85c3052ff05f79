import pytest
from msgspec.structs import replace

from spillover.model.admission import cannot_run, matches, refused_by, repelled_by, tolerates
from spillover.model.cluster import ClusterSpec, Role, Taint
from spillover.model.ids import ClusterName
from spillover.model.resources import Resources
from spillover.model.where import NodeTerm, Requirement, Rules, Toleration, Where

CLOUD = ClusterSpec(
    ClusterName("cloud"), "kubernetes", Role.RENTED, region="north", labels={"zone": "a", "disk": "ssd"}
)


@pytest.mark.parametrize(
    ("where", "refused"),
    [
        (Where(), ""),
        (Where("rented", ("kubernetes",), ("cloud", "x"), ("north",), (("zone", "a"),), ("lab",)), ""),
        (Where("owned"), "role: owned"),
        (Where(kinds=("agents", "slurm")), "kind: agents, slurm"),
        (Where(clusters=("onprem",)), "cluster: onprem"),
        (Where(regions=("south",)), "region: south"),
        (Where(labels=(("disk", "ssd"), ("zone", "b"))), "labels: zone=b"),
        (Where(labels=(("rack", ""),)), "labels: rack="),
        (Where(avoid=("cloud",)), "avoid: cloud"),
    ],
)
def test_a_cluster_is_refused_by_the_first_thing_that_it_is_not(where: Where, refused: str) -> None:
    assert refused_by(where, CLOUD) == refused


def test_what_a_cluster_cannot_do_is_named() -> None:
    assert cannot_run(("command", "files"), CLOUD) == ""
    assert cannot_run(("command", "files"), replace(CLOUD, runs=("command",))) == "files"
    assert cannot_run((), replace(CLOUD, runs=())) == ""


def test_pods_run_on_every_cluster_that_others_run_and_on_no_agents() -> None:
    agents = replace(CLOUD, kind="agents")
    assert [cannot_run(("pods",), each) for each in (CLOUD, replace(CLOUD, runs=()), agents)] == [
        "",
        "",
        "pods",
    ]
    assert cannot_run(("pods",), replace(agents, runs=("pods",))) == ""


@pytest.mark.parametrize(
    ("operator", "values", "nodes"),
    [
        ("In", ("a", "b"), {"a"}),
        ("NotIn", ("a",), {"none", "7", "-3"}),
        ("Exists", (), {"a", "7", "-3"}),
        ("DoesNotExist", (), {"none"}),
        ("Gt", ("6",), {"7"}),
        ("Lt", ("6",), {"-3"}),
        ("Gt", ("x",), set()),
        ("Gt", ("1", "2"), set()),
        ("Like", ("a",), set()),
    ],
)
def test_labels_are_compared_as_the_scheduler_of_kubernetes_does(
    operator: str, values: tuple[str, ...], nodes: set[str]
) -> None:
    labels = {"none": {}, "a": {"k": "a"}, "7": {"k": "7"}, "-3": {"k": "-3"}}
    rules = Rules(affinity=(NodeTerm((Requirement("k", operator, values),)),))
    assert {name for name, each in labels.items() if matches(rules, name, each)} == nodes


def test_all_of_a_term_must_hold_and_one_of_the_terms() -> None:
    zone, disk = Requirement("zone", "In", ("a",)), Requirement("disk", "Exists")
    both, either = (
        Rules(affinity=(NodeTerm((zone, disk)),)),
        Rules(affinity=(NodeTerm((zone,)), NodeTerm((disk,)))),
    )
    assert not matches(both, "n", {"zone": "a"})
    assert matches(both, "n", {"zone": "a", "disk": "x"})
    assert matches(either, "n", {"disk": "x"})
    assert not matches(either, "n", {"zone": "b"})


def test_a_term_that_asks_for_nothing_holds_nowhere() -> None:
    assert not matches(Rules(affinity=(NodeTerm(),)), "n", {})
    assert not matches(Rules(affinity=()), "n", {})
    assert matches(Rules(), "n", {})


def test_the_name_of_a_node_may_be_asked_for_and_its_labels_must_be_as_the_selector_says() -> None:
    named = Rules((("zone", "a"),), (NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),)),))
    assert matches(named, "n1", {"zone": "a"})
    assert not matches(named, "n2", {"zone": "a"})
    assert not matches(named, "n1", {"zone": "b"})
    assert not matches(named, "n1", {})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("cpu", "Exists"), False),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("gpu", "Near", "yes"), False),
    ],
)
def test_a_taint_is_tolerated_by_key_value_and_effect(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, Taint("gpu", "yes", "NoSchedule")) is tolerated


def test_taints_that_only_ask_for_other_nodes_first_keep_nothing_off() -> None:
    soft, hard = Taint("a", "", "PreferNoSchedule"), Taint("b", "", "NoExecute")
    assert repelled_by((), (soft,)) is None
    assert repelled_by((), (soft, hard)) == hard
    assert repelled_by((Toleration("b", "Exists"),), (soft, hard)) is None


def test_resources_of_any_name_are_added_and_compared() -> None:
    one, two = Resources(1, 2, 3, (("a", 1),)), Resources(1, 2, 3, (("a", 2), ("b", 5)))
    assert one + two == Resources(2, 4, 6, (("a", 3), ("b", 5)))
    assert two - one == Resources(0, 0, 0, (("a", 1), ("b", 5)))
    assert one - one == Resources()
    assert one - two == Resources(0, 0, 0, (("a", -1), ("b", -5)))
    assert one.times(3) == Resources(3, 6, 9, (("a", 3),))
    assert one.fits(two)
    assert not two.fits(one)
    assert not one.fits(Resources(1, 2, 3))
