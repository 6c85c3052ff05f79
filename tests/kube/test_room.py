"""What a real cluster has room for is known before jobs are placed, and followed after: nothing is placed in vain, no room leaks."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.support.kube import Cluster
from tests.support.kube.serving import MERGE, PATIENCE, Serving, a_job
from tests.support.processes import wait_until

_pools = itertools.count(1)


@pytest.fixture(scope="module")
def served(onprem: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    hasty = {"kubernetes": {"bind_within": "2s", "backoff": "4s", "keep": "0s"}}
    with Serving(tmp_path_factory.mktemp("room"), {"onprem": (onprem, hasty)}) as serving:
        yield serving


class Pool:
    """Nodes of one test, and what is submitted for them alone."""

    def __init__(self, served: Serving, cluster: Cluster, name: str) -> None:
        self.served = served
        self.cluster = cluster
        self.name = name
        self.nodes: list[str] = []
        self.submitted: list[str] = []

    def add(self, count: int = 1, **how: Any) -> list[str]:
        """More nodes."""
        labels = how.pop("labels", {}) | {"pool": self.name}
        added = self.cluster.add_nodes(count, labels=labels, **how)
        self.nodes += added
        return added

    def submit(self, pod: dict[str, Any] | None = None, **how: Any) -> str:
        """A job for these nodes."""
        [job] = self.served.submit(a_job(pod={"nodeSelector": {"pool": self.name}} | (pod or {}), **how))
        self.submitted.append(job)
        return job

    def runs(self, **how: Any) -> str:
        """A job for these nodes that runs until it is cancelled, or ended by its pool."""
        job = self.submit(**how, runs_for="forever")
        self.served.running(job)
        return job

    def patch(self, node: str, change: dict[str, Any], part: str = "") -> None:
        """Change a node."""
        path = f"/api/v1/nodes/{node}{part}"
        self.cluster.admin.patch(path, content=msgspec.json.encode(change), headers=MERGE).raise_for_status()

    def clear(self) -> None:
        """Cancel what lives, and take the nodes away."""
        living = [job for job in self.submitted if self.served.job(job).finished_at is None]
        if living:
            self.served.client.cancel(*living)
        for job in living:
            self.served.ended(job)
        self.cluster.remove_nodes(self.nodes)


@pytest.fixture
def pool(served: Serving, onprem: Cluster) -> Iterator[Pool]:
    made = Pool(served, onprem, f"pool-{next(_pools)}")
    yield made
    made.clear()
    # What the book says is used, and what is there, is nothing again.
    served.await_gone("onprem")
    served.await_used("onprem")


@pytest.fixture
def beside(served: Serving, pool: Pool) -> Iterator[Callable[..., None]]:
    """Pods of others, which are deleted before the nodes are."""
    del pool
    made: list[str] = []

    def add(node: str, cpu: str, **pod: Any) -> None:
        made.append(f"foreign-{len(made)}")
        served.foreign_pod("onprem", node, cpu, made[-1], **pod)

    yield add
    for name in made:
        served.clusters["onprem"].admin.delete(
            f"/api/v1/namespaces/{served.namespaces['onprem']}/pods/{name}"
        )


def test_what_pods_of_others_use_is_not_room(
    served: Serving, pool: Pool, beside: Callable[..., None]
) -> None:
    [node] = pool.add(cpu="4")
    beside(node, "3")
    served.await_used("onprem", foreign=3.0)
    job = pool.submit(cpu="2")
    served.reason(job, "no_room")
    assert not served.jobs("onprem", job)
    served.delete("onprem", "pods", "foreign-0")
    assert served.ended(job).state == "SUCCEEDED"


def test_init_containers_and_overhead_of_others_and_of_ours_count_as_for_the_scheduler(
    served: Serving, onprem: Cluster, pool: Pool, beside: Callable[..., None]
) -> None:
    runtime = {
        "metadata": {"name": "heavy"},
        "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "1"}},
    }
    onprem.admin.post("/apis/node.k8s.io/v1/runtimeclasses", json=runtime).raise_for_status()
    [node] = pool.add(cpu="8")
    first = {"name": "first", "image": "x", "resources": {"requests": {"cpu": "3"}}}
    beside(node, "1", initContainers=[first], runtimeClassName="heavy")
    served.await_used("onprem", foreign=4.0)  # the larger of both, and the overhead that admission adds
    ours = pool.runs(
        cpu="1", pod={"initContainers": [first], "runtimeClassName": "heavy", "overhead": {"cpu": "1"}}
    )
    assert served.job(ours).resources["cpu"] == 4.0
    beyond = pool.submit(cpu="100m")
    served.reason(beyond, "no_room")
    served.client.cancel(ours)
    assert served.ended(beyond).state == "SUCCEEDED"
    onprem.admin.delete("/apis/node.k8s.io/v1/runtimeclasses/heavy").raise_for_status()


def test_taints_keep_jobs_away_that_do_not_tolerate_them(served: Serving, pool: Pool) -> None:
    pool.add(taints=["dedicated=batch:NoSchedule"])
    job = pool.submit()
    assert "dedicated=batch:NoSchedule" in served.reason(job, "tainted")
    assert served.says(job) == {"onprem": "tainted"}
    tolerant = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    assert served.ended(pool.submit(tolerant)).state == "SUCCEEDED"
    assert served.job(job).state == "QUEUED"
    assert not served.jobs("onprem", job)


def ready_nodes(served: Serving) -> int:
    [nodes] = [each.agents for each in served.client.clusters() if each.name == "onprem"]
    return nodes


def test_a_cordoned_node_is_given_nothing_until_it_is_not(served: Serving, pool: Pool) -> None:
    [node] = pool.add()
    running = pool.runs()
    ready = ready_nodes(served)
    pool.patch(node, {"spec": {"unschedulable": True}})
    wait_until(lambda: ready_nodes(served) == ready - 1, "the cordon being seen", PATIENCE)
    job = pool.submit()
    served.reason(job, "no_node_ready")
    assert served.job(running).state == "RUNNING"
    pool.patch(node, {"spec": {"unschedulable": None}})
    assert served.ended(job).state == "SUCCEEDED"


def test_nodes_that_are_asked_for_and_not_there_are_named(served: Serving, pool: Pool) -> None:
    pool.add(labels={"disk": "slow"})
    job = pool.submit({"nodeSelector": {"pool": pool.name, "disk": "fast"}})
    assert "disk" in served.reason(job, "no_such_node")
    pool.add(labels={"disk": "fast"})
    assert served.ended(job).state == "SUCCEEDED"


def test_resources_of_other_kinds_are_counted(served: Serving, pool: Pool) -> None:
    [node] = pool.add()
    fpga = "example.com/fpga"
    pool.patch(node, {"status": {"capacity": {fpga: "2"}, "allocatable": {fpga: "2"}}}, "/status")

    def asking(amount: int) -> dict[str, Any]:
        resources = {"limits": {fpga: str(amount)}}
        return {"containers": [{"name": "main", "image": "x", "resources": resources}]}

    first = pool.runs(pod=asking(2))
    second, third = pool.submit(asking(1)), pool.submit(asking(3))
    assert fpga in served.reason(second, "no_room")
    assert fpga in served.reason(third, "too_big")
    served.client.cancel(first)
    assert served.ended(second).state == "SUCCEEDED"


def test_a_node_takes_no_more_pods_than_it_may(
    served: Serving, pool: Pool, beside: Callable[..., None]
) -> None:
    [node] = pool.add(pods=2)
    beside(node, "100m")
    first = pool.runs()
    second = pool.submit()
    served.reason(second, "at_limit")
    served.client.cancel(first)
    assert served.ended(second).state == "SUCCEEDED"


def test_the_state_follows_where_pods_really_are(served: Serving, pool: Pool) -> None:
    [one] = pool.add(cpu="4")
    [other] = pool.add(cpu="4")

    def rather(node: str) -> dict[str, Any]:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        preference = {"weight": 100, "preference": {"matchExpressions": [expression]}}
        return {
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
        }

    first = pool.runs(cpu="3", pod=rather(other))
    wait_until(lambda: served.job(first).node == other, "the node being known", PATIENCE)
    second = pool.runs(cpu="4")
    assert served.job(second).node == one
    served.client.cancel(first, second)
    served.ended(first)
    served.ended(second)
    # The same again, the other way round: it was not by chance.
    third = pool.runs(cpu="3", pod=rather(one))
    wait_until(lambda: served.job(third).node == one, "the node being known", PATIENCE)


@contextmanager
def no_scheduler(cluster: Cluster) -> Iterator[None]:
    """Nobody binds pods. The scheduler that comes back lists all of them first; one that was only paused might bind ours before it hears of others."""
    cluster.scheduler.kill()
    try:
        yield
    finally:
        cluster.scheduler.start()


def test_room_that_pods_of_others_take_before_ours_are_bound_sends_the_job_back_and_leaks_nothing(
    served: Serving, onprem: Cluster, pool: Pool, beside: Callable[..., None]
) -> None:
    [node] = pool.add(cpu="4")
    with no_scheduler(onprem):
        job = pool.submit(cpu="3")
        wait_until(lambda: served.pods("onprem", job), "a pod that nobody binds", PATIENCE)
        beside(node, "3")
        served.await_used("onprem", cpu=3.0, foreign=3.0)
    wait_until(lambda: served.events(job, "job_requeued"), "the job going back", PATIENCE, every=0.1)
    [requeued] = served.events(job, "job_requeued")
    assert "Insufficient cpu" in requeued
    assert (served.job(job).state, served.job(job).attempt) == ("QUEUED", 1)
    assert not served.pods("onprem", job)
    served.await_used("onprem", foreign=3.0)
    served.delete("onprem", "pods", "foreign-0")
    assert served.ended(job).state == "SUCCEEDED"


def test_a_job_whose_pods_find_room_for_one_at_a_time_runs_them_in_turn_and_leaks_nothing(
    served: Serving, onprem: Cluster, pool: Pool, beside: Callable[..., None]
) -> None:
    one, _ = pool.add(2, cpu="4")
    with no_scheduler(onprem):
        job = pool.submit(cpu="3", spec={"parallelism": 2, "completions": 2})
        wait_until(lambda: len(served.pods("onprem", job)) == 2, "two pods that nobody binds", PATIENCE)
        beside(one, "3")
        served.await_used("onprem", cpu=6.0, foreign=3.0)
    ended = served.ended(job)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1)
    served.await_used("onprem", foreign=3.0)
