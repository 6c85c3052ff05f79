"""A server that makes whole Kubernetes clusters for jobs that nothing else can run, sizes them, and gives them back."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillover.core.events import ClusterAdded, ClusterRemoved, ClusterSized, MachineGone, MachinesWanted
from spillover.wire.api import MachineView
from tests.kube.test_cluster_api_maker import Management, managed
from tests.support.kube import Cluster
from tests.support.kube.cluster_api import VERSIONS
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.processes import read_journal, wait_until

MAKER = Path(__file__).parents[1] / "support" / "kube" / "maker.py"
BOOTS = 4 * PATIENCE
"""Seconds for a control plane to answer on a busy machine."""


def template(folder: Path, **pool: Any) -> dict[str, Any]:
    programs = {name: [sys.executable, str(MAKER), name] for name in PROGRAMS}
    offer = {"type": "kwok", "cpu": 2, "memory": "4Gi", "hour": 0.4, "nodes": "1..4", "cluster_hour": 0.1}
    return {
        "name": "burst",
        "kind": "kubernetes",
        "role": "rented",
        "region": "eu",
        "kubernetes": {"namespace": "default"},
        "pool": {
            "provider": {"command": {**programs, "env": {"CLUSTERS": str(folder)}}},
            "offers": [offer],
            "boot": "1m",
            "join_within": "10m",
            "idle": "3s",
            "max": 1,
            **pool,
        },
    }


PROGRAMS = ("create", "list", "destroy", "kubeconfig", "resize")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    """A server that owns nothing, and has a template."""
    served = Serving(tmp_path / "server", {}, (template(tmp_path / "clusters"),), policy={"wait": "zero"})
    served.launch()
    try:
        yield served
    finally:
        try:
            if served.server.process.poll() is None and live(served):
                served.client.pause_pool("burst", end=True)
                wait_until(lambda: not live(served), "all clusters being gone", BOOTS)
        finally:
            served.clear()


def live(served: Serving) -> list[MachineView]:
    (pool,) = served.client.pools()
    return [each for each in pool.machines if each.state not in {"gone", "refused"}]


def ready(served: Serving, nodes: int) -> bool:
    return [(each.state, each.nodes) for each in live(served)] == [("ready", nodes)]


def running(served: Serving, job: str) -> None:
    wait_until(lambda: served.job(job).state == "RUNNING", f"{job} running", BOOTS, 0.2)


def test_a_cluster_is_made_for_jobs_grows_shrinks_and_is_given_back(served: Serving, tmp_path: Path) -> None:
    (job,) = served.submit(a_job("first", cpu="1500m", runs_for="forever", notes={"where.region": "eu"}))
    assert "waits for cluster burst-1 (1 x kwok)" in str(served.client.why(job))
    running(served, job)
    assert served.job(job).cluster == "burst-1"
    assert ready(served, 1)
    (more,) = served.submit(
        a_job("more", cpu="1500m", runs_for="forever", spec={"parallelism": 2, "completions": 2})
    )
    running(served, more)
    assert ready(served, 3)
    served.client.cancel(more)
    wait_until(lambda: ready(served, 1), "the cluster shrinking", BOOTS)
    assert served.job(job).state == "RUNNING", "its node stays"
    served.client.cancel(job)
    wait_until(lambda: not live(served), "the cluster being gone", BOOTS)
    assert not list((tmp_path / "clusters").glob("[!.]*"))
    assert [each.name for each in served.client.clusters()] == ["burst"]
    served.disconnect()
    served.server.stop()
    events = read_journal(served.server.data)
    assert len([each for each in events if isinstance(each, MachinesWanted)]) == 1
    assert [each.nodes for each in events if isinstance(each, ClusterSized)] == [3, 1]
    assert [each.spec.name for each in events if isinstance(each, ClusterAdded)] == ["burst-1"]
    assert [each.cluster for each in events if isinstance(each, ClusterRemoved)] == ["burst-1"]
    (gone,) = [each for each in events if isinstance(each, MachineGone)]
    assert gone.paid == gone.boot + gone.useful + gone.interrupted + gone.idle > 0


def test_a_server_that_was_killed_finds_its_cluster_and_its_job_again(
    served: Serving, tmp_path: Path
) -> None:
    (job,) = served.submit(a_job("long", cpu="1", runs_for="forever"))
    running(served, job)
    served.kill()
    for kept in served.server.data.glob("pools/burst/clusters/*"):
        kept.unlink()  # as on another machine that takes over
    served.launch()
    served.await_state("burst-1", "READY")
    assert served.job(job).state == "RUNNING"
    assert served.job(job).attempt == 1
    assert len(list((tmp_path / "clusters").glob("[!.]*"))) == 1


def test_the_jobs_of_a_cluster_that_died_run_on_another_one(served: Serving, tmp_path: Path) -> None:
    (job,) = served.submit(a_job("long", cpu="1", runs_for="forever"))
    running(served, job)
    (folder,) = (tmp_path / "clusters").glob("[!.]*")
    os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
    wait_until(
        lambda: served.job(job).cluster == "burst-2" and served.job(job).state == "RUNNING",
        "another cluster",
        2 * BOOTS,
    )
    assert served.job(job).attempt == 2


@pytest.fixture
def management(cloud: Cluster, onprem: Cluster, tmp_path: Path) -> Iterator[Management]:
    """A management cluster with played controllers. What they make has nodes of its own on the other cluster."""
    yield from managed(cloud, onprem, tmp_path, *VERSIONS)


@pytest.fixture
def with_cluster_api(management: Management, onprem: Cluster, tmp_path: Path) -> Iterator[Serving]:
    """A server that owns nothing, and has a template of Cluster API."""
    namespace = onprem.namespace("made")
    form = {
        "kubeconfig": str(management.config),
        "namespace": management.namespace,
        "cluster_class": "quick",
        "version": "v1.33.1",
    }
    entry = template(tmp_path, provider={"clusterapi": form}) | {"kubernetes": {"namespace": namespace}}
    entry["pool"]["offers"][0] |= {"cpu": 4}
    served = Serving(tmp_path / "server", {}, (entry,), policy={"wait": "zero"})
    try:
        served.launch()
        yield served
    finally:
        served.clear()
        onprem.remove_namespace(namespace)


def test_a_cluster_of_cluster_api_is_made_for_jobs_grows_shrinks_and_is_given_back(
    with_cluster_api: Serving, management: Management
) -> None:
    served, made = with_cluster_api, management.controllers
    (job,) = served.submit(a_job("first", cpu="3", runs_for="forever", notes={"where.region": "eu"}))
    running(served, job)
    assert served.job(job).cluster == "burst-1"
    assert ready(served, 1)
    (name,) = [each["metadata"]["name"] for each in made.clusters()]
    (first,) = made.nodes(name)
    spec = {"parallelism": 2, "completions": 2}
    (more,) = served.submit(a_job("more", cpu="3", runs_for="forever", spec=spec))
    running(served, more)
    assert ready(served, 3)
    assert len(made.nodes(name)) == 3
    served.client.cancel(more)
    wait_until(lambda: made.nodes(name) == {first}, "only the node with the job being left", BOOTS)
    assert served.job(job).state == "RUNNING"
    served.client.cancel(job)
    wait_until(lambda: not live(served) and not made.clusters(), "the cluster being gone", BOOTS)
    assert made.nodes(name) == set()
    served.disconnect()
    assert served.server.stop() == 0
    events = read_journal(served.server.data)
    assert [each.nodes for each in events if isinstance(each, ClusterSized)] == [3, 1]
    (gone,) = [each for each in events if isinstance(each, MachineGone)]
    assert gone.paid == gone.boot + gone.useful + gone.interrupted + gone.idle > 0
