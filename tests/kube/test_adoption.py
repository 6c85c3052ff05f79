"""Servers and control planes that die and come back: what really runs is found, and nothing runs twice."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.kube.witness import Witness
from tests.support.processes import ServerProcess, wait_until, write_config


def witness(served: Serving) -> Witness:
    """Somebody who counts what really ran, beside the server."""
    return Witness(served.clusters["onprem"], served.namespaces["onprem"])


@pytest.fixture(scope="module")
def nodes(onprem: Cluster) -> Iterator[list[str]]:
    names = onprem.add_nodes(2, cpu="4")
    yield names
    onprem.remove_nodes(names)


@pytest.fixture(scope="module")
def served(onprem: Cluster, nodes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("adoption"), {"onprem": (onprem, {})}) as serving:
        yield serving


def once(served: Serving, seen: Witness, jobs: list[str]) -> None:
    """All jobs succeed in their first attempt, each with one Job and one pod that ran."""
    for job in jobs:
        ended = served.ended(job)
        assert (ended.state, ended.attempt) == ("SUCCEEDED", 1)
        assert len(served.jobs("onprem", job)) == 1
        assert len(served.pods("onprem", job)) == 1
        wait_until(lambda job=job: seen.ran[job], f"a pod of {job} being seen", PATIENCE)  # type: ignore[misc]
        assert len(seen.ran[job]) == 1


def test_a_server_that_was_killed_finds_what_it_had_placed_and_what_runs(served: Serving) -> None:
    with witness(served) as seen:
        [running] = served.submit(a_job("running", runs_for="6s"))
        [placed] = served.submit(a_job("placed", starts_after="4s"))
        [ends] = served.submit(a_job("ends", runs_for="2s"))
        [fails] = served.submit(a_job("fails", runs_for="2s", exit_code="5"))
        [cancelled] = served.submit(a_job("cancelled", runs_for="forever"))
        served.running(running, ends, fails, cancelled)
        wait_until(lambda: served.pods("onprem", placed), "a pod", PATIENCE)
        uids = {each["metadata"]["uid"] for each in served.jobs("onprem")}
        served.kill()
        # Two end while nobody looks.
        wait_until(lambda: sum(map(is_over, served.jobs("onprem"))) == 2, "the end of two jobs", PATIENCE)
        served.up()
        served.client.cancel(cancelled)
        once(served, seen, [running, placed, ends])
        failed = served.ended(fails)
        assert (failed.state, failed.exit_code, failed.attempt) == ("FAILED", 5, 1)
        assert len(seen.ran[fails]) == 1
        assert served.ended(cancelled).state == "CANCELLED"
    assert {each["metadata"]["uid"] for each in served.jobs("onprem")} <= uids


def test_a_server_that_is_killed_while_jobs_are_being_made_makes_each_once(served: Serving) -> None:
    with witness(served) as seen:
        jobs = served.submit(*(a_job(f"many-{number}", runs_for="1s") for number in range(30)))
        wait_until(lambda: len(served.jobs("onprem")) > 8, "some jobs being made", PATIENCE, every=0.01)
        served.kill()
        served.up()
        once(served, seen, jobs)


def test_what_is_deleted_while_no_server_looks_is_lost_and_runs_again(served: Serving) -> None:
    [job] = served.submit(a_job(runs_for="3s"))
    served.running(job)
    [made] = served.jobs("onprem", job)
    served.kill()
    served.delete("onprem", "jobs", made["metadata"]["name"])
    served.await_gone("onprem", job)
    served.up()
    ended = served.ended(job)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 2)


def is_over(job: dict[str, Any]) -> bool:
    """Whether a Job has ended."""
    conditions = job["status"].get("conditions", ())
    return any(each["type"] in {"Complete", "Failed"} and each["status"] == "True" for each in conditions)


def a_stray(served: Serving, name: str, owner: str) -> None:
    """A Job that looks like one of ours, of a job that no book here has."""
    stray = a_job(name, cpu="1", runs_for="forever")
    labels = {
        "app.kubernetes.io/managed-by": "spillover",
        "spillover.dev/owner": owner,
        "spillover.dev/job": "zzzzzzzzzzzz",
        "spillover.dev/attempt": "1",
        "spillover.dev/seq": "1",
    }
    stray["metadata"]["labels"] = stray["spec"]["template"]["metadata"]["labels"] = labels
    served.add("onprem", "jobs", stray, "/apis/batch/v1")
    wait_until(lambda: served.pods("onprem", "zzzzzzzzzzzz"), "a pod", PATIENCE, every=0.01)


def test_what_runs_under_our_name_and_is_not_in_the_book_is_deleted(served: Serving) -> None:
    job = served.run(a_job())
    [made] = served.jobs("onprem", job.id)
    served.server.pause()  # or it is deleted before its pod is made
    try:
        a_stray(served, "spill-zzzzzzzzzzzz-1-1", made["metadata"]["labels"]["spillover.dev/owner"])
    finally:
        served.server.resume()
    served.await_gone("onprem", "zzzzzzzzzzzz")


def test_what_another_server_runs_there_is_left_alone_and_counted(served: Serving) -> None:
    a_stray(served, "of-another", "another")
    wait_until(lambda: served.cluster("onprem").foreign["cpu"] == 1.0, "its use being counted", PATIENCE)
    [left] = served.pods("onprem", "zzzzzzzzzzzz")
    assert "deletionTimestamp" not in left["metadata"]
    served.delete("onprem", "jobs", "of-another")
    wait_until(lambda: served.cluster("onprem").foreign["cpu"] == 0.0, "its end being counted", PATIENCE)


def test_jobs_go_on_through_a_restart_of_the_api_server_and_a_pause_of_etcd(
    served: Serving, onprem: Cluster
) -> None:
    with witness(served) as seen:
        jobs = served.submit(a_job("runs", runs_for="4s"), a_job("starts", starts_after="3s"))
        served.running(jobs[0])
        onprem.apiserver.kill()
        jobs += served.submit(a_job("meanwhile"))
        onprem.apiserver.start()
        once(served, seen, jobs)
        jobs = served.submit(a_job("runs", runs_for="2s"))
        served.running(*jobs)
        onprem.etcd.pause()
        try:
            jobs += served.submit(a_job("meanwhile"))
            Event().wait(3)  # longer than a request is usually answered in
        finally:
            onprem.etcd.resume()
        once(served, seen, jobs)
    assert served.await_state("onprem", "READY").why is None


def test_a_server_that_stood_by_goes_on_with_what_runs(
    onprem: Cluster, nodes: list[str], tmp_path: Path
) -> None:
    with Serving(tmp_path / "one", {"onprem": (onprem, {})}) as served, witness(served) as seen:
        config = yaml.safe_load((tmp_path / "one" / "spill.yaml").read_text())
        (tmp_path / "two").mkdir()
        settings = write_config(tmp_path / "two", clusters=config["clusters"], data=config["data"])
        second = ServerProcess(tmp_path / "two", *settings, "--standby", data=served.server.data)
        second.launch()
        try:
            wait_until(lambda: "standing by" in second.last_words(), "standing by", PATIENCE)
            jobs = served.submit(a_job("runs", runs_for="5s"), a_job("starts", starts_after="4s"))
            served.running(jobs[0])
            wait_until(lambda: served.pods("onprem", jobs[1]), "a pod", PATIENCE)
            served.kill()
            second.await_ready(PATIENCE)
            served.follow(second)
            jobs += served.submit(a_job("later"))
            once(served, seen, jobs)
        finally:
            served.disconnect()
            second.clear()
