"""A real Kubernetes cluster is added to a server that runs, drained and removed; nothing of ours is left on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillover.client import SpillError
from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.processes import wait_until


@pytest.fixture
def served(onprem: Cluster, cloud: Cluster, tmp_path: Path) -> Iterator[Serving]:
    """A server above one cluster; each has a node."""
    nodes = {cluster: cluster.add_nodes(1, cpu="2") for cluster in (onprem, cloud)}
    try:
        with Serving(tmp_path / "server", {"onprem": (onprem, {})}) as served:
            yield served
    finally:
        for cluster, names in nodes.items():
            cluster.remove_nodes(names)


@pytest.fixture
def entry(cloud: Cluster) -> Iterator[dict[str, Any]]:
    """The other cluster, as spill.yaml would have it."""
    namespace = cloud.namespace("added")
    reached = {"kubeconfig": str(cloud.kubeconfig), "namespace": namespace}
    yield {"name": "cloud", "kind": "kubernetes", "kubernetes": reached}
    cloud.remove_namespace(namespace)


def there(cloud: Cluster, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Jobs on the other cluster."""
    namespace = entry["kubernetes"]["namespace"]
    answer = cloud.admin.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")
    items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
    return items


def test_a_cluster_is_added_drained_and_removed_while_another_runs_jobs(
    served: Serving, cloud: Cluster, entry: dict[str, Any]
) -> None:
    client = served.client
    [long] = served.submit(a_job("long", runs_for="forever", notes={"where.cluster": "onprem"}))
    served.running(long)
    nowhere = {**entry, "kubernetes": {**entry["kubernetes"], "namespace": "nowhere"}}
    with pytest.raises(SpillError, match="there is no namespace 'nowhere'"):
        client.add_cluster(nowhere)
    assert client.add_cluster(entry).life in {"requested", "connecting", "ready"}
    served.await_state("cloud", "READY")
    done = served.run(a_job("guest", notes={"where.cluster": "cloud"}))
    assert (done.state, done.cluster) == ("SUCCEEDED", "cloud")
    assert there(cloud, entry), "what has ended is kept for a while"
    [stays] = served.submit(a_job("stays", runs_for="forever", notes={"where.cluster": "cloud"}))
    served.running(stays)
    client.drain_clusters("cloud")
    [waits] = served.submit(a_job("waits", notes={"where.cluster": "cloud"}))
    assert "cloud was drained by" in served.reason(waits, "cluster_drained")
    client.resume_clusters("cloud")
    assert served.ended(waits).state == "SUCCEEDED"
    client.remove_clusters("cloud", jobs="cancel")
    assert served.ended(stays).state == "CANCELLED"
    wait_until(
        lambda: [each.name for each in client.clusters()] == ["onprem"], "the cluster is gone", PATIENCE
    )
    wait_until(lambda: not there(cloud, entry), "nothing of ours is left there", PATIENCE, every=0.1)
    after = served.job(long)
    assert (after.state, after.attempt) == ("RUNNING", 1)
    client.cancel(long)
