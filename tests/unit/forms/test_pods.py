from typing import Any

import pytest

from spillover.forms.jobs.reading import BadForm, JobForm, read_job, to_doc
from spillover.model.job import Burst, OnFailure
from spillover.model.resources import Resources
from spillover.model.where import NodeTerm, Requirement, Rules, Toleration, Where


def asks(policy: str | None = None, /, **requests: Any) -> dict[str, Any]:
    """A container that asks for something; `Always` is a sidecar."""
    container: dict[str, Any] = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
    return container | ({"restartPolicy": policy} if policy else {})


def manifest(pod: dict[str, Any], notes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi", "annotations": notes or {}},
        "spec": {"template": {"spec": {"containers": [asks()]} | pod}} | spec,
    }


def read(pod: dict[str, Any], notes: dict[str, str] | None = None, **spec: Any) -> JobForm:
    form = read_job(manifest(pod, notes, **spec))
    assert read_job(to_doc(form)) == form
    return form


def resources(pod: dict[str, Any]) -> Resources:
    return read(pod).spec.shape.resources


def rules(pod: dict[str, Any]) -> Rules | None:
    return read(pod).spec.shape.rules


def wrong(value: dict[str, Any]) -> list[str]:
    with pytest.raises(BadForm) as error:
        read_job(value)
    return [str(problem) for problem in error.value.problems]


# --- what pods ask for in all


def test_containers_of_a_pod_are_counted_together() -> None:
    two = [asks(cpu="500m", memory="1Gi"), asks(cpu=1, memory="1Gi")]
    assert resources({"containers": two}) == Resources(1500, 2**31)


def test_init_containers_count_where_one_needs_more_than_all_containers() -> None:
    pod = {"containers": [asks(cpu=1, memory="4Gi")], "initContainers": [asks(cpu=3), asks(cpu=2)]}
    assert resources(pod) == Resources(3000, 2**32)


def test_sidecars_run_beside_all_that_comes_after_them() -> None:
    init = [asks(cpu=2), asks("Always", cpu=1), asks(cpu=3)]
    assert resources({"containers": [asks(cpu=2)], "initContainers": init}) == Resources(4000)
    assert resources({"containers": [asks(cpu=5)], "initContainers": init}) == Resources(6000)


def test_overhead_is_added_at_the_end() -> None:
    pod = {"containers": [asks(cpu=1)], "initContainers": [asks(cpu=2)]}
    assert resources(pod | {"overhead": {"cpu": "250m", "memory": "1Mi"}}) == Resources(2250, 2**20)


def test_what_a_pod_asks_for_as_a_whole_counts_before_its_containers() -> None:
    pod = {"containers": [asks(cpu=1), asks(cpu=1, memory="2Gi")]}
    whole = {"requests": {"cpu": 3}, "limits": {"memory": "8Gi", "hugepages-2Mi": "2Mi"}}
    expected = Resources(3000, 2**31, 0, (("hugepages-2Mi", 2**21),))
    assert resources(pod | {"resources": whole}) == expected


def test_a_pod_that_says_nothing_of_cpus_is_taken_to_need_one() -> None:
    assert resources({"containers": [asks(memory="1Gi")]}) == Resources(1000, 2**30)


def test_pods_that_run_at_a_time_are_the_tasks() -> None:
    def tasks(**spec: Any) -> int:
        return read({}, **spec).spec.shape.tasks

    assert tasks() == 1
    assert tasks(parallelism=4) == 4
    assert tasks(parallelism=4, completions=3) == 3
    assert tasks(parallelism=2, completions=10, completionMode="Indexed") == 2
    assert tasks(completions=10) == 1


# --- what only Kubernetes does


@pytest.mark.parametrize(
    "pod",
    [
        {"containers": [asks(), asks()]},
        {"initContainers": [asks()]},
        {"containers": [asks() | {"envFrom": [{"secretRef": {"name": "s"}}]}]},
        {"containers": [asks() | {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}]},
        {
            "containers": [asks() | {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        },
        {
            "containers": [asks() | {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    ],
)
def test_a_pod_that_engines_for_containers_cannot_run_says_so(pod: dict[str, Any]) -> None:
    assert read(pod).spec.shape.runs == ("pods",)


@pytest.mark.parametrize(
    "spec", [{"completions": 10}, {"parallelism": 4}, {"parallelism": 4, "completions": 1}]
)
def test_a_job_of_several_pods_runs_on_kubernetes_only(spec: dict[str, Any]) -> None:
    assert read({}, **spec).spec.shape.runs == ("pods",)
    assert read({}, parallelism=1, completions=1).spec.shape.runs == ()


def test_a_plain_pod_runs_on_agents_too() -> None:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "env": [{"name": "A", "value": "1"}]}
    pod = {"containers": [asks() | mounts], "volumes": [{"name": "v", "emptyDir": {}}]}
    assert read(pod).spec.shape.runs == ()


# --- which nodes they ask for


def test_a_pod_that_asks_for_no_node_has_no_rules() -> None:
    assert rules({}) is None
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
    assert rules({"affinity": {"nodeAffinity": preferred, "podAffinity": {}}}) is None


def test_selector_affinity_and_tolerations_are_read() -> None:
    terms = [
        {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    read_rules = rules(
        {
            "nodeSelector": {"zone": "a", "disk": "ssd"},
            "affinity": {"nodeAffinity": required},
            "tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        }
    )
    assert read_rules == Rules(
        (("disk", "ssd"), ("zone", "a")),
        (
            NodeTerm((Requirement("gen", "Gt", ("3",)),)),
            NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),)),
            NodeTerm(),
        ),
        (Toleration(operator="Exists"), Toleration("gpu", "Equal", "yes", "NoSchedule")),
    )


def test_a_pod_that_names_its_node_runs_there_whatever_its_taints() -> None:
    named = NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),))
    assert rules({"nodeName": "n1"}) == Rules((), (named,), (Toleration(operator="Exists"),))


# --- what annotations say


def test_annotations_say_what_a_manifest_has_no_fields_for() -> None:
    spec = read(
        {},
        {
            "spillover.dev/where.cluster": "onprem, cloud",
            "spillover.dev/where.region": "north",
            "spillover.dev/where.labels": "zone=a,disk=ssd",
            "spillover.dev/priority": "-3",
            "spillover.dev/queue": "long",
            "spillover.dev/deadline": "2027-01-31T18:00:00Z",
            "spillover.dev/max-cost": "2.50",
            "spillover.dev/needs": "gpu:a100",
            "spillover.dev/on-cluster-failure": "requeue",
            "spillover.dev/job": "whatever",
            "other.example/where.cluster": "nowhere",
        },
    ).spec
    assert spec.shape.where == Where(
        "", (), ("cloud", "onprem"), ("north",), (("disk", "ssd"), ("zone", "a"))
    )
    assert (spec.priority, spec.queue, spec.terms.max_cost) == (-3, "long", 2_500_000)
    assert spec.shape.needs == ("container", "gpu:a100")
    assert spec.terms.on_cluster_failure is OnFailure.REQUEUE
    assert spec.deadline is not None


def test_annotations_of_the_job_come_before_those_of_its_pod() -> None:
    value = manifest({}, {"spillover.dev/burst": "never"})
    value["spec"]["template"]["metadata"] = {
        "annotations": {"spillover.dev/burst": "always", "spillover.dev/where.avoid": "cloud"}
    }
    shape = read_job(value).spec.shape
    assert (shape.burst, shape.where) == (Burst.NEVER, Where(avoid=("cloud",)))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            manifest({}, {"spillover.dev/where.clusters": "a"}),
            "metadata.annotations['spillover.dev/where.clusters']: unknown annotation of spillover.dev; did you mean `where.cluster`?",
        ),
        (
            manifest({}, {"spillover.dev/priority": "high"}),
            "metadata.annotations['spillover.dev/priority']: must be a whole number, found the text 'high'",
        ),
        (
            manifest({}, {"spillover.dev/where.labels": "zone"}),
            "metadata.annotations['spillover.dev/where.labels']: must be a mapping, found the text 'zone'",
        ),
        (
            manifest({}, {"spillover.dev/where.cluster": "a b"}),
            "metadata.annotations['spillover.dev/where.cluster']: 'a b' is not a valid name",
        ),
        (manifest({}, parallelism=0), "spec.parallelism: is 0, so the job would never run"),
        (manifest({}, parallelism=10**6), "spec.parallelism: 1000000 is too large; the maximum is 100000"),
        (
            manifest({"initContainers": [asks(cpu="x")]}),
            "spec.template.spec.initContainers[0].resources.requests.cpu: 'x' is not a number of CPUs",
        ),
        (
            manifest({"containers": [asks(**{"example.com/fpga": "1.5"})]}),
            "spec.template.spec.containers[0].resources.requests['example.com/fpga']: '1.5' is not a number of",
        ),
        (
            manifest({"nodeSelector": {"zone": 5}}),
            'spec.template.spec.nodeSelector.zone: must be text, found 5; write it in quotes: "5"',
        ),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(value: dict[str, Any], problem: str) -> None:
    (told,) = wrong(value)
    assert told.startswith(problem)


def test_a_choice_among_no_nodes_is_told() -> None:
    required: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    (told,) = wrong(manifest({"affinity": {"nodeAffinity": required}}))
    assert told.endswith(
        "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: must not be empty"
    )


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        (
            manifest({"nodeSelector": [], "volumes": [{"name": "v", "hostPath": {"path": 3}}]}),
            [
                "spec.template.spec.nodeSelector: must be a mapping, found a list",
                "spec.template.spec.volumes[0].hostPath.path: must be text, found 3",
            ],
        ),
        (manifest({}) | {"metadata": [1]}, ["metadata: must be a mapping, found a list"]),
        (manifest({}, parallelism=-1), ["spec.parallelism: -1 is too small; the minimum is 0"]),
    ],
)
def test_a_manifest_within_a_job_file_is_checked_like_one_of_its_own(
    value: dict[str, Any], problems: list[str]
) -> None:
    container = {"image": "busybox", "manifest": value}
    within = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"container": container}}
    for told, where in ((wrong(value), ""), (wrong(within), "spec.container.manifest.")):
        assert len(told) == len(problems)
        for line, problem in zip(told, problems, strict=True):
            assert line.startswith(f"{where}{problem}")


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"operator": "In"}, "In needs `values`"),
        ({"operator": "Exists", "values": ["a"]}, "Exists takes no `values`"),
        ({"operator": "Gt", "values": ["a"]}, "Gt needs one whole number in `values`"),
        ({"operator": "Near"}, "'Near' must be DoesNotExist, Exists, Gt, In, Lt or NotIn"),
    ],
)
def test_requirements_that_no_cluster_takes_are_told(wanted: dict[str, Any], problem: str) -> None:
    term = {"matchExpressions": [{"key": "zone"} | wanted]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    (told,) = wrong(manifest({"affinity": {"nodeAffinity": required}}))
    assert "nodeSelectorTerms[0].matchExpressions[0]" in told
    assert problem in told
