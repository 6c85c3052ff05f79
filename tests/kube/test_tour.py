"""The two-cluster tour, typed as a person types it: a plain manifest on an owned cluster, and on a rented one when that is full."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kube import Cluster
from tests.support.kube.identities import write_kubeconfig
from tests.support.kube.serving import PATIENCE
from tests.support.processes import ServerProcess, wait_until, write_config

PI = Path(__file__).parents[2] / "examples" / "pi-job.yaml"


class Tour:
    """A server that was told of its clusters by its command line, and what is typed to it."""

    def __init__(self, server: ServerProcess, both: tuple[Cluster, ...], namespace: str) -> None:
        self.server = server
        self.clusters = {cluster.name: cluster for cluster in both}
        self.namespace = namespace

    def typed(self, *words: str) -> str:
        """What a command prints, which must succeed."""
        done = self.server.spill(*words, timeout=PATIENCE)
        assert done.returncode == 0, done
        return done.stdout

    def pi(self, *, backoff: int = 4, **told: str) -> str:
        """Submit the example, unchanged but for how it is played to run and how often Kubernetes tries again; its id."""
        manifest = yaml.safe_load(PI.read_text())
        manifest["spec"]["backoffLimit"] = backoff
        notes = {f"spillover.test/{key.replace('_', '-')}": value for key, value in told.items()}
        manifest["spec"]["template"]["metadata"] = {"annotations": notes}
        path = self.server.folder / "pi.yaml"
        path.write_text(yaml.safe_dump(manifest))
        return self.typed("submit", str(path)).strip()

    def shown(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.typed("show", job, "--json"))
        return found

    def until(self, job: str, state: str) -> dict[str, Any]:
        with self.server.client() as client:
            wait_until(lambda: client.job(job).state == state, f"{job} being {state}", PATIENCE, every=0.1)
        return self.shown(job)

    def made(self, cluster: str, job: str) -> list[dict[str, Any]]:
        """Jobs that were made for a job on a cluster."""
        answer = self.clusters[cluster].admin.get(
            f"/apis/batch/v1/namespaces/{self.namespace}/jobs",
            params={"labelSelector": f"spillover.dev/job={job}"},
        )
        items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        return items


@pytest.fixture(scope="module")
def tour(both: tuple[Cluster, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """`spill up` with two clusters by their contexts, and nothing else said of them; each has room for one pi."""
    folder = tmp_path_factory.mktemp("tour")
    namespace = both[0].namespace("tour")
    with ExitStack() as stack:
        stack.callback(both[0].remove_namespace, namespace)
        made = both[1].admin.post("/api/v1/namespaces", json={"metadata": {"name": namespace}})
        made.raise_for_status()
        stack.callback(both[1].remove_namespace, namespace)
        for cluster in both:
            names = cluster.add_nodes(1, cpu="2", gpu=1)
            stack.callback(cluster.remove_nodes, names)
        contexts = [
            replace(cluster.access, context=f"kind-{cluster.name}", namespace=namespace) for cluster in both
        ]
        kubeconfig = write_kubeconfig(folder / "kubeconfig", contexts)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("KUBECONFIG", str(kubeconfig))
        server = ServerProcess(
            folder,
            *write_config(
                folder, policy={"wait": {"constant": {"wait": "4s"}}}, agents={"keep_output": True}
            ),
            "--cluster",
            "onprem=kubernetes:context=kind-onprem,owned,keep=1s",
            "--cluster",
            "cloud=kubernetes:context=kind-cloud,rented,gpu=2.5,keep=1s",
        )
        stack.callback(server.clear)
        server.launch()
        server.await_ready(PATIENCE)
        with server.client() as client:
            wait_until(
                lambda: [each.state for each in client.clusters()] == ["READY", "READY"],
                "both clusters being ready",
                PATIENCE,
                every=0.1,
            )
        yield Tour(server, both, namespace)


def test_a_plain_manifest_runs_as_it_is_and_its_output_is_kept(tour: Tour) -> None:
    """`spill submit`, `ls`, `why`, `logs`."""
    tour.clusters["onprem"].write_log("3.14159")
    job = tour.typed("submit", str(PI)).strip()
    ended = tour.until(job, "SUCCEEDED")
    assert (ended["cluster"], ended["attempt"], ended["exit_code"]) == ("onprem", 1, 0)
    assert ended["placed_because"]["code"] == "room_owned"
    assert "SUCCEEDED" in tour.typed("ls")
    assert "owned capacity had room" in tour.typed("why", job)
    assert tour.typed("logs", job) == "3.14159\n"
    wait_until(lambda: not tour.made("onprem", job), "the end of what is left there", PATIENCE, every=0.1)
    assert tour.typed("logs", job) == "3.14159\n"  # although its pod is gone


def test_clusters_are_listed_with_what_they_have_and_cost(tour: Tour) -> None:
    onprem, cloud = json.loads(tour.typed("clusters", "--json"))
    assert (onprem["name"], onprem["kind"], onprem["role"], onprem["state"]) == (
        "onprem",
        "kubernetes",
        "owned",
        "READY",
    )
    assert (onprem["capacity"]["cpu"], onprem["capacity"]["gpu"]) == (2.0, 1.0)
    assert (cloud["role"], cloud["price"]["gpu_hour"]) == ("rented", 2.5)
    assert "gpu 2.5" in tour.typed("clusters")


def test_a_job_spills_over_when_the_owned_cluster_is_full_and_its_wait_is_over(tour: Tour) -> None:
    first = tour.pi(runs_for="forever")
    tour.until(first, "RUNNING")
    second = tour.pi(runs_for="2s")
    why = json.loads(tour.typed("why", second, "--json"))
    assert why["state"] == "QUEUED"
    assert why["spills_at"] is not None
    owned, rented = why["clusters"]
    assert (owned["cluster"], owned["reason"]["code"]) == ("onprem", "no_room")
    assert (rented["cluster"], rented["reason"]) == ("cloud", None)  # which has room, once the wait is over
    ended = tour.until(second, "SUCCEEDED")
    assert ended["cluster"] == "cloud"
    assert ended["placed_because"]["code"] == "wait_over"
    assert ended["cost"] > 0
    tour.typed("cancel", first)
    tour.until(first, "CANCELLED")


def test_output_is_followed_while_a_job_runs(tour: Tour) -> None:
    tour.clusters["onprem"].write_log("3.1")
    job = tour.pi(runs_for="5s")
    tour.until(job, "RUNNING")
    with tour.server.start("logs", "-f", job) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "3.1\n"
        assert tour.shown(job)["state"] == "RUNNING"
        rest, errors = following.communicate(timeout=PATIENCE)
    assert (rest, errors, following.returncode) == ("", "", 0)
    assert tour.shown(job)["state"] == "SUCCEEDED"


def test_output_of_each_attempt_and_of_one_that_failed_is_kept(tour: Tour) -> None:
    tour.clusters["onprem"].write_log("first")
    job = tour.pi(backoff=0, runs_for="1s", evicted="low on memory")
    wait_until(lambda: tour.shown(job)["attempt"] >= 2, "another attempt", PATIENCE)
    tour.clusters["onprem"].write_log("second")
    assert tour.until(job, "FAILED")["attempt"] == 4
    wait_until(lambda: not tour.made("onprem", job), "the end of what is left there", PATIENCE, every=0.1)
    assert tour.typed("logs", job, "--attempt", "1") == "first\n"
    assert tour.typed("logs", job) == "second\n"


def test_output_that_is_gone_is_told_in_a_line(tour: Tour) -> None:
    job = tour.pi(runs_for="forever")
    tour.until(job, "RUNNING")
    tour.typed("cancel", job)
    tour.until(job, "CANCELLED")
    wait_until(lambda: not tour.made("onprem", job), "the end of what is left there", PATIENCE, every=0.1)
    done = tour.server.spill("logs", job, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "onprem" in done.stderr
