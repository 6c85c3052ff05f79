"""Gangs on a real cluster, whose scheduler binds pods one by one: each runs as a whole, or gives all its room back."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from spillover.core.events import JobRequeued
from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving
from tests.support.processes import read_journal, wait_until

HASTY = {"kubernetes": {"bind_within": "2s", "backoff": "2s", "keep": "0s"}}
CPUS = 10


@pytest.fixture(scope="module")
def nodes(onprem: Cluster) -> Iterator[list[str]]:
    made = onprem.add_nodes(CPUS, cpu="1", labels={"pool": "gangs"})
    yield made
    onprem.remove_nodes(made)


@pytest.fixture(scope="module")
def served(onprem: Cluster, nodes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that takes one cluster for two, so that it may place two gangs in the same room."""
    del nodes
    both = {"onprem": (onprem, HASTY), "rival": (onprem, HASTY)}
    with Serving(tmp_path_factory.mktemp("gangs"), both) as serving:
        yield serving


@pytest.fixture(autouse=True)
def clean(served: Serving) -> Iterator[None]:
    yield
    for name in served.clusters:
        served.await_gone(name)
        served.await_used(name)


def a_gang(tasks: int, cluster: str = "onprem", runs_for: str = "4s") -> dict[str, Any]:
    return {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": f"gang-of-{tasks}"},
        "spec": {
            "container": {"image": "example/image:1"},
            "tasks": tasks,
            "resources": {"cpu": 1},
            "env": {"RUNS_FOR": runs_for},
            "where": {"cluster": cluster},
            "retry": {"lost": 20},
        },
    }


@contextmanager
def no_scheduler(cluster: Cluster) -> Iterator[None]:
    """Nobody binds pods."""
    cluster.scheduler.kill()
    try:
        yield
    finally:
        cluster.scheduler.start()


def has_pods(served: Serving, cluster: str, job: str, count: int) -> bool:
    return len(served.pods(cluster, job)) == count


def bound(served: Serving, cluster: str, job: str) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in served.pods(cluster, job))


def test_a_gang_of_which_others_take_some_room_gives_all_of_it_back_and_runs_later(
    served: Serving, onprem: Cluster, nodes: list[str]
) -> None:
    with no_scheduler(onprem):
        [job] = served.submit(a_gang(8))
        wait_until(lambda: len(served.pods("onprem", job)) == 8, "pods that nobody binds", PATIENCE)
        for number, node in enumerate(nodes[:5]):
            served.foreign_pod("onprem", node, "1", f"foreign-{number}")
        served.await_used("onprem", cpu=8.0, foreign=5.0)
    wait_until(lambda: served.events(job, "job_requeued"), "the gang going back", PATIENCE, every=0.1)
    assert "only 5 of its 8 pods had a node within 2s" in served.events(job, "job_requeued")[0]
    assert not served.pods("onprem", job)
    assert not served.jobs("onprem", job)
    for number in range(5):
        served.delete("onprem", "pods", f"foreign-{number}")
    ended = served.ended(job)
    assert ended.state == "SUCCEEDED"
    assert {task.state for task in ended.tasks or ()} == {"SUCCEEDED"}


def test_two_gangs_that_are_each_larger_than_half_of_a_cluster_do_not_wait_for_each_other(
    served: Serving, onprem: Cluster
) -> None:
    with no_scheduler(onprem):
        gangs = {cluster: served.submit(a_gang(8, cluster))[0] for cluster in served.clusters}
        for cluster, job in gangs.items():
            wait_until(partial(has_pods, served, cluster, job, 8), "its pods", PATIENCE)
    wait_until(
        lambda: sum(bound(served, cluster, job) for cluster, job in gangs.items()) == CPUS,
        "both in part",
        PATIENCE,
        every=0.02,
    )
    ended = [served.ended(job) for job in gangs.values()]
    assert [each.state for each in ended] == ["SUCCEEDED", "SUCCEEDED"]
    back = [event for event in read_journal(served.server.data) if isinstance(event, JobRequeued)]
    assert {event.job for event in back} & set(gangs.values()), "neither gave anything back"


def test_a_restart_of_the_server_does_not_give_a_gang_in_part_more_time(
    served: Serving, onprem: Cluster, nodes: list[str]
) -> None:
    with no_scheduler(onprem):
        [job] = served.submit(a_gang(8, runs_for="60s"))
        wait_until(lambda: len(served.pods("onprem", job)) == 8, "pods that nobody binds", PATIENCE)
        for number, node in enumerate(nodes[:5]):
            served.foreign_pod("onprem", node, "1", f"foreign-{number}")
        served.kill()
    wait_until(lambda: bound(served, "onprem", job) == 5, "some of them being bound", PATIENCE)
    served.up()
    wait_until(lambda: served.events(job, "job_requeued"), "the gang going back", PATIENCE, every=0.1)
    served.client.cancel(job)
    served.ended(job)
    for number in range(5):
        served.delete("onprem", "pods", f"foreign-{number}")


def test_a_gang_that_loses_a_node_goes_back_as_a_whole_and_runs_again(
    served: Serving, onprem: Cluster, nodes: list[str]
) -> None:
    [job] = served.submit(a_gang(6, runs_for="90s"))
    wait_until(lambda: bound(served, "onprem", job) == 6, "all of it", PATIENCE)
    served.running(job)
    lost = served.pods("onprem", job)[0]["spec"]["nodeName"]
    onprem.remove_nodes([lost])
    nodes.remove(lost)
    wait_until(lambda: served.events(job, "job_requeued"), "the gang going back", 2 * PATIENCE, every=0.1)
    assert "its node is gone" in served.events(job, "job_requeued")[0]
    nodes += onprem.add_nodes(1, cpu="1", labels={"pool": "gangs"})
    again = served.until(job, "RUNNING")
    assert again.attempt == 2
    wait_until(lambda: bound(served, "onprem", job) == 6, "all of it again", PATIENCE)
    served.client.cancel(job)
    served.ended(job)
