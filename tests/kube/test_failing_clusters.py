"""A real cluster that fails and comes back: what was not made runs elsewhere, what was follows its terms, leftovers go first."""

from collections.abc import Iterator

import pytest

from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.processes import wait_until

ON_CLOUD = {"where.cluster": "cloud"}


@pytest.fixture
def served(both: tuple[Cluster, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that uses `cloud` first; it has failed when it does not answer for three seconds."""
    nodes = [(cluster, cluster.add_nodes(2, cpu="4")) for cluster in both]
    onprem, cloud = both
    hasty = {"kubernetes": {"failed_after": "3s", "keep": "0s"}}
    with Serving(
        tmp_path_factory.mktemp("failing"), {"cloud": (cloud, hasty), "onprem": (onprem, hasty)}
    ) as serving:
        yield serving
    for cluster, names in nodes:
        cluster.remove_nodes(names)


def come_back(cluster: Cluster) -> None:
    """Start the API server, and with it those who would wait for long before they look for it again."""
    cluster.apiserver.start()
    others = (cluster.controllers, cluster.scheduler, cluster.kwok)
    for each in others:
        each.kill()
        each.launch()
    for each in others:
        each.await_ready()


def test_a_cluster_that_fails_and_comes_back(served: Serving, cloud: Cluster) -> None:
    # 1. Three jobs run there, each with other terms, and one has yet to start.
    waits, unwanted, requeues, cancels, starts = served.submit(
        a_job("waits", notes=ON_CLOUD, runs_for="forever"),
        a_job("unwanted", notes=ON_CLOUD, runs_for="forever"),
        a_job("requeues", notes={"on-cluster-failure": "requeue"}, runs_for="forever"),
        a_job("cancels", notes={"on-cluster-failure": "cancel"}, runs_for="forever"),
        a_job("starts", notes={"on-cluster-failure": "requeue"}, starts_after="10m"),
    )
    for running in served.running(waits, unwanted, requeues, cancels):
        assert running.cluster == "cloud"
    wait_until(lambda: served.pods("cloud", starts), "a pod", PATIENCE)
    served.until(starts, "PLACED")
    left = {each["metadata"]["uid"] for each in served.jobs("cloud")}
    [races] = served.submit(a_job("races", notes={"on-cluster-failure": "requeue"}, runs_for="12s"))
    served.running(races)

    # 2. It is gone, which is not known at once: what is placed there now is surely not made.
    cloud.apiserver.kill()
    [unsent] = served.submit(a_job("unsent", runs_for="forever"))
    degraded = served.await_state("cloud", "DEGRADED")
    assert degraded.why is not None
    assert "cannot connect" in degraded.why
    assert [served.job(job).state for job in (waits, requeues, cancels)] == ["RUNNING"] * 3
    failed = served.await_state("cloud", "FAILED")
    assert failed.why is not None

    # 3. Each goes its way.
    ended = served.ended(cancels)
    assert ended.state == "CANCELLED"
    assert ended.reason is not None
    assert ended.reason.code == "cluster_failed"
    for job, attempt in ((requeues, 2), (unsent, 1)):
        wait_until(lambda job=job: served.job(job).cluster == "onprem", f"{job} elsewhere", PATIENCE)  # type: ignore[misc]
        [again] = served.running(job)
        assert (again.cluster, again.attempt) == ("onprem", attempt)
    wait_until(
        lambda: served.job(starts).cluster == "onprem", "the one that had not started elsewhere", PATIENCE
    )
    assert served.job(starts).attempt == 2
    still = served.job(waits)
    assert (still.state, still.cluster, still.attempt) == ("RUNNING", "cloud", 1)
    served.client.cancel(unwanted)
    [refused] = served.submit(a_job("refused", notes=ON_CLOUD))
    assert "cloud has failed" in served.reason(refused, "cluster_down")
    assert served.says(refused)["cloud"] == "cluster_down"

    assert served.job(unwanted).state == "RUNNING"  # as far as anybody knows

    # 4. It comes back: what runs elsewhere by now is deleted there before anything new is made.
    come_back(cloud)
    served.await_state("cloud", "READY")
    assert served.ended(unwanted).state == "CANCELLED"
    assert {each["metadata"]["labels"]["spillover.dev/job"] for each in served.jobs("cloud")} <= {
        waits,
        refused,
    }
    assert served.ended(refused).state == "SUCCEEDED"
    assert not served.pods("cloud", unwanted)
    assert (served.job(waits).state, served.job(waits).attempt) == ("RUNNING", 1)
    [kept] = served.jobs("cloud", waits)
    assert kept["metadata"]["uid"] in left
    for job in (requeues, unsent):
        [on] = served.running(job)
        assert on.cluster == "onprem"
        assert not served.pods("cloud", job)
    # One ran in both places for a while: the attempt counts that the book had at the end, once.
    ended = served.ended(races)
    assert (ended.state, ended.attempt, ended.cluster) == ("SUCCEEDED", 2, "onprem")
    assert len(served.events(races, "job_ended")) == 1
    served.await_gone("cloud", races)
    states = [each.text for each in served.client.events(0, follow=False) if each.type == "cluster_changed"]
    assert any("clearing" in text for text in states), states
    served.client.cancel(waits, requeues, unsent, starts)
    for job in (waits, requeues, unsent, starts):
        assert served.ended(job).state == "CANCELLED"
    for cluster in ("cloud", "onprem"):
        served.await_gone(cluster)
        served.await_used(cluster)


def test_nothing_new_is_made_while_leftovers_are_there(served: Serving, cloud: Cluster) -> None:
    [slow] = served.submit(
        a_job("slow", notes={"on-cluster-failure": "requeue"}, runs_for="forever", stops_in="4s")
    )
    served.running(slow)
    cloud.apiserver.kill()
    served.await_state("cloud", "FAILED")
    [waiting] = served.submit(a_job("waiting", notes=ON_CLOUD))
    come_back(cloud)
    clearing = served.await_state("cloud", "CLEARING")
    assert clearing.state == "CLEARING"
    assert served.says(waiting)["cloud"] == "cluster_down"
    assert not served.jobs("cloud", waiting)
    ended = served.ended(waiting)
    assert ended.state == "SUCCEEDED"
    assert not served.pods("cloud", slow)
    served.client.cancel(slow)
    served.ended(slow)


def test_a_server_starts_without_a_cluster_that_is_away_and_uses_it_once_it_is_back(
    served: Serving, cloud: Cluster
) -> None:
    [job] = served.submit(a_job(notes=ON_CLOUD, runs_for="5s"))
    served.running(job)
    served.kill()
    cloud.apiserver.kill()
    served.launch()
    served.await_state("onprem", "READY")
    [beside] = served.submit(a_job(notes={"where.cluster": "onprem"}))
    assert served.ended(beside).state == "SUCCEEDED"
    assert served.cluster("cloud").state != "READY"
    assert served.job(job).state == "RUNNING"
    come_back(cloud)
    ended = served.ended(job)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1)
