"""The `batch/v1` Job that an attempt becomes.

A manifest is kept as it is but for what makes it this attempt of ours: name, namespace, labels, and variables that say which job
it is. Our own form becomes a Job with one container that Kubernetes does not start a second time, because our budgets count.
"""

from typing import Any, Final, assert_never

import msgspec

from spillover.clusters.kubernetes.naming import EPOCH, INDEX, labels_of, name_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.core.events import Lease
from spillover.model.ids import split_member
from spillover.model.job import Argv, Container, JobSpec, PythonCall, Shell
from spillover.model.units import SECOND
from spillover.ports.cluster import Start
from spillover.wire.manifest import UNREADABLE, ManifestDoc

_OF_ANOTHER_JOB: Final = ("selector", "manualSelector", "suspend", "ttlSecondsAfterFinished")
"""What of a Job's spec is not taken over: pods are chosen by Kubernetes; when it runs and when it is deleted is ours to say."""
_SET_BY_KUBERNETES: Final = frozenset(
    ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
)
"""Labels that pods of a Job that was read from a cluster have, and that would be those of another Job."""
_MOST_NOTE: Final = 1000
"""Characters of an annotation of ours."""


class Unrunnable(ValueError):
    """A job cannot become a Job of Kubernetes; the message says why."""


def job_of(start: Start, options: KubernetesOptions, namespace: str, epoch: int) -> dict[str, Any]:
    """The Job to make for an attempt, by a server of an epoch; raises Unrunnable."""
    spec, lease = start.spec, start.lease
    if spec.inputs or spec.outputs:
        raise Unrunnable("files are not brought to or from clusters of Kubernetes; use a volume, or an agent")
    work = spec.work
    match work:
        case Container(manifest=str(manifest)):
            given = _read(manifest)
        case Container(image=image, command=command):
            given = _own(spec, image, [_literal(word) for word in command], options)
        case Shell(run=line):
            given = _own(spec, options.image, ["/bin/sh", "-c", _literal(line)], options)
        case Argv(command=command):
            given = _own(spec, options.image, [_literal(word) for word in command], options)
        case PythonCall():
            raise Unrunnable("Python functions run on agents; a cluster of Kubernetes runs containers")
        case _:
            assert_never(work)
    return _as_ours(given, start, namespace, labels_of(lease, options.owner) | {EPOCH: str(epoch)})


def _read(manifest: str) -> dict[str, Any]:
    """A manifest, whose parts that are read here have the form that they must have."""
    try:
        given = msgspec.json.decode(manifest)
        msgspec.convert(given, ManifestDoc)
    except UNREADABLE as error:
        raise Unrunnable(f"the manifest is not that of a Job: {error}") from None
    whole: dict[str, Any] = given
    return whole


def _own(spec: JobSpec, image: str | None, command: list[str], options: KubernetesOptions) -> dict[str, Any]:
    """A Job of one container for a job in our own form."""
    if not image:
        raise Unrunnable(
            f"it names no image, and {options.cluster} has no default one; write spec.container.image, or set `image` of the cluster"
        )
    container: dict[str, Any] = {"name": "main", "image": image}
    if command:
        container["command"] = command
    if spec.env:
        container["env"] = [{"name": name, "value": _literal(value)} for name, value in spec.env.items()]
    if resources := _resources(spec, options.gpu):
        container["resources"] = resources
    pod: dict[str, Any] = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": -(-spec.terms.grace // SECOND),
    }
    if spec.terms.walltime is not None:
        pod["activeDeadlineSeconds"] = max(1, -(-spec.terms.walltime // SECOND))
    job: dict[str, Any] = {"backoffLimit": 0, "template": {"spec": pod}}
    if (tasks := spec.shape.tasks) > 1:
        job |= {"completionMode": "Indexed", "completions": tasks, "parallelism": tasks}
        index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
        container.setdefault("env", []).extend(
            [{"name": "SPILL_TASK", "valueFrom": index}, {"name": "SPILL_TASKS", "value": str(tasks)}]
        )
    return {"spec": job}


def _resources(spec: JobSpec, gpu: str) -> dict[str, Any]:
    """What a task asks for; memory is also its limit, as on agents, and of whole things there is no other."""
    asked = spec.shape.resources
    bound = {name: str(amount) for name, amount in asked.other}
    if asked.memory:
        bound["memory"] = str(asked.memory)
    if asked.gpu:
        bound[gpu] = str(asked.gpu)
    requests = {"cpu": f"{asked.cpu}m"} | bound if asked.cpu else bound
    return {"requests": requests} | ({"limits": bound} if bound else {}) if requests else {}


def _as_ours(given: dict[str, Any], start: Start, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    """A Job that says whose it is, with pods that do too."""
    spec, meta = given["spec"], given.get("metadata") or {}
    template = spec["template"]
    inner = template.get("metadata") or {}
    kept = {
        name: value for name, value in (inner.get("labels") or {}).items() if name not in _SET_BY_KUBERNETES
    }
    outer = {
        name: value for name, value in (meta.get("labels") or {}).items() if name not in _SET_BY_KUBERNETES
    }
    # Nothing else: a name is that of a pod of another Job, a finalizer keeps a deleted pod and so the room of its attempt.
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
        | {"template": template | {"metadata": pod_meta, "spec": _with_variables(template["spec"], start)}},
    }


def _notes(start: Start) -> dict[str, str]:
    """What a person who looks at the cluster may want to know."""
    spec = start.spec
    notes = {
        "spillover.dev/name": spec.name,
        "spillover.dev/project": spec.project,
        "spillover.dev/queue": spec.queue,
        "spillover.dev/cluster": start.cluster,
    }
    return {name: value[:_MOST_NOTE] for name, value in notes.items() if value}


def _with_variables(pod: dict[str, Any], start: Start) -> dict[str, Any]:
    """A pod whose containers all know which job they are of; the first has the job's variables too."""
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
    """A container with more variables; a fact stands in place of what somebody wrote under its name."""
    had: list[dict[str, Any]] = container.get("env") or []
    names = {each["name"]: each for each in had}
    # What was read from the manifest is there as it was written; what was said beside it stands in its place.
    said = {
        name: value
        for name, value in env.items()
        if name not in names or names[name].get("value") not in {value, _literal(value)}
    }
    own = [{"name": name, "value": value} for name, value in facts.items()]
    more = [{"name": name, "value": _literal(value)} for name, value in said.items() if name not in facts]
    rest = [each for each in had if each["name"] not in facts and each["name"] not in said]
    return container | {"env": [*own, *rest, *more]}


def _facts(lease: Lease, cluster: str) -> dict[str, str]:
    """What tasks are told of themselves, wherever they run."""
    facts = {"SPILL_JOB_ID": lease.job, "SPILL_ATTEMPT": str(lease.attempt), "SPILL_CLUSTER": cluster}
    member = split_member(lease.job)
    return facts if member is None else facts | {"SPILL_ARRAY_INDEX": str(member[1])}


def _literal(text: str) -> str:
    """Text that Kubernetes leaves as it is: it takes `$(NAME)` for a variable, and `$$` for one `$`."""
    return text.replace("$", "$$")
