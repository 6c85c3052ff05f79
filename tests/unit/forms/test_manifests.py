import json
from typing import Any

import pytest

from spillover.forms.jobs.reading import BadForm, JobForm, read_job, read_jobs, to_doc
from spillover.model.job import Container
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND


def manifest(
    container: dict[str, Any], *, spec: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    template = {
        "spec": {"containers": [{"name": "c", "image": "busybox"} | container], "restartPolicy": "Never"}
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi"} | metadata,
        "spec": {"template": template} | (spec or {}),
    }


def read(container: dict[str, Any], **more: Any) -> JobForm:
    return read_job(manifest(container, **more), directory="/d")


def refused(value: object) -> list[str]:
    with pytest.raises(BadForm) as error:
        read_job(value)
    return [str(problem) for problem in error.value.problems]


def test_a_kubernetes_job_becomes_a_container_job_and_keeps_its_manifest() -> None:
    form = read(
        {
            "command": ["perl"],
            "args": ["-v"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {}}],
        },
        spec={"activeDeadlineSeconds": 600, "completions": 5, "parallelism": 5},
        labels={"spillover.dev/project": "science"},
        annotations={"spillover.dev/estimate": "5m"},
    )
    work = form.spec.work
    assert isinstance(work, Container)
    assert (work.image, work.command) == ("busybox", ("perl", "-v"))
    assert work.manifest is not None
    assert json.loads(work.manifest)["spec"]["completions"] == 5
    assert form.spec.shape.needs == ("container",)
    assert form.spec.shape.resources == Resources(1000, 0, 0)
    assert (form.spec.name, form.spec.project) == ("pi", "science")
    assert (form.spec.terms.walltime, form.spec.terms.estimate) == (10 * MINUTE, 5 * MINUTE)
    assert form.spec.env == {"A": "1"}
    assert read_job(to_doc(form)) == form


def test_arguments_alone_are_left_to_the_image() -> None:
    work = read({"args": ["-v"]}).spec.work
    assert isinstance(work, Container)
    assert work.command == ()


@pytest.mark.parametrize(
    ("resources", "read_as"),
    [
        ({"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": 2}}, Resources(500, 2**26, 0)),
        ({"limits": {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": "2"}}, Resources(2000, 2**30, 2)),
        ({"limits": {"nvidia.com/gpu": 1}}, Resources(1000, 0, 1)),
        ({"requests": {"memory": "0"}}, Resources(1000, 0, 0)),
        ({"requests": None}, Resources(1000, 0, 0)),
        ({"requests": {"ephemeral-storage": "1Gi"}}, Resources(1000, 0, 0, (("ephemeral-storage", 2**30),))),
        (
            {"requests": {"cpu": "100m"}, "limits": {"example.com/fpga": 2, "hugepages-2Mi": "4Mi"}},
            Resources(100, 0, 0, (("example.com/fpga", 2), ("hugepages-2Mi", 2**22))),
        ),
    ],
)
def test_requests_count_and_limits_where_there_are_none(
    resources: dict[str, Any], read_as: Resources
) -> None:
    assert read({"resources": resources}).spec.shape.resources == read_as


@pytest.mark.parametrize(
    ("annotations", "estimate"),
    [
        ({"estimated_runtime": "90"}, 90 * SECOND),
        ({"estimated_runtime": "1.5"}, 3 * SECOND // 2),
        ({"spillover.dev/estimate": "2m", "estimated_runtime": "90"}, 2 * MINUTE),
    ],
)
def test_an_estimate_is_seconds_or_a_duration(annotations: dict[str, str], estimate: int) -> None:
    assert read({}, annotations=annotations).spec.terms.estimate == estimate


def test_an_estimate_of_the_pod_counts_too() -> None:
    value = manifest({})
    value["spec"]["template"]["metadata"] = {"annotations": {"estimated_runtime": "7"}}
    assert read_job(value).spec.terms.estimate == 7 * SECOND


def test_a_generated_name_is_used_without_its_dash() -> None:
    assert read({}, name=None, generateName="sweep-").spec.name == "sweep"
    assert read({}, name=None).spec.name == "busybox"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (manifest({}) | {"apiVersion": "batch/v1beta1"}, "apiVersion: 'batch/v1beta1' must be batch/v1"),
        (manifest({}) | {"kind": "CronJob"}, "kind: 'CronJob' of batch/v1 is not supported; write a Job"),
        (manifest({"image": 5}), "spec.template.spec.containers[0].image: must be text, found 5"),
        (manifest({"image": ""}), "spec.template.spec.containers[0].image: must not be empty"),
        (manifest({"command": ["a\0"]}), "spec.template.spec.containers[0].command[0]: contains a NUL"),
        (
            manifest({"resources": {"requests": {"cpu": "-1"}}}),
            "spec.template.spec.containers[0].resources.requests.cpu: '-1' is not a number of CPUs",
        ),
        (
            manifest({"resources": {"requests": {"memory": "lots"}}}),
            "spec.template.spec.containers[0].resources.requests.memory: 'lots' is not an amount of memory",
        ),
        (
            manifest({"resources": {"limits": {"nvidia.com/gpu": "1.5"}}}),
            "spec.template.spec.containers[0].resources.limits['nvidia.com/gpu']: '1.5' is not a number of GPUs",
        ),
        (
            manifest({}, spec={"activeDeadlineSeconds": 0}),
            "spec.activeDeadlineSeconds: 0 is too small; the minimum is 1",
        ),
        (
            manifest({}, spec={"activeDeadlineSeconds": 10**12}),
            "spec.activeDeadlineSeconds: '1000000000000s' is out",
        ),
        (
            manifest({}, annotations={"estimated_runtime": "soon"}),
            "metadata.annotations: 'soon' is not a duration",
        ),
        (
            manifest({}, labels={"spillover.dev/project": "a b"}),
            "metadata.labels['spillover.dev/project']: 'a b' is not",
        ),
        (manifest({}, name="x" * 64), "metadata.name: "),
        (
            manifest({}, spec={"template": {"spec": {"containers": []}}}),
            "spec.template.spec.containers: is empty; add a container",
        ),
        (
            manifest({}, annotations={"spillover.dev/estimat": "5m"}),
            "metadata.annotations['spillover.dev/estimat']: unknown annotation of spillover.dev; did you mean `estimate`?",
        ),
        (
            manifest({}, annotations={"spillover.dev/colour": "red"}),
            "metadata.annotations['spillover.dev/colour']: unknown annotation of spillover.dev; expected one of estimate, queue,",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": "i"}]}},
            "kind: 'Pod' of 'v1' is not supported; write a Job of spillover/v1 or batch/v1",
        ),
        (
            {"apiVersion": "v1", "kind": "Job", "spec": {"run": "true"}},
            "apiVersion: 'v1' must be spillover/v1 or batch/v1",
        ),
        ({"apiVersion": "batch/v1", "kind": "Job", "spec": {}}, "spec.template: is missing"),
        ({"apiVersion": "batch/v1", "kind": "Job"}, "spec: is missing"),
    ],
)
def test_what_is_wrong_is_told_where_it_stands_in_the_manifest(value: object, problem: str) -> None:
    (told,) = refused(value)
    assert told.startswith(problem)


def test_of_an_empty_file_it_is_told_what_can_be_submitted() -> None:
    with pytest.raises(
        BadForm, match=r"^a\.yaml: is empty; write a job, the manifest of a Kubernetes Job, or a jobspec$"
    ):
        read_jobs(b"", "a.yaml")


def test_lines_of_a_manifest_are_told() -> None:
    text = b"apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n      - image: 7\n"
    with pytest.raises(
        BadForm, match=r"^pi\.yaml:7: spec\.template\.spec\.containers\[0\]\.image: must be text"
    ):
        read_jobs(text, "pi.yaml")


def test_metadata_that_keeps_objects_from_going_away_is_refused_by_its_name() -> None:
    template = {
        "metadata": {"finalizers": ["example.com/hold"], "ownerReferences": [{"name": "other"}]},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]},
    }
    held = manifest({}, finalizers=["example.com/hold"], spec={"template": template})
    problems = [
        "metadata.finalizers: would keep the Job from being deleted, so its capacity would never be freed; remove it",
        "spec.template.metadata.finalizers: would keep pods from being deleted, so their capacity would never be freed; remove it",
        "spec.template.metadata.ownerReferences: would let another controller delete or adopt the pods; remove it",
    ]
    assert refused(held) == problems
    own = {"container": {"image": "busybox", "manifest": held}}
    document = {"apiVersion": "spillover/v1", "kind": "Job", "metadata": {"name": "pi"}, "spec": own}
    assert refused(document) == [f"spec.container.manifest.{each}" for each in problems]


def test_a_job_that_another_object_owns_is_read_without_its_owner() -> None:
    read({}, ownerReferences=[{"name": "cron"}], finalizers=[])
