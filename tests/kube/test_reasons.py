"""What becomes of jobs on a real cluster, and why, comes back to whoever submitted them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kube import Cluster
from tests.support.kube.serving import MERGE, PATIENCE, Serving, a_job
from tests.support.processes import wait_until

HERE = {"where.cluster": "onprem"}


@pytest.fixture(scope="module")
def nodes(onprem: Cluster) -> Iterator[list[str]]:
    names = onprem.add_nodes(2, cpu="4", memory="8Gi")
    yield names
    onprem.remove_nodes(names)


@pytest.fixture(scope="module")
def served(onprem: Cluster, nodes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that has no patience with what does not start, and knows one cluster by two of its namespaces."""
    hasty = {"kubernetes": {"bind_within": "2s", "start_within": "2s", "backoff": "1h"}}
    clusters = {"onprem": (onprem, hasty), "annex": (onprem, hasty)}
    with Serving(tmp_path_factory.mktemp("reasons"), clusters) as serving:
        yield serving


@pytest.fixture(scope="module", autouse=True)
def doomed(onprem: Cluster, served: Serving) -> str:
    """A job whose node is taken away before the first test, as it takes Kubernetes most of a minute to say so."""
    names = onprem.add_nodes(1, labels={"pool": "doomed"})
    [job] = served.submit(a_job(pod={"nodeSelector": {"pool": "doomed"}}, runs_for="forever"))
    served.running(job)
    onprem.remove_nodes(names)
    return job


@pytest.fixture(scope="module", autouse=True)
def retried(served: Serving) -> str:
    """A job that Kubernetes tries a second time, for which it waits ten seconds."""
    [job] = served.submit(a_job(spec={"backoffLimit": 1}, exit_code="4", runs_for="100ms"))
    return job


# --- how it ended


@pytest.mark.parametrize(
    ("told", "state", "exit_code", "code", "said"),
    [
        ({}, "SUCCEEDED", 0, None, ""),
        ({"exit_code": "3"}, "FAILED", 3, "exited", "exited with code 3"),
        ({"reason": "OOMKilled"}, "FAILED", 137, "out_of_memory", "ran out of memory"),
        (
            {"reason": "ContainerCannotRun", "exit_code": "128"},
            "FAILED",
            None,
            "could_not_start",
            "ContainerCannotRun",
        ),
    ],
)
def test_how_a_job_ended_comes_back(
    served: Serving, told: dict[str, Any], state: str, exit_code: int | None, code: str | None, said: str
) -> None:
    ended = served.run(a_job(**told, runs_for="100ms"))
    assert (ended.state, ended.exit_code, ended.attempt) == (state, exit_code, 1)
    assert (ended.reason.code if ended.reason else None) == code
    assert said in (ended.reason.message if ended.reason else "")


def test_a_job_that_is_evicted_is_lost_as_often_as_its_budget_lets_it_and_the_reason_is_told(
    served: Serving,
) -> None:
    [job] = served.submit(a_job(evicted="the node was low on memory", runs_for="100ms"))
    ended = served.ended(job)
    assert (ended.state, ended.attempt) == ("FAILED", 4)
    assert ended.reason is not None
    assert ended.reason.code == "lost"
    assert "its node evicted it: the node was low on memory" in ended.reason.message
    assert len({each["metadata"]["uid"] for each in served.jobs("onprem", job)}) == 4


def test_a_jobs_own_time_limit_is_told_as_its_walltime(served: Serving) -> None:
    ended = served.run(a_job(spec={"activeDeadlineSeconds": 1}, runs_for="forever"))
    assert ended.state == "TIMED_OUT"
    assert ended.reason is not None
    assert ended.reason.code == "past_walltime"


# --- why it does not start


def test_a_job_that_is_slow_to_start_is_placed_and_then_runs(served: Serving) -> None:
    [job] = served.submit(a_job(starts_after="2s", runs_for="forever"))
    pod = wait_until(
        lambda: next((each for each in served.pods("onprem", job) if each["spec"].get("nodeName")), None),
        "a pod on a node",
        PATIENCE,
    )
    assert pod is not None
    assert served.job(job).state == "PLACED"
    [running] = served.running(job)
    assert (running.cluster, running.node) == ("onprem", pod["spec"]["nodeName"])
    served.client.cancel(job)


def test_a_job_that_no_node_takes_goes_back_to_the_queue_in_the_words_of_the_scheduler(
    served: Serving,
) -> None:
    beside = {
        "labelSelector": {"matchLabels": {"app": "nobody"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    [job] = served.submit(a_job(notes=HERE, pod={"affinity": affinity}))
    assert "didn't match pod affinity rules" in served.reason(job, "not_starting")
    assert served.job(job).state == "PLACED"
    handed_back(served, job, "didn't match pod affinity rules")


def handed_back(served: Serving, job: str, said: str) -> None:
    """A job is in the queue again, with the same attempt, and nothing is left of it on the cluster."""
    queued = served.until(job, "QUEUED")
    assert queued.attempt == 1
    [verdict] = [each for each in served.why(job).clusters if each.cluster == "onprem"]
    assert verdict.reason is not None
    assert verdict.reason.code == "shunned"
    assert said in verdict.reason.message
    assert not served.jobs("onprem", job)
    assert not served.pods("onprem", job)
    served.client.cancel(job)


def test_a_job_whose_image_cannot_be_had_says_so_and_fails(served: Serving) -> None:
    [job] = served.submit(a_job(never_starts="ImagePullBackOff"))
    assert "ImagePullBackOff: example/image:1" in served.reason(job, "not_starting")
    ended = served.ended(job)
    assert ended.state == "FAILED"
    assert ended.reason is not None
    assert ended.reason.code == "could_not_start"
    assert "ImagePullBackOff" in ended.reason.message
    served.await_gone("onprem", job)


def test_a_job_whose_pods_a_quota_refuses_goes_back_to_the_queue(served: Serving) -> None:
    # Counts pods with a time limit only, so that other jobs go on.
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]}}
    limited = {"activeDeadlineSeconds": 1000}
    served.clusters["onprem"].add_quota(served.namespaces["onprem"], quota, **limited)
    [job] = served.submit(a_job(notes=HERE, pod=limited))
    assert "exceeded quota: few" in served.reason(job, "not_starting")
    handed_back(served, job, "exceeded quota: few")


@pytest.fixture
def policy(onprem: Cluster, served: Serving) -> Iterator[str]:
    """A policy of the cluster that denies Jobs with the label `denied`, and pods with the label `unwelcome`; what it says."""
    said = "not on a Sunday"
    group = "/apis/admissionregistration.k8s.io/v1"
    rules = [
        {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]},
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
    ]
    name = "no-such-thing"
    document = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [
                {
                    "expression": "!has(object.metadata.labels) || !((object.kind == 'Job' ? 'denied' : 'unwelcome') in object.metadata.labels)",
                    "message": said,
                }
            ],
        },
    }
    namespace = served.namespaces["onprem"]
    binding = {
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            },
        },
    }
    for kind, body in (
        ("validatingadmissionpolicies", document),
        ("validatingadmissionpolicybindings", binding),
    ):
        onprem.admin.post(f"{group}/{kind}", json=body).raise_for_status()
    job = a_job("probe")
    job["metadata"]["labels"] = {"denied": "yes"}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    wait_until(
        lambda: said in onprem.admin.post(jobs, json=job, params={"dryRun": "All"}).text,
        "a policy being heeded",
        PATIENCE,
        every=0.1,
    )
    yield said
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        onprem.admin.delete(f"{group}/{kind}/{name}").raise_for_status()


def test_a_job_that_admission_denies_fails_in_the_words_of_the_policy(served: Serving, policy: str) -> None:
    job = a_job()
    job["metadata"]["labels"] = {"denied": "yes"}
    ended = served.run(job)
    assert (ended.state, ended.attempt) == ("FAILED", 1)
    assert ended.reason is not None
    assert ended.reason.code == "could_not_start"
    assert policy in ended.reason.message
    assert not served.jobs("onprem", ended.id)


def test_a_job_whose_pods_admission_denies_goes_back_to_the_queue(served: Serving, policy: str) -> None:
    job = a_job(notes=HERE)
    job["spec"]["template"]["metadata"]["labels"] = {"unwelcome": "yes"}
    [submitted] = served.submit(job)
    assert policy in served.reason(submitted, "not_starting")
    handed_back(served, submitted, policy)


def test_a_manifest_that_the_api_server_refuses_fails_in_its_words(served: Serving) -> None:
    ended = served.run(a_job(pod={"containers": [{"name": "Not A Name", "image": "x"}]}))
    assert ended.state == "FAILED"
    assert ended.reason is not None
    assert ended.reason.code == "could_not_start"
    assert "spec.template.spec.containers[0].name: Invalid value" in ended.reason.message


# --- who ended it


def test_a_cancelled_job_ends_once_its_pods_have(served: Serving) -> None:
    [job] = served.submit(a_job(runs_for="forever", stops_in="2s"))
    served.running(job)
    served.client.cancel(job)
    wait_until(
        lambda: "deletionTimestamp" in served.pods("onprem", job)[0]["metadata"],
        "a pod being stopped",
        PATIENCE,
    )
    stopping = served.job(job)
    assert (stopping.state, stopping.reason and stopping.reason.code) == ("RUNNING", "stopping")
    assert served.ended(job).state == "CANCELLED"
    assert not served.pods("onprem", job)
    served.await_gone("onprem", job)


def test_a_job_that_is_cancelled_before_it_starts_leaves_nothing(served: Serving) -> None:
    [job] = served.submit(a_job(starts_after="10m"))
    wait_until(lambda: served.pods("onprem", job), "a pod", PATIENCE)
    served.client.cancel(job)
    assert served.ended(job).state == "CANCELLED"
    served.await_gone("onprem", job)


def test_a_job_that_somebody_else_deletes_is_lost_and_runs_again(served: Serving) -> None:
    [job] = served.submit(a_job(runs_for="forever"))
    served.running(job)
    [made] = served.jobs("onprem", job)
    served.delete("onprem", "jobs", made["metadata"]["name"])
    again = runs_again(served, job)
    assert "was deleted by someone else" in again
    served.client.cancel(job)


def runs_again(served: Serving, job: str, cluster: str = "onprem") -> str:
    """A job runs in its second attempt; what was said of the first."""
    wait_until(lambda: served.job(job).attempt == 2, f"another attempt of {job}", PATIENCE, every=0.1)
    served.running(job)
    [requeued] = served.events(job, "job_requeued")
    assert [each["metadata"]["labels"]["spillover.dev/attempt"] for each in served.pods(cluster, job)] == [
        "2"
    ]
    return requeued


def test_a_job_whose_pod_somebody_else_deletes_is_lost_and_runs_again(served: Serving) -> None:
    [job] = served.submit(a_job(runs_for="forever"))
    served.running(job)
    [pod] = served.pods("onprem", job)
    served.delete("onprem", "pods", pod["metadata"]["name"])
    assert "its pod was deleted by someone else" in runs_again(served, job)
    served.client.cancel(job)


def test_a_job_that_is_put_back_by_a_person_runs_again_once_nothing_of_it_runs(served: Serving) -> None:
    [job] = served.submit(a_job(runs_for="forever", stops_in="1s"))
    served.running(job)
    [first] = served.pods("onprem", job)
    served.client.requeue(job)
    wait_until(lambda: served.job(job).attempt == 2, f"another attempt of {job}", PATIENCE, every=0.02)
    assert first["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in served.pods("onprem", job)}
    served.running(job)
    served.client.cancel(job)


def test_a_job_that_somebody_suspends_before_it_starts_goes_back_to_the_queue(served: Serving) -> None:
    [job] = served.submit(a_job(notes=HERE, starts_after="10m"))
    [made] = wait_until(lambda: served.jobs("onprem", job), "a Job", PATIENCE)
    path = f"/apis/batch/v1/namespaces/{served.namespaces['onprem']}/jobs/{made['metadata']['name']}"
    served.clusters["onprem"].admin.patch(
        path, content=b'{"spec": {"suspend": true}}', headers=MERGE
    ).raise_for_status()
    assert "its Job is suspended" in served.reason(job, "not_starting")
    handed_back(served, job, "its Job is suspended")


def test_jobs_of_a_namespace_that_somebody_deletes_are_lost_and_the_cluster_says_what_is_missing(
    served: Serving, onprem: Cluster
) -> None:
    [job] = served.submit(a_job(notes={"where.cluster": "annex"}, runs_for="forever"))
    served.running(job)
    onprem.remove_namespace(served.namespaces["annex"])
    wait_until(lambda: served.job(job).attempt == 2, f"another attempt of {job}", PATIENCE, every=0.1)
    served.until(job, "QUEUED")
    [verdict] = [each for each in served.why(job).clusters if each.cluster == "annex"]
    assert verdict.reason is not None
    assert verdict.reason.code == "shunned"
    assert served.namespaces["annex"] in verdict.reason.message
    served.client.cancel(job)


def test_a_job_whose_node_is_lost_is_told_so(served: Serving, doomed: str) -> None:
    wait_until(
        lambda: served.job(doomed).attempt == 2, f"another attempt of {doomed}", 2 * PATIENCE, every=0.2
    )
    [requeued] = served.events(doomed, "job_requeued")
    assert "its node is gone" in requeued
    assert served.reason(doomed, "no_such_node")


def test_kubernetes_tries_again_within_an_attempt(served: Serving, retried: str) -> None:
    ended = served.ended(retried)
    assert (ended.state, ended.exit_code, ended.attempt) == ("FAILED", 4, 1)
    assert len(served.pods("onprem", retried)) == 2
