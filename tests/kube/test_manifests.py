"""What is made on a real API server is what was submitted, field by field, but for what says whose it is."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.processes import wait_until

ADDED = {"SPILL_JOB_ID", "SPILL_ATTEMPT", "SPILL_CLUSTER"}
"""Variables that tell tasks who they are."""


@pytest.fixture(scope="module")
def served(onprem: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A cluster with room, a tainted node among its nodes, and all that manifests name."""
    nodes = onprem.add_nodes(2, cpu="8", labels={"disk": "ssd"})
    nodes += onprem.add_nodes(1, cpu="8", labels={"disk": "ssd"}, taints=["dedicated=batch:NoSchedule"])
    clusters = {"onprem": (onprem, {"kubernetes": {"image": "example/default:1"}})}
    with Serving(tmp_path_factory.mktemp("manifests"), clusters) as serving:
        onprem.service_account("worker", serving.namespaces["onprem"])
        serving.add("onprem", "configmaps", {"metadata": {"name": "settings"}, "data": {"a": "1"}})
        yield serving
    onprem.remove_nodes(nodes)


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": f"example/{name}:1", "resources": {"requests": {"cpu": "100m"}}} | more


RICH: dict[str, Any] = {
    "serviceAccountName": "worker",
    "automountServiceAccountToken": False,
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 7,
    "priority": 0,
    "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]}
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
                }
            ],
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "volumes": [
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "settings", "configMap": {"name": "settings", "defaultMode": 0o400}},
    ],
    "initContainers": [
        container(
            "prepare", command=["prepare", "--all"], volumeMounts=[{"name": "scratch", "mountPath": "/s"}]
        ),
        container("sidecar", restartPolicy="Always"),
    ],
    "containers": [
        container(
            "main",
            command=["work"],
            args=["$(WHERE)", "$$HOME"],
            env=[
                {"name": "WHERE", "value": "here"},
                {"name": "HOME_OF", "value": "$(WHERE)/home"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            envFrom=[{"configMapRef": {"name": "settings"}}],
            volumeMounts=[
                {"name": "scratch", "mountPath": "/scratch"},
                {"name": "settings", "mountPath": "/settings", "readOnly": True},
            ],
            livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 30},
            securityContext={"readOnlyRootFilesystem": True},
        ),
        container("beside", workingDir="/beside"),
    ],
}
"""A pod that says something of nearly everything."""
INDEXED: dict[str, Any] = {
    "completionMode": "Indexed",
    "completions": 3,
    "parallelism": 2,
    "backoffLimitPerIndex": 1,
    "maxFailedIndexes": 2,
    "backoffLimit": 2,
    "activeDeadlineSeconds": 600,
    "podReplacementPolicy": "Failed",
    "podFailurePolicy": {
        "rules": [
            {
                "action": "FailIndex",
                "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]},
            },
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    },
    "successPolicy": {"rules": [{"succeededIndexes": "0-1"}]},
}


def as_made_by_hand(served: Serving, manifest: dict[str, Any]) -> dict[str, Any]:
    """The same manifest as the API server would have it from kubectl, with all its defaults."""
    answer = served.clusters["onprem"].admin.post(
        f"/apis/batch/v1/namespaces/{served.namespaces['onprem']}/jobs",
        json=manifest,
        params={"dryRun": "All"},
    )
    assert answer.is_success, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_rich_manifest_is_made_as_it_was_written(served: Serving) -> None:
    manifest = a_job("rich", spec=INDEXED, pod=RICH, starts_after="10m")
    manifest["metadata"] |= {"labels": {"team": "north"}, "annotations": {"of": "ours"}}
    manifest["spec"]["template"]["metadata"]["labels"] = {"app": "rich"}
    [job] = served.submit(manifest)
    served.until(job, "PLACED")
    made = by_name(served, job)
    expected = as_made_by_hand(served, manifest)
    told = without_ours(made, job)
    assert told == without_noise(expected)
    served.client.cancel(job)


def by_name(served: Serving, job: str) -> dict[str, Any]:
    """The one Job of a job, once it is there."""
    [made] = wait_until(lambda: served.jobs("onprem", job), f"a Job of {job}", PATIENCE)
    return made


def without_noise(job: dict[str, Any]) -> dict[str, Any]:
    """A Job without what differs each time: names, times, and labels that Kubernetes sets."""
    meta, spec = job["metadata"], job["spec"]
    template = spec["template"]
    return {
        "metadata": {
            "labels": _own(meta.get("labels")),
            "annotations": meta.get("annotations") or {},
        },
        "spec": {key: value for key, value in spec.items() if key not in {"selector", "template"}},
        "template": {
            "metadata": {
                "labels": _own(template["metadata"].get("labels")),
                "annotations": template["metadata"].get("annotations") or {},
            },
            "spec": template["spec"],
        },
    }


def _own(labels: dict[str, str] | None) -> dict[str, str]:
    return {
        key: value
        for key, value in (labels or {}).items()
        if "controller-uid" not in key and "job-name" not in key
    }


def without_ours(job: dict[str, Any], ident: str) -> dict[str, Any]:
    """A Job without what we add, all of which must be there."""
    plain = without_noise(job)
    for meta in (plain["metadata"], plain["template"]["metadata"]):
        labels = meta["labels"]
        assert labels.pop("app.kubernetes.io/managed-by") == "spillover"
        assert labels.pop("spillover.dev/job") == ident
        assert labels.pop("spillover.dev/attempt") == "1"
        assert labels.pop("spillover.dev/owner")
        assert labels.pop("spillover.dev/seq")
        assert labels.pop("spillover.dev/epoch") == "1"
    notes = plain["metadata"]["annotations"]
    for key in [key for key in notes if key.startswith("spillover.dev/")]:
        del notes[key]
    pod = plain["template"]["spec"]
    for part in ("initContainers", "containers"):
        for each in pod.get(part, ()):
            env = {one["name"]: one for one in each["env"]}
            assert env.keys() >= ADDED
            assert env["SPILL_JOB_ID"]["value"] == ident
            rest = [one for one in each["env"] if one["name"] not in ADDED]
            if rest:
                each["env"] = rest
            else:
                del each["env"]
    return plain


def test_when_a_job_runs_and_how_long_it_stays_is_not_for_its_manifest_to_say(served: Serving) -> None:
    job = served.run(
        a_job(
            spec={
                "suspend": True,
                "ttlSecondsAfterFinished": 0,
                "selector": {"matchLabels": {"of": "another"}},
            }
        )
    )
    assert job.state == "SUCCEEDED"
    made = by_name(served, job.id)
    assert "ttlSecondsAfterFinished" not in made["spec"]
    assert made["metadata"]["name"].startswith(f"spill-{job.id}-1-")


def test_a_job_of_several_pods_with_an_index_each_ends_when_all_have(served: Serving) -> None:
    several = {"completionMode": "Indexed", "completions": 3, "parallelism": 2}
    job = served.run(a_job(spec=several, runs_for="300ms"))
    assert (job.state, job.attempt) == ("SUCCEEDED", 1)
    pods = served.pods("onprem", job.id)
    indexes = [pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods]
    assert sorted(indexes) == ["0", "1", "2"]


def test_the_rules_of_a_manifest_say_which_exit_codes_end_it(served: Serving) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    job = served.run(
        a_job(
            spec={"backoffLimit": 6, "podFailurePolicy": {"rules": [rule]}}, exit_code="42", runs_for="100ms"
        )
    )
    assert (job.state, job.exit_code, job.attempt) == ("FAILED", 42, 1)
    assert len(served.pods("onprem", job.id)) == 1


# --- our own form


def test_a_command_becomes_a_job_in_the_default_image(served: Serving) -> None:
    job = served.run(
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": "own", "project": "science"},
            "spec": {
                "run": "echo $HOME $(date)",
                "env": {"WHO": "ada $(X)"},
                "resources": {"cpu": 2, "memory": "1Gi"},
                "walltime": "10m",
            },
        }
    )
    assert job.state == "SUCCEEDED"
    made = by_name(served, job.id)
    assert made["metadata"]["annotations"]["spillover.dev/name"] == "own"
    assert made["metadata"]["annotations"]["spillover.dev/project"] == "science"
    assert made["spec"]["backoffLimit"] == 0
    pod = made["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["activeDeadlineSeconds"]) == ("Never", 600)
    [main] = pod["containers"]
    assert main["image"] == "example/default:1"
    # Kubernetes leaves `$$` alone but for one of the two.
    assert main["command"] == ["/bin/sh", "-c", "echo $$HOME $$(date)"]
    assert {"name": "WHO", "value": "ada $$(X)"} in main["env"]
    assert main["resources"] == {
        "requests": {"cpu": "2", "memory": str(2**30)},
        "limits": {"memory": str(2**30)},
    }


def test_a_gang_becomes_one_job_of_as_many_pods(served: Serving) -> None:
    job = served.run(
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "spec": {"container": {"image": "example/gang:1"}, "tasks": 3, "resources": {"cpu": "500m"}},
        }
    )
    assert (job.state, job.attempt) == ("SUCCEEDED", 1)
    spec = by_name(served, job.id)["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    names = {one["name"] for one in spec["template"]["spec"]["containers"][0]["env"]}
    assert {"SPILL_TASK", "SPILL_TASKS", "SPILL_JOB_ID"} <= names
    assert len(served.pods("onprem", job.id)) == 3


def test_an_array_becomes_a_job_for_each_member(served: Serving) -> None:
    [array] = served.submit(
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "spec": {"run": "true", "array": "1-3", "resources": {"cpu": 1}},
        }
    )
    assert served.ended(array).state == "SUCCEEDED"
    for index in (1, 2, 3):
        env = by_name(served, f"{array}.{index}")["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "SPILL_ARRAY_INDEX", "value": str(index)} in env


def test_files_are_not_brought_to_kubernetes_and_that_is_the_reason(served: Serving) -> None:
    [job] = served.submit(
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "spec": {"container": {"image": "example/image:1"}, "outputs": ["result.txt"]},
        }
    )
    served.reason(job, "cannot_run")
    why = served.why(job)
    assert why.reason is not None
    assert why.reason.never
    assert "work on agents only" in why.reason.message
    assert served.says(job) == {"onprem": "cannot_run"}
    served.client.cancel(job)
