"""An attempt becomes one Job: our own form a plain one, and a manifest stays what it was."""

from typing import Any

import msgspec
import pytest

from spillover.clusters.kubernetes.attempts.jobs import Unrunnable, job_of
from spillover.clusters.kubernetes.attempts.naming import epoch_of, lease_of, name_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.core.events import Lease
from spillover.forms.jobs.constraints import read_constraints
from spillover.forms.problems import Findings
from spillover.model.admission import matches
from spillover.model.files import File
from spillover.model.ids import ClusterName, JobId, job_id, member_id
from spillover.model.job import Argv, Container, JobSpec, PythonCall, Shape, Shell, Terms, Work
from spillover.model.resources import Resources
from spillover.model.topology import Level, Topology, vertex_of
from spillover.model.units import SECOND
from spillover.model.where import NodeTerm, Requirement, Rules
from spillover.ports.cluster import Start
from tests.support.kubernetes import LEASE, NAMESPACE, OWNER

OPTIONS = KubernetesOptions(cluster=ClusterName("onprem"), owner=OWNER, image="busybox:1")


def job(
    work: Work, options: KubernetesOptions = OPTIONS, lease: Lease = LEASE, **fields: Any
) -> dict[str, Any]:
    """The Job of some work."""
    spec = JobSpec(work, "render", "film", "default", fields.pop("shape", Shape(Resources(500))), **fields)
    return job_of(Start(lease, spec, options.cluster), options, NAMESPACE, 3)


def manifest(**spec: Any) -> Container:
    """The work of a manifest."""
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pi"}, "spec": spec}
    return Container("perl", manifest=msgspec.json.encode(whole).decode())


def template(**pod: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "pi", "image": "perl"}], "restartPolicy": "Never"} | pod}


def main(made: dict[str, Any]) -> dict[str, Any]:
    """The first container of a Job."""
    container: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
    return container


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_names_are_those_of_job_and_attempt_and_leave_room_for_what_pods_add() -> None:
    assert name_of(Lease(JobId("abcdefghijkl"), 1, 2)) == "spill-abcdefghijkl-1-2"
    longest = Lease(member_id(job_id(2**60 - 1), 10**10 - 1), 10**9, 10**9)
    assert len(name_of(longest)) <= 52
    assert "." not in name_of(longest)


def test_labels_say_whose_a_job_and_its_pods_are() -> None:
    lease = Lease(JobId("abcdefghijkl.7"), 2, 5)
    made = job(Shell("true"), lease=lease)
    assert lease_of(made["metadata"]["labels"], OWNER) == lease
    assert epoch_of(made["metadata"]["labels"]) == 3
    assert epoch_of(made["spec"]["template"]["metadata"]["labels"]) == 3
    assert lease_of(made["spec"]["template"]["metadata"]["labels"], OWNER) == lease
    assert lease_of(made["metadata"]["labels"], "another") is None
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "spillover"
    assert made["metadata"]["annotations"]["spillover.dev/name"] == "render"
    assert made["metadata"]["annotations"]["spillover.dev/project"] == "film"


@pytest.mark.parametrize(
    "labels", [{"spillover.dev/job": ""}, {"spillover.dev/seq": "x"}, {"spillover.dev/attempt": "²"}]
)
def test_what_only_looks_like_ours_is_none_of_ours(labels: dict[str, str]) -> None:
    assert lease_of(job(Shell("true"))["metadata"]["labels"] | labels, OWNER) is None


def test_a_command_becomes_one_container_that_is_started_once() -> None:
    terms = Terms(walltime=90 * SECOND + 1, grace=5 * SECOND)
    shape = Shape(Resources(1500, 2**30, 2, (("example.com/fpga", 1),)))
    made = job(Argv(("echo", "$HOME", "$(date)", "$$")), terms=terms, shape=shape, env={"A": "$(B)"})
    assert made["apiVersion"] == "batch/v1"
    assert made["kind"] == "Job"
    assert made["metadata"]["name"] == name_of(LEASE)
    assert made["metadata"]["namespace"] == NAMESPACE
    assert made["spec"]["backoffLimit"] == 0
    pod = made["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["activeDeadlineSeconds"] == 91
    assert pod["terminationGracePeriodSeconds"] == 5
    container = main(made)
    assert container["image"] == "busybox:1"
    # Kubernetes makes of these what was written.
    assert container["command"] == ["echo", "$$HOME", "$$(date)", "$$$$"]
    assert env(container)["A"] == "$$(B)"
    bound = {"memory": str(2**30), "nvidia.com/gpu": "2", "example.com/fpga": "1"}
    assert container["resources"] == {"requests": {"cpu": "1500m", **bound}, "limits": bound}


def test_a_line_goes_to_the_shell_and_a_container_runs_its_own_image() -> None:
    assert main(job(Shell("a | b")))["command"] == ["/bin/sh", "-c", "a | b"]
    own = main(job(Container("perl:5", ("perl", "-v"))))
    assert (own["image"], own["command"]) == ("perl:5", ["perl", "-v"])
    assert "command" not in main(job(Container("perl:5")))


def test_tasks_know_which_job_they_are_of() -> None:
    made = job(Shell("true"), lease=Lease(JobId("abcdefghijkl.7"), 2, 5), env={"SPILL_ATTEMPT": "9"})
    assert env(main(made)) == {
        "SPILL_JOB_ID": "abcdefghijkl.7",
        "SPILL_ATTEMPT": "2",
        "SPILL_CLUSTER": "onprem",
        "SPILL_ARRAY_INDEX": "7",
    }


def test_several_tasks_are_pods_with_an_index_each() -> None:
    made = job(Shell("true"), shape=Shape(Resources(1000), tasks=3))
    assert made["spec"]["completionMode"] == "Indexed"
    assert (made["spec"]["completions"], made["spec"]["parallelism"]) == (3, 3)
    told = env(main(made))
    assert told["SPILL_TASKS"] == "3"
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    assert told["SPILL_TASK"] == told["RANK"] == index
    assert (told["WORLD_SIZE"], told["LOCAL_RANK"]) == ("3", "0")
    assert "MASTER_ADDR" not in told
    assert "subdomain" not in made["spec"]["template"]["spec"]


def test_a_headless_service_gives_the_first_task_of_a_gang_a_name() -> None:
    options = KubernetesOptions(cluster=ClusterName("c"), owner=OWNER, image="x", service="gangs")
    made = job(Shell("true"), shape=Shape(Resources(1000), tasks=3), options=options)
    assert made["spec"]["template"]["spec"]["subdomain"] == "gangs"
    told = env(main(made))
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == (f"{made['metadata']['name']}-0.gangs", "29500")
    assert "subdomain" not in job(Shell("true"), options=options)["spec"]["template"]["spec"]


def test_variables_of_a_gang_that_the_job_sets_itself_stay_as_they_are() -> None:
    made = job(Shell("true"), shape=Shape(Resources(1000), tasks=3), env={"WORLD_SIZE": "12"})
    values = [each for each in main(made)["env"] if each["name"] == "WORLD_SIZE"]
    assert values == [{"name": "WORLD_SIZE", "value": "12"}]


@pytest.mark.parametrize(
    ("work", "fields", "why"),
    [
        (
            Shell("true"),
            {"options": KubernetesOptions(cluster=ClusterName("c"), owner=OWNER)},
            "names no image",
        ),
        (PythonCall("a:b"), {}, "Python functions run on agents"),
        (Shell("true"), {"outputs": ("out",)}, "do not support `inputs`"),
        (Shell("true"), {"inputs": (File("a", "d", 1),)}, "do not support `inputs`"),
        (Container("x", manifest="{"), {}, "not a Job"),
        (Container("x", manifest='{"spec": {"template": {"spec": 1}}}'), {}, "not a Job"),
    ],
)
def test_what_cannot_become_a_job_says_why(work: Work, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(Unrunnable, match=why):
        job(work, **fields)


def test_a_manifest_is_kept() -> None:
    pod = template(
        serviceAccountName="builder",
        tolerations=[{"operator": "Exists"}],
        affinity={"nodeAffinity": {}},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        initContainers=[{"name": "fetch", "image": "curl"}],
        containers=[{"name": "a", "image": "x", "args": ["$(A)"]}, {"name": "b", "image": "y"}],
    )
    rules = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
    made = job(
        manifest(
            template=pod, completions=3, completionMode="Indexed", backoffLimit=4, podFailurePolicy=rules
        )
    )
    spec = made["spec"]
    assert (spec["completions"], spec["completionMode"], spec["backoffLimit"]) == (3, "Indexed", 4)
    assert spec["podFailurePolicy"] == rules
    kept = spec["template"]["spec"]
    for part in ("serviceAccountName", "tolerations", "affinity", "volumes", "restartPolicy"):
        assert kept[part] == pod["spec"][part]
    assert [each["name"] for each in kept["containers"]] == ["a", "b"]
    assert kept["containers"][0]["args"] == ["$(A)"]
    for each in (*kept["containers"], *kept["initContainers"]):
        assert env(each)["SPILL_JOB_ID"] == LEASE.job


def test_of_a_manifest_only_what_would_make_it_another_job_is_left_out() -> None:
    pod = template() | {
        "metadata": {
            "name": "p",
            "creationTimestamp": None,
            "finalizers": ["example.com/hold"],
            "ownerReferences": [{"name": "other"}],
            "labels": {"app": "pi", "job-name": "old", "controller-uid": "u"},
            "annotations": {"n": "1"},
        }
    }
    whole = {
        "metadata": {
            "name": "pi",
            "namespace": "elsewhere",
            "uid": "u",
            "resourceVersion": "5",
            "ownerReferences": [{"name": "cron"}],
            "finalizers": ["example.com/hold"],
            "labels": {"app": "pi", "batch.kubernetes.io/controller-uid": "u"},
            "annotations": {"note": "mine"},
        },
        "spec": {
            "template": pod,
            "suspend": True,
            "ttlSecondsAfterFinished": 5,
            "selector": {"matchLabels": {"controller-uid": "u"}},
            "manualSelector": True,
            "activeDeadlineSeconds": 60,
        },
        "status": {"succeeded": 1},
    }
    made = job(Container("perl", manifest=msgspec.json.encode(whole).decode()))
    assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert made["metadata"]["namespace"] == NAMESPACE
    assert made["metadata"]["labels"]["app"] == "pi"
    assert made["metadata"]["annotations"]["note"] == "mine"
    assert set(made["spec"]) == {"template", "activeDeadlineSeconds"}
    inner = made["spec"]["template"]["metadata"]
    assert set(inner) == {"labels", "annotations"}
    assert inner["annotations"] == {"n": "1"}
    assert not {"job-name", "controller-uid"} & set(inner["labels"])
    assert "batch.kubernetes.io/controller-uid" not in made["metadata"]["labels"]


def test_variables_of_a_manifest_stay_and_what_was_said_beside_it_stands_in_their_place() -> None:
    had = [
        {"name": "A", "value": "$(B)"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "C", "value": "old"},
        {"name": "SPILL_JOB_ID", "value": "mine"},
    ]
    pod = template(containers=[{"name": "pi", "image": "perl", "env": had}])
    said = {"A": "$(B)", "C": "new", "D": "more"}
    told = env(main(job(manifest(template=pod), env=said)))
    assert told["A"] == "$(B)"
    assert told["SECRET"] == {"secretKeyRef": {"name": "s", "key": "k"}}
    assert (told["C"], told["D"]) == ("new", "more")
    assert told["SPILL_JOB_ID"] == LEASE.job


@pytest.mark.parametrize("part", ["none", ["x"], [{"name": "a"}], [{"image": "i", "env": [{}]}]])
def test_a_manifest_whose_containers_make_no_sense_says_where(part: object) -> None:
    with pytest.raises(Unrunnable, match=r"is not a Job: .*template\.spec\.containers"):
        job(manifest(template=template(containers=part)))


@pytest.mark.parametrize("metadata", [[1], {"labels": ["a"]}, {"annotations": {"a": 1}}])
def test_a_manifest_whose_metadata_make_no_sense_says_where(metadata: object) -> None:
    whole = {"metadata": metadata, "spec": {"template": template()}}
    with pytest.raises(Unrunnable, match=r"is not a Job: .*metadata"):
        job(Container("perl", manifest=msgspec.json.encode(whole).decode()))


def test_null_in_a_manifest_is_the_same_as_nothing() -> None:
    pod = template(containers=[{"name": "pi", "image": "perl", "env": None}], initContainers=None)
    made = job(manifest(template=pod | {"metadata": None}))
    assert env(main(made))["SPILL_JOB_ID"] == LEASE.job
    assert made["spec"]["template"]["spec"]["initContainers"] is None


def affinity_of(topology: Topology, work: Work, tasks: int = 4) -> dict[str, Any]:
    spec = JobSpec(work, "n", "p", "q", Shape(Resources(1000), tasks=tasks, topology=topology))
    levels = (Level("zone", "topology.kubernetes.io/zone"),)
    made = job_of(Start(LEASE, spec, OPTIONS.cluster, levels=levels), OPTIONS, NAMESPACE, 1)
    found: dict[str, Any] = made["spec"]["template"]["spec"].get("affinity", {})
    return found


def test_pods_carry_where_they_must_be_relative_to_each_other() -> None:
    alike = {"matchLabels": {"spillover.dev/job": LEASE.job, "spillover.dev/attempt": str(LEASE.attempt)}}
    zone = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": alike}
    node = {"topologyKey": "kubernetes.io/hostname", "labelSelector": alike}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    assert affinity_of(Topology(within="zone", spread="node"), Shell("true")) == {
        "podAffinity": {required: [zone]},
        "podAntiAffinity": {required: [node]},
    }
    assert affinity_of(Topology(within="zone", preferred=True), Shell("true")) == {
        "podAffinity": {preferred: [{"weight": 100, "podAffinityTerm": zone}]}
    }
    assert affinity_of(Topology(within="zone"), Shell("true"), tasks=1) == {}


def test_affinity_of_a_manifest_stays() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    theirs = {"topologyKey": "rack", "labelSelector": {}}
    pod = template(affinity={"podAffinity": {required: [theirs]}, "nodeAffinity": {"x": 1}})
    found = affinity_of(Topology(within="zone"), manifest(template=pod))
    assert found["nodeAffinity"] == {"x": 1}
    assert [term["topologyKey"] for term in found["podAffinity"][required]] == [
        "rack",
        "topology.kubernetes.io/zone",
    ]


# --- where pods may be

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
RACK = (Level("zone", "zone"), Level("rack", "rack"))


def pod_of(
    shape: Shape, work: Work | None = None, nodes: tuple[dict[str, str], ...] = (), **start: Any
) -> dict[str, Any]:
    """The pod of a job of this shape."""
    spec = JobSpec(work or Shell("true"), "n", "p", "q", shape)
    begin = Start(LEASE, spec, OPTIONS.cluster, levels=RACK, **start)
    pod: dict[str, Any] = job_of(begin, OPTIONS, NAMESPACE, 1, nodes)["spec"]["template"]["spec"]
    return pod


def required_terms(pod: dict[str, Any]) -> Any:
    return pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def constrained(constraints: object, nodes: tuple[dict[str, str], ...] = ()) -> Any:
    """The node selector terms of a job with constraints."""
    found = Findings()
    rules = read_constraints(constraints, (), found)
    assert not found.found
    return required_terms(pod_of(Shape(Resources(1000), rules=rules, runs=("constraints",)), nodes=nodes))


def has(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


NODES_OF_RACKS = {
    "a": {"zone": "z1", "rack": "r1", "kubernetes.io/hostname": "a"},
    "b": {"zone": "z1", "rack": "r1"},
    "c": {"zone": "z2", "rack": "r1"},
    "d": {"rack": "r1"},
    "e": {},
}


@pytest.mark.parametrize(
    ("within", "nodes", "chosen"),
    [
        ("rack", "ab", [("zone", "In", ("z1",)), ("rack", "In", ("r1",))]),
        ("zone", "ab", [("zone", "In", ("z1",))]),
        ("rack", "d", [("zone", "DoesNotExist", ()), ("rack", "In", ("r1",))]),
        ("rack", "ac", None),
        ("rack", "e", None),
        ("row", "ab", None),
    ],
)
def test_the_vertex_of_some_nodes_is_what_only_its_nodes_fulfil(
    within: str, nodes: str, chosen: list[tuple[str, str, tuple[str, ...]]] | None
) -> None:
    found = vertex_of(within, RACK, {name: NODES_OF_RACKS[name] for name in nodes})
    assert found == (None if chosen is None else NodeTerm(tuple([Requirement(*one) for one in chosen])))
    if found is not None:
        rules = Rules(affinity=(found,))
        own = {name for name, labels in NODES_OF_RACKS.items() if matches(rules, name, labels)}
        assert own >= set(nodes)
        assert "c" not in own


def test_a_vertex_that_is_a_node_goes_by_its_name() -> None:
    assert vertex_of("node", (), {"a": {}}) == NodeTerm((), (Requirement("metadata.name", "In", ("a",)),))
    assert vertex_of("node", (), {"a": {}, "b": {}}) is None


def test_pods_of_a_gang_go_to_the_rack_that_was_chosen_for_it() -> None:
    vertex = vertex_of("rack", RACK, {"a": NODES_OF_RACKS["a"]})
    wanted = {"matchExpressions": [has("zone", "In", "z1"), has("rack", "In", "r1")]}
    pod = pod_of(
        Shape(Resources(1000), tasks=2, topology=Topology(within="rack", spread="node")), vertex=vertex
    )
    assert pod["affinity"]["nodeAffinity"] == {REQUIRED: {"nodeSelectorTerms": [wanted]}}
    assert set(pod["affinity"]) == {"nodeAffinity", "podAntiAffinity"}
    pod = pod_of(
        Shape(Resources(1000), tasks=2, topology=Topology(within="rack", preferred=True)), vertex=vertex
    )
    assert pod["affinity"]["nodeAffinity"] == {PREFERRED: [{"weight": 100, "preference": wanted}]}


def test_the_affinity_of_a_manifest_holds_beside_the_chosen_rack() -> None:
    vertex = vertex_of("zone", RACK, {"a": NODES_OF_RACKS["a"]})
    theirs = [
        {"matchExpressions": [has("disk", "In", "ssd")]},
        {},
        {"matchFields": [has("metadata.name", "In", "b")]},
    ]
    work = manifest(template=template(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": theirs}}}))
    pod = pod_of(Shape(Resources(1000), tasks=2, topology=Topology(within="zone")), work, vertex=vertex)
    zone = has("zone", "In", "z1")
    assert required_terms(pod) == [
        {"matchExpressions": [has("disk", "In", "ssd"), zone]},
        {"matchFields": [has("metadata.name", "In", "b")], "matchExpressions": [zone]},
    ]


def test_constraints_become_node_affinity() -> None:
    assert constrained({"properties": ["ssd", "^old"]}) == [
        {"matchExpressions": [has("ssd", "Exists"), has("old", "DoesNotExist")]}
    ]
    assert constrained({"or": [{"hostlist": ["n[1-2]"]}, {"not": [{"hostlist": ["m[1-2]"]}]}]}) == [
        {"matchFields": [has("metadata.name", "In", "n1")]},
        {"matchFields": [has("metadata.name", "In", "n2")]},
        {"matchFields": [has("metadata.name", "NotIn", "m1"), has("metadata.name", "NotIn", "m2")]},
    ]
    assert constrained({"properties": ["os:linux", "^arch:arm64", "container", "^no:label"]}) == [
        {
            "matchExpressions": [
                has("kubernetes.io/os", "In", "linux"),
                has("kubernetes.io/arch", "NotIn", "arm64"),
            ]
        }
    ]


def test_models_of_gpus_become_the_labels_that_nodes_have_for_them() -> None:
    product = "nvidia.com/gpu.product"
    nodes: tuple[dict[str, str], ...] = (
        {product: "NVIDIA-A100-SXM4-40GB"},
        {product: "NVIDIA-A100-PCIE-40GB"},
        {product: "Tesla-V100"},
        {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"},
        {},
    )
    values = ("NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-SXM4-40GB")
    google = ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100")
    both = [
        {"matchExpressions": [has(product, "In", *values)]},
        {"matchExpressions": [has(google[0], "In", google[1])]},
    ]
    assert constrained({"properties": ["gpu:a100"]}, nodes) == both
    assert constrained({"properties": ["^gpu:a100"]}, nodes) == [
        {"matchExpressions": [has(product, "NotIn", *values), has(google[0], "NotIn", google[1])]}
    ]
    needed = pod_of(Shape(Resources(1000, 0, 1), needs=("container", "gpu:a100")), nodes=nodes)
    assert required_terms(needed) == both
    assert "affinity" not in pod_of(Shape(Resources(1000), needs=("container",)))


def test_too_many_names_of_hosts_are_refused_with_advice() -> None:
    with pytest.raises(Unrunnable, match=r"more than 2,000 alternatives on Kubernetes.* use a property"):
        constrained({"hostlist": ["n[1-2001]"]})


def test_an_exclusive_job_repels_all_others_of_ours_and_not_its_own_pods() -> None:
    pod = pod_of(Shape(Resources(1000), topology=Topology(exclusive=True)))
    [term] = pod["affinity"]["podAntiAffinity"][REQUIRED]
    assert term == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchExpressions": [
                has("app.kubernetes.io/managed-by", "In", "spillover"),
                has("spillover.dev/job", "NotIn", LEASE.job),
            ]
        },
        "namespaceSelector": {},
    }
