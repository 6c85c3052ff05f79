"""The provider clusterapi without a cluster: its options, and what objects say. `tests/kube` has the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.model.pools import Offer
from spillover.ports.kinds import CannotOpen
from spillover.ports.provider import Presence
from spillover.providers.clusterapi.kind import ClusterApiForm, ClusterApiKind
from spillover.providers.clusterapi.objects import CLUSTERS, cluster_of, listed, page_of
from spillover.testing.maker_suite import MakerSuite
from spillover.testing.provider_suite import an_opening

KIND = ClusterApiKind()
SMALL = MakerSuite.offer
GIVEN: dict[str, Any] = {"cluster_class": "quick", "version": "v1.33.1"}
NEW, OLD = "cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1"


def flaws(offers: tuple[Offer, ...] = (SMALL,), **options: Any) -> dict[Any, str]:
    return {flaw.path: flaw.message for flaw in KIND.check(ClusterApiForm(**options), offers)}


def topology(version: str = NEW, offer: Offer = SMALL, **options: Any) -> dict[str, Any]:
    form = ClusterApiForm(**GIVEN | options)
    found: dict[str, Any] = cluster_of(MakerSuite().an_order(offer=offer), form, version)["spec"]["topology"]
    return found


def test_options_that_are_missing_or_cannot_work_are_told() -> None:
    assert flaws() == {
        ("cluster_class",): "is missing; name a ClusterClass, such as one of `kubectl get clusterclasses -A`",
        ("version",): "is missing; write a version of Kubernetes, such as v1.33.1",
    }
    assert flaws(**GIVEN) == {}
    assert flaws(
        cluster_class="a/b/c", version="1.33", in_cluster=True, context="x", namespace="No Such"
    ) == {
        ("in_cluster",): "cannot be combined with kubeconfig or context; leave one of them out",
        ("namespace",): "'No Such' is not the name of a namespace",
        ("cluster_class",): "'a/b/c' is not NAME or NAMESPACE/NAME",
        ("version",): "'1.33' is not a version; write one such as v1.33.1",
    }
    assert flaws(**GIVEN | {"version": "v1.33.1+rke2r1"}) == {}


def test_a_variable_is_set_by_the_offer_or_by_hand() -> None:
    assert flaws(**GIVEN, type_variable="size", variables={"size": "small"}) == {
        ("variables", "size"): "is set from the offer, as type_variable says; leave it out"
    }


def test_a_spot_offer_needs_a_variable_that_asks_for_it() -> None:
    spot = replace(SMALL, spot=True)
    assert [*flaws((SMALL, spot), **GIVEN)] == [("offers", 1)]
    assert flaws((SMALL, spot), **GIVEN, spot_variable="spot") == {}
    assert topology(offer=SMALL, spot_variable="spot")["variables"] == [{"name": "spot", "value": False}]


def test_each_version_names_the_class_in_its_way() -> None:
    assert topology(NEW)["classRef"] == {"name": "quick"}
    assert topology(NEW, cluster_class="shared/quick")["classRef"] == {"name": "quick", "namespace": "shared"}
    old = topology(OLD, cluster_class="shared/quick")
    assert (old["class"], old["classNamespace"]) == ("quick", "shared")
    assert "classNamespace" not in topology(OLD)
    assert "variables" not in topology(), "an empty list is refused"


def test_it_makes_clusters() -> None:
    assert KIND.makes_clusters(ClusterApiForm())


def test_without_a_kubeconfig_it_says_where_it_looked(tmp_path: Path) -> None:
    (line,) = KIND.missing(ClusterApiForm(), {}, tmp_path)
    assert str(tmp_path / ".kube" / "config") in line
    with pytest.raises(CannotOpen, match="kubeconfig"):
        KIND.open(ClusterApiForm(**GIVEN), replace(an_opening(tmp_path, environ={}), home=tmp_path))


@pytest.mark.parametrize(
    ("status", "presence"),
    [
        ({}, Presence.PENDING),
        ({"phase": "Provisioned", "infrastructureReady": True}, Presence.PENDING),
        ({"phase": "Failed"}, Presence.PENDING),
        ({"controlPlaneReady": True}, Presence.RUNNING),
        ({"initialization": {"infrastructureProvisioned": True}}, Presence.PENDING),
        ({"initialization": {"controlPlaneInitialized": True}, "phase": "Failed"}, Presence.RUNNING),
    ],
)
def test_a_cluster_runs_once_its_control_plane_has_answered(
    status: dict[str, Any], presence: Presence
) -> None:
    document: dict[str, Any] = {"metadata": {"name": "x"}, "status": status}
    assert listed(CLUSTERS.decode(json.dumps(document)), "batch/x").presence is presence
    document["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    assert listed(CLUSTERS.decode(json.dumps(document)), "batch/x").presence is Presence.STOPPING


def test_of_an_odd_object_the_name_and_labels_count() -> None:
    labels = {"spillover-owner": "me", "spillover-machine": "burst-1"}
    odd = {"metadata": {"name": "x", "labels": labels}, "spec": {"topology": None}, "status": "?"}
    page = page_of(json.dumps({"metadata": {"continue": "more"}, "items": [odd]}).encode())
    (seen,) = [listed(each, "batch/x") for each in page.items]
    assert (seen.name, seen.owner, seen.machine, seen.nodes) == ("x", "me", "burst-1", None)
    assert page.metadata.more == "more"
