"""Builds the `batch/v1` Job of an attempt.

A manifest stays as it is, except for name, namespace, labels and the variables that identify the job. A job in our own
form becomes a Job with one container. Kubernetes does not retry it, because our retry budgets count.
"""

from collections.abc import Iterable
from typing import Any, Final, assert_never

import msgspec

from spillover.clusters.kubernetes.attempts.naming import EPOCH, INDEX, labels_of, name_of
from spillover.clusters.kubernetes.attempts.placing import Labels, TooManyTerms, placed
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.core.events import Lease
from spillover.core.records.tasks import LEADER
from spillover.forms.jobs.pods import GPU
from spillover.model.ids import split_member
from spillover.model.job import Argv, Container, JobSpec, PythonCall, Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.cluster import Start
from spillover.wire.manifest import UNREADABLE, ManifestDoc

_OF_ANOTHER_JOB: Final = ("selector", "manualSelector", "suspend", "ttlSecondsAfterFinished")
"""Parts of a Job's spec that we drop. Kubernetes selects the pods; we decide when the Job runs and is deleted."""
_SET_BY_KUBERNETES: Final = frozenset(
    ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
)
"""Labels of pods of a Job that was copied from a cluster; they belong to that other Job."""
MASTER_PORT: Final = "29500"
"""The port of the first task of a gang, as torchrun chooses it. Every pod has all ports for itself."""
_MOST_NOTE: Final = 1000
"""Most characters of an annotation that we add."""


class Unrunnable(ValueError):
    """A job that cannot become a Kubernetes Job; the message says why."""


def job_of(
    start: Start, options: KubernetesOptions, namespace: str, epoch: int, nodes: Iterable[Labels] = ()
) -> dict[str, Any]:
    """Return the Job to create for an attempt by the server of this epoch; raise Unrunnable.

    `nodes` are the labels of the nodes of the cluster.
    """
    spec, lease = start.spec, start.lease
    if spec.inputs or spec.outputs:
        raise Unrunnable(
            "Kubernetes clusters do not support `inputs` and `outputs`; use a volume, or an agent"
        )
    if spec.stdin is not None:
        raise Unrunnable("Kubernetes clusters do not support `stdin`; use a volume, or an agent")
    if spec.terminal:
        raise Unrunnable("Kubernetes clusters do not support terminals; use an agent")
    work = spec.work
    match work:
        case Container(manifest=str(manifest)):
            given = _read(manifest)
        case Container(image=image, command=command):
            given = _own(start, image, [literal(word) for word in command], options)
        case Shell(run=line):
            given = _own(start, options.image, ["/bin/sh", "-c", literal(line)], options)
        case Argv(command=command):
            given = _own(start, options.image, [literal(word) for word in command], options)
        case PythonCall():
            raise Unrunnable("Python functions run on agents only; a Kubernetes cluster runs containers")
        case _:
            assert_never(work)
    made = _as_ours(given, start, namespace, labels := labels_of(lease, options.owner) | {EPOCH: str(epoch)})
    template = made["spec"]["template"]
    try:
        template["spec"] = placed(template["spec"], start, labels, nodes)
    except TooManyTerms as error:
        raise Unrunnable(str(error)) from None
    return made


def _read(manifest: str) -> dict[str, Any]:
    """Parse a manifest and check the parts that this module uses."""
    try:
        given = msgspec.json.decode(manifest)
        msgspec.convert(given, ManifestDoc)
    except UNREADABLE as error:
        raise Unrunnable(f"the manifest is not a Job: {error}") from None
    whole: dict[str, Any] = given
    return whole


def _own(start: Start, image: str | None, command: list[str], options: KubernetesOptions) -> dict[str, Any]:
    """Return a Job with one container, for a job in our own form."""
    spec, lease = start.spec, start.lease
    if not image:
        raise Unrunnable(
            f"it names no image, and {options.cluster} has no default one; write spec.container.image, or set `image` of the cluster"
        )
    container: dict[str, Any] = {"name": "main", "image": image}
    if command:
        container["command"] = command
    if spec.env:
        container["env"] = [{"name": name, "value": literal(value)} for name, value in spec.env.items()]
    if resources := resources_of(spec.shape.resources, options.gpu):
        container["resources"] = resources
    pod: dict[str, Any] = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": -(-spec.terms.grace // SECOND),
    }
    if spec.terms.walltime is not None:
        pod["activeDeadlineSeconds"] = max(1, -(-spec.terms.walltime // SECOND))
    job: dict[str, Any] = {"backoffLimit": 0, "template": {"spec": pod}}
    if spec.shape.is_gang:
        tasks = spec.shape.tasks
        job |= {"completionMode": "Indexed", "completions": tasks, "parallelism": tasks}
        container.setdefault("env", []).extend(_ranks(spec, lease, options.service))
        if options.service is not None:
            pod["subdomain"] = options.service
    return {"spec": job}


def _ranks(spec: JobSpec, lease: Lease, service: str | None) -> list[dict[str, Any]]:
    """Return the variables by which tasks of a gang know their rank, and with a service the host of the first."""
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    ours: list[dict[str, Any]] = [
        {"name": "SPILL_TASK", "valueFrom": index},
        {"name": "SPILL_TASKS", "value": str(spec.shape.tasks)},
    ]
    # A pod has its own host name, network and GPUs, so each task is the only one of its node.
    usual: list[dict[str, Any]] = [{"name": name, "valueFrom": index} for name in ("RANK", "GROUP_RANK")]
    said = {"WORLD_SIZE": str(spec.shape.tasks), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    if service is not None:
        said |= {"MASTER_ADDR": f"{name_of(lease)}-{LEADER}.{service}", "MASTER_PORT": MASTER_PORT}
    usual += [{"name": name, "value": value} for name, value in said.items()]
    return [*ours, *(each for each in usual if each["name"] not in spec.env)]


def resources_of(asked: Resources, gpu: str = GPU) -> dict[str, Any]:
    """Return requests and limits of a container. Memory and extended resources get a limit equal to the request."""
    bound = {name: str(amount) for name, amount in asked.other}
    if asked.memory:
        bound["memory"] = str(asked.memory)
    if asked.gpu:
        bound[gpu] = str(asked.gpu)
    requests = {"cpu": f"{asked.cpu}m"} | bound if asked.cpu else bound
    return {"requests": requests} | ({"limits": bound} if bound else {}) if requests else {}


def _as_ours(given: dict[str, Any], start: Start, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the Job with our name, and with our labels on it and its pods."""
    spec, meta = given["spec"], given.get("metadata") or {}
    template = spec["template"]
    inner = template.get("metadata") or {}
    kept = {
        name: value for name, value in (inner.get("labels") or {}).items() if name not in _SET_BY_KUBERNETES
    }
    outer = {
        name: value for name, value in (meta.get("labels") or {}).items() if name not in _SET_BY_KUBERNETES
    }
    # Drop all other metadata: a name belongs to a pod of another Job, and a finalizer would keep a deleted pod and with
    # it the capacity of its attempt.
    pod_meta = {name: inner[name] for name in ("annotations",) if inner.get(name)} | {"labels": kept | labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name_of(start.lease),
            "namespace": namespace,
            "labels": outer | labels,
            "annotations": (meta.get("annotations") or {}) | _notes(start),
        },
        "spec": {name: value for name, value in spec.items() if name not in _OF_ANOTHER_JOB}
        | {
            "template": template
            | {
                "metadata": pod_meta,
                "spec": _with_variables(template["spec"], start),
            }
        },
    }


def _notes(start: Start) -> dict[str, str]:
    """Return annotations for people who look at the cluster."""
    spec = start.spec
    notes = {
        "spillover.dev/name": spec.name,
        "spillover.dev/project": spec.project,
        "spillover.dev/queue": spec.queue,
        "spillover.dev/cluster": start.cluster,
    }
    return {name: value[:_MOST_NOTE] for name, value in notes.items() if value}


def _with_variables(pod: dict[str, Any], start: Start) -> dict[str, Any]:
    """Add variables that identify the job to all containers, and the job's own variables to the first."""
    facts = _facts(start.lease, start.cluster)
    changed = dict(pod)
    for part in ("containers", "initContainers"):
        if containers := pod.get(part):
            changed[part] = [
                _with_env(each, (start.spec.env if part == "containers" and not at else {}), facts)
                for at, each in enumerate(containers)
            ]
    return changed


def _with_env(container: dict[str, Any], env: dict[str, str], facts: dict[str, str]) -> dict[str, Any]:
    """Add variables to a container; those that identify the job replace others of the same name."""
    had: list[dict[str, Any]] = container.get("env") or []
    names = {each["name"]: each for each in had}
    # `env` also holds the variables that were read from the manifest; keep those as written. Others replace what the
    # manifest says.
    said = {
        name: value
        for name, value in env.items()
        if name not in names or names[name].get("value") not in {value, literal(value)}
    }
    own = [{"name": name, "value": value} for name, value in facts.items()]
    more = [{"name": name, "value": literal(value)} for name, value in said.items() if name not in facts]
    rest = [each for each in had if each["name"] not in facts and each["name"] not in said]
    return container | {"env": [*own, *rest, *more]}


def _facts(lease: Lease, cluster: str) -> dict[str, str]:
    """Return the variables that every task gets, wherever it runs."""
    facts = {"SPILL_JOB_ID": lease.job, "SPILL_ATTEMPT": str(lease.attempt), "SPILL_CLUSTER": cluster}
    member = split_member(lease.job)
    return facts if member is None else facts | {"SPILL_ARRAY_INDEX": str(member[1])}


def literal(text: str) -> str:
    """Escape text for Kubernetes, which expands `$(NAME)` and turns `$$` into `$`."""
    return text.replace("$", "$$")
