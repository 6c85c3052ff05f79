"""Clusters of mixed kinds in one queue: jobs go where they may, cheapest first, and each cluster that is ruled out says why."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.processes import wait_until

SITES = {"image": "example/default:1", "keep": "0s"}


def rented(gpu_hour: float, startup: str, **more: Any) -> dict[str, Any]:
    price = {"gpu_hour": gpu_hour, "cpu_hour": gpu_hour}
    return {"role": "rented", "startup": startup, "price": price, "kubernetes": SITES} | more


@pytest.fixture(scope="module")
def served(both: tuple[Cluster, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Agents and Kubernetes, owned and rented. Rented ones are written with the dearest first, and the slowest before the quick."""
    onprem, cloud = both
    nodes = [
        (onprem, onprem.add_nodes(1, cpu="4", memory="16Gi")),
        (cloud, cloud.add_nodes(2, cpu="16", memory="64Gi")),
    ]
    owned = {"region": "north", "labels": {"tier": "gold"}, "kubernetes": SITES, "limits": {"jobs": 3}}
    clusters = {
        "onprem": (onprem, owned),
        "dear": (cloud, rented(5, "0s", region="south", labels={"tier": "gold"})),
        "slow": (cloud, rented(1, "60s", region="east")),
        "quick": (cloud, rented(1, "10s", region="south", labels={"tier": "iron"})),
    }
    local = {"name": "local", "local": [{"name": "local-1", "cpu": 1, "memory": "1Gi"}]}
    with Serving(
        tmp_path_factory.mktemp("constraints"),
        clusters,
        (local,),
        policy={"wait": {"constant": {"wait": "1h"}}},
    ) as serving:
        serving.await_nodes("local", 1)
        yield serving
    for cluster, names in nodes:
        cluster.remove_nodes(names)


def a_command(where: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A command that any of the clusters can run."""
    spec = {"run": "true", "resources": {"cpu": "100m"}} | spec
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": spec | ({"where": where} if where else {})}


@pytest.mark.parametrize(
    ("where", "cluster"),
    [
        ({"role": "rented"}, "quick"),
        ({"role": "owned", "kind": "kubernetes"}, "onprem"),
        ({"kind": "agents"}, "local"),
        ({"cluster": "slow"}, "slow"),
        ({"role": "rented", "avoid": "quick"}, "slow"),
        ({"region": "east"}, "slow"),
        ({"region": ["south", "west"], "labels": {"tier": "gold"}}, "dear"),
        ({"labels": {"tier": "iron"}}, "quick"),
        ({"avoid": ["onprem", "quick", "slow", "dear"]}, "local"),
    ],
)
def test_a_job_runs_where_it_may(served: Serving, where: dict[str, Any], cluster: str) -> None:
    ended = served.run(a_command(where))
    assert (ended.state, ended.cluster) == ("SUCCEEDED", cluster)


def test_annotations_of_a_manifest_say_where_too(served: Serving) -> None:
    notes = {"where.region": "south", "where.labels": "tier=gold"}
    assert served.run(a_job(notes=notes)).cluster == "dear"


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        (
            {"role": "owned", "region": "south"},
            {
                "onprem": "region: south",
                "dear": "role: owned",
                "quick": "role: owned",
                "local": "region: south",
            },
        ),
        (
            {"cluster": "onprem", "labels": {"tier": "iron"}},
            {"onprem": "labels: tier=iron", "dear": "cluster: onprem", "local": "cluster: onprem"},
        ),
        (
            {"kind": "agents", "avoid": "local"},
            {"onprem": "kind: agents", "slow": "kind: agents", "local": "avoid: local"},
        ),
    ],
)
def test_a_job_that_no_cluster_may_run_hears_from_each_which_of_its_wishes_rules_it_out(
    served: Serving, where: dict[str, Any], asked: dict[str, str]
) -> None:
    [job] = served.submit(a_command(where))
    served.reason(job, "not_where")
    typed = served.server.spill("why", job, "--json", timeout=PATIENCE)
    verdicts = {each["cluster"]: each["reason"] for each in json.loads(typed.stdout)["clusters"]}
    assert {name: reason["code"] for name, reason in verdicts.items()} == dict.fromkeys(
        ("onprem", "dear", "slow", "quick", "local"), "not_where"
    )
    assert {name: verdicts[name]["details"]["asked"] for name in asked} == {
        name: [wish] for name, wish in asked.items()
    }
    printed = served.server.spill("why", job, timeout=PATIENCE).stdout
    for wish in asked.values():
        assert wish in printed
    served.client.cancel(job)


def test_each_cluster_has_a_reason_of_its_own(served: Serving) -> None:
    """One is too small, one cannot run it, some have not what it needs."""
    [job] = served.submit(
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "spec": {
                "container": {"image": "example/image:1"},
                "resources": {"cpu": 10},
                "where": {"avoid": "quick"},
                "burst": "never",
            },
        }
    )
    wait_until(lambda: served.why(job).reason, "a reason", PATIENCE)
    says = served.says(job)
    assert says["onprem"] == "too_big"
    assert says["quick"] == "not_where"
    assert says["slow"] == says["dear"] == "burst_refused"
    assert says["local"] in {"too_big", "not_offered"}
    served.client.cancel(job)


def test_rented_clusters_are_taken_by_price_then_by_when_they_would_start(served: Serving) -> None:
    assert served.run(a_command(burst="always")).cluster == "quick"
    assert served.run(a_command({"avoid": "quick"}, burst="always")).cluster == "slow"
    assert served.run(a_command({"avoid": ["quick", "slow"]}, burst="always")).cluster == "dear"


def test_a_cluster_that_would_be_too_late_is_passed_over(served: Serving) -> None:
    deadline = (datetime.now(UTC) + timedelta(seconds=45)).isoformat().replace("+00:00", "Z")
    on_time = a_command({"cluster": ["slow", "dear"]}, deadline=deadline, estimate="5s")
    assert served.run(on_time).cluster == "dear"  # `slow` is cheaper, and takes a minute to start
    [late] = served.submit(a_command({"cluster": ["slow"]}, deadline=deadline, estimate="5s"))
    served.reason(late, "too_late")
    assert served.says(late)["slow"] == "too_late"
    served.client.cancel(late)


def test_no_more_jobs_are_there_than_the_limit_of_a_cluster_allows(served: Serving) -> None:
    here = {"where.cluster": "onprem"}
    first = served.submit(*(a_job(notes=here, runs_for="forever") for _ in range(3)))
    served.running(*first)
    [beyond] = served.submit(a_job(notes=here))
    assert "limit" in served.reason(beyond, "at_limit")
    served.client.cancel(first[0])
    assert served.ended(beyond).state == "SUCCEEDED"
    served.client.cancel(*first[1:])
    for job in first[1:]:
        served.ended(job)


def test_owned_clusters_are_filled_in_their_order_whatever_their_kind(served: Serving) -> None:
    [full] = served.submit(a_job(cpu="4", runs_for="forever"))
    assert served.running(full)[0].cluster == "onprem"
    assert served.run(a_command()).cluster == "local"
    served.client.cancel(full)
    served.ended(full)
    assert served.run(a_command()).cluster == "onprem"


def test_what_nodes_offer_is_what_jobs_may_need(served: Serving) -> None:
    assert served.run(a_command({"kind": "kubernetes"}, needs=["os:linux"])).cluster == "onprem"
    [job] = served.submit(a_command({"kind": "kubernetes"}, needs=["os:plan9"]))
    assert "os:plan9" in served.reason(job, "not_offered")
    assert served.says(job)["onprem"] == "not_offered"
    served.client.cancel(job)
