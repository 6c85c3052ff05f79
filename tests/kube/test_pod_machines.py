"""Pools of the provider kubernetes with pods that really run: their agents join the server, run its jobs, and go."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillover.core.events import MachineGone, MachineJoined, MachinesWanted
from tests.support.kube import Cluster
from tests.support.kube.cluster_api import ClusterApi, install
from tests.support.kube.kubelet import REAL, Kubelet
from tests.support.processes import ServerProcess, nothing_left, read_journal, wait_until, write_config

POOL = {"spillover.test/pool": "really-run"}
SPILL = str(Path(sys.prefix) / "bin" / "spill")
PATIENCE = 60.0


class Rented:
    """A server with a pool of pods in a namespace of its own, and the kubelet that runs them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.namespace = cluster.namespace("machines")
        self.kubelet = Kubelet(cluster, self.namespace, folder / "kubelet")
        self.server: ServerProcess | None = None

    def up(self, labels: dict[str, str] = POOL, idle: str = "0s", **options: Any) -> ServerProcess:
        """Start a server with the pool."""
        provider = {
            "image": "spillover:test",
            "kubeconfig": str(self.cluster.kubeconfig),
            "namespace": self.namespace,
            "program": SPILL,
            "annotations": REAL,
            "pod": {"nodeSelector": labels},
        }
        pool = {
            "provider": {"kubernetes": provider | options},
            "offers": [
                {"type": "small", "cpu": 1, "memory": "1Gi", "hour": 0.1, "labels": {"said": "a $(HOME)"}}
            ],
            "max": 2,
            "boot": "5s",
            "idle": idle,
            "alone_for": "0s",  # these machines are this machine
        }
        clusters = [{"name": "cloud", "role": "rented", "pool": pool}]
        words = write_config(self.folder, clusters=clusters, policy={"wait": "zero"})
        self.server = ServerProcess(self.folder, *words).up()
        return self.server

    def listed(self, what: str) -> list[str]:
        """Return the names of the objects of a kind that are in the namespace, without those of the cluster itself."""
        answer = self.cluster.admin.get(f"/api/v1/namespaces/{self.namespace}/{what}").raise_for_status()
        return [each["metadata"]["name"] for each in answer.json()["items"]]

    def ran(self, *words: str) -> str:
        """Run a job to its end; return its output."""
        assert self.server is not None
        done = self.server.spill("run", "--wait", "--cpu", "1", *words, timeout=PATIENCE)
        assert done.returncode == 0, f"{done}; the pods say: {self.kubelet.log()}"
        return done.stdout

    def await_nothing(self) -> None:
        """Wait until nothing is left of any machine."""
        wait_until(lambda: not self.listed("pods"), "the pods having gone", PATIENCE)
        wait_until(lambda: not self.listed("secrets"), "their Secrets having gone", PATIENCE)
        wait_until(lambda: not self.kubelet.processes(), "their processes having ended", PATIENCE)


@pytest.fixture
def rented(cloud: Cluster, tmp_path: Path) -> Iterator[Rented]:
    there = Rented(cloud, tmp_path)
    with there.kubelet.running():
        yield there
        if there.server is not None:
            there.server.clear()
    cloud.remove_namespace(there.namespace)
    nothing_left(tmp_path)


@pytest.fixture
def node(cloud: Cluster) -> Iterator[str]:
    (name,) = cloud.add_nodes(1, cpu="4", labels=POOL)
    yield name
    cloud.remove_nodes([name])


def ready(server: ServerProcess) -> list[str]:
    with server.client() as client:
        return [agent.name for agent in client.agents() if agent.state == "ready"]


def states(server: ServerProcess) -> list[str]:
    with server.client() as client:
        return [machine.state for pool in client.pools() for machine in pool.machines]


def test_a_pod_is_rented_for_a_job_and_given_back(rented: Rented, node: str) -> None:
    server = rented.up()
    assert rented.ran("--", "sh", "-c", "echo rented") == "rented\n"
    rented.await_nothing()
    wait_until(lambda: states(server) == ["gone"], "the server knowing that", PATIENCE)
    assert not ready(server)
    assert server.stop() == 0
    events = read_journal(server.data)
    wishes = [wish for event in events if isinstance(event, MachinesWanted) for wish in event.wishes]
    joined = [event for event in events if isinstance(event, MachineJoined)]
    gone = [event for event in events if isinstance(event, MachineGone)]
    assert [len(each) for each in (wishes, joined, gone)] == [1, 1, 1]
    assert gone[0].paid == gone[0].boot + gone[0].useful + gone[0].idle > 0


def test_a_job_whose_pod_is_killed_runs_on_another_one(rented: Rented, node: str, tmp_path: Path) -> None:
    server = rented.up()
    once = tmp_path / "once"
    script = f"test -e {once} && echo again || {{ touch {once}; sleep 1000; }}"
    begun = server.spill("run", "--detach", "--cpu", "1", "--", "sh", "-c", script)
    job = begun.stdout.strip()
    assert begun.returncode == 0, begun
    wait_until(once.exists, "the job running on the first pod", PATIENCE)
    (first,) = rented.listed("pods")
    rented.kubelet.kill(first)
    with server.client(patience=PATIENCE) as client:
        wait_until(lambda: client.job(job).state == "SUCCEEDED", "the job running on another pod", PATIENCE)
    rented.await_nothing()


def test_a_pod_outlives_its_server_and_joins_the_next_one(rented: Rented, node: str) -> None:
    server = rented.up(idle="1h")
    rented.ran("--", "true")
    (pod,) = rented.listed("pods")
    (machine,) = ready(server)
    server.kill()
    server.up()
    wait_until(lambda: ready(server) == [machine], "the machine joining again", PATIENCE)
    assert rented.ran("--", "sh", "-c", "echo again") == "again\n"
    assert rented.listed("pods") == [pod]
    assert server.spill("pools", "pause", "cloud", "--end").returncode == 0
    rented.await_nothing()


def test_a_node_of_a_group_comes_for_a_job_and_goes_after_it(rented: Rented, cloud: Cluster) -> None:
    install(cloud)
    labels = {"spillover.test/pool": "grown-for-a-job"}
    with ClusterApi(cloud, rented.namespace, labels).running() as group:
        group.deploy("workers")
        server = rented.up(labels, machine_deployment=f"{rented.namespace}/workers", bind_within="5m")
        assert group.replicas("workers") == 0
        assert rented.ran("--", "sh", "-c", "echo grown") == "grown\n"
        rented.await_nothing()
        wait_until(lambda: not group.machines(), "the node having gone", PATIENCE)
        assert group.replicas("workers") == 0
        assert server.stop() == 0
