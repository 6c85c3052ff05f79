"""The provider kubernetes without a cluster: its options, and what a pod says. `tests/kube` has the rest."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.clusters.kubernetes.api.objects import Pod
from spillover.forms.problems import Findings
from spillover.model.pools import Offer
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.ports.kinds import CannotOpen
from spillover.ports.provider import Presence
from spillover.providers.kubernetes.kind import KubernetesForm, KubernetesPodsKind, patience
from spillover.providers.kubernetes.pods import listed, pod_of
from spillover.testing.provider_suite import ProviderSuite, an_opening
from tests.support.kubernetes import a_condition, a_pod, when

SMALL = Offer("small", Resources(1000, 2**30), 1)
KIND = KubernetesPodsKind()


def flaws(offers: tuple[Offer, ...] = (SMALL,), **options: Any) -> dict[Any, str]:
    return {flaw.path: flaw.message for flaw in KIND.check(KubernetesForm(**options), offers)}


def test_options_that_cannot_work_are_told() -> None:
    assert [*flaws()] == [("image",)]
    assert flaws(image="x") == {}
    found = flaws(
        (SMALL, replace(SMALL, resources=Resources(1000))),
        image="x",
        in_cluster=True,
        context="here",
        namespace="No Such",
        pod={"restartPolicy": "Always"},
        bind_within="soon",
    )
    assert [*found] == [
        ("in_cluster",),
        ("namespace",),
        ("pod", "restartPolicy"),
        ("offers", 1),
        ("bind_within",),
    ]


def test_options_of_a_node_group_are_checked() -> None:
    assert flaws(image="x", machine_deployment="batch/workers", management_context="m") == {}
    assert [*flaws(image="x", management_context="m", management_kubeconfig="k")] == [
        ("management_kubeconfig",),
        ("management_context",),
    ]
    for bad in ("a/b/c", "A", "/", "a/", "x y"):
        assert [*flaws(image="x", machine_deployment=bad)] == [("machine_deployment",)], bad
    waits = [patience(KubernetesForm(machine_deployment=name), Findings()) for name in ("", "workers")]
    assert waits == [5 * SECOND, 15 * MINUTE]


def test_without_a_kubeconfig_it_says_where_it_looked(tmp_path: Path) -> None:
    (line,) = KIND.missing(KubernetesForm(), {}, tmp_path)
    assert str(tmp_path / ".kube" / "config") in line
    with pytest.raises(CannotOpen, match="kubeconfig"):
        KIND.open(KubernetesForm(), replace(an_opening(tmp_path, environ={}), home=tmp_path))


def test_what_the_operator_adds_to_pods_is_kept_beside_ours() -> None:
    pod = pod_of(
        replace(ProviderSuite().an_order(), offer=replace(SMALL, zone="west")),
        KubernetesForm(
            image="x",
            pod={
                "nodeSelector": {"pool": "batch"},
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "tolerations": [{"operator": "Exists"}],
            },
            annotations={"karpenter.sh/do-not-disrupt": "false"},
        ),
    )
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"pool": "batch", "topology.kubernetes.io/zone": "west"}
    assert [each["name"] for each in spec["volumes"]] == ["scratch", "data", "join"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert pod["metadata"]["annotations"] == {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "false",
    }


UNSCHEDULABLE = a_condition("PodScheduled", "Unschedulable", "0/3 nodes", holds=False)
EVICTED = a_condition("DisruptionTarget", "EvictionByEvictionAPI", "the node is drained")


@pytest.mark.parametrize(
    ("pod", "presence", "reason", "interrupted"),
    [
        (a_pod("Pending"), Presence.PENDING, "", False),
        (
            a_pod("Pending", node="", conditions=[UNSCHEDULABLE]),
            Presence.STOPPING,
            "no node takes it: 0/3 nodes",
            False,
        ),
        (
            a_pod("Pending", node="", conditions=[UNSCHEDULABLE], made=290),
            Presence.STOPPING,
            "no node",
            False,
        ),
        (a_pod("Pending", node="node-1", conditions=[UNSCHEDULABLE]), Presence.PENDING, "", False),
        (a_pod("Running"), Presence.RUNNING, "", False),
        (a_pod("Unknown"), Presence.RUNNING, "", False),
        (a_pod("Running", deleted=1), Presence.STOPPING, "it is being deleted", False),
        (a_pod("Succeeded"), Presence.STOPPING, "its agent ended (Succeeded)", False),
        (
            a_pod("Failed", reason="Evicted", message="disk\nfull"),
            Presence.STOPPING,
            "Evicted: disk full",
            False,
        ),
        (
            a_pod("Failed", conditions=[EVICTED]),
            Presence.STOPPING,
            "EvictionByEvictionAPI: the node is drained",
            True,
        ),
    ],
)
def test_a_pod_says_what_became_of_its_machine(
    pod: Pod, presence: Presence, reason: str, interrupted: bool
) -> None:
    seen = listed(pod, "batch/x", when(300), 4 * MINUTE)
    assert (seen.presence, seen.interrupted) == (presence, interrupted)
    assert seen.reason.startswith(reason) if reason else not seen.reason


def test_a_pod_without_a_node_has_as_long_as_it_is_given() -> None:
    pod = a_pod("Pending", node="", conditions=[UNSCHEDULABLE])
    assert listed(pod, "batch/x", when(300), 300 * SECOND).presence is Presence.PENDING
    assert listed(pod, "batch/x", when(301), 300 * SECOND).presence is Presence.STOPPING
