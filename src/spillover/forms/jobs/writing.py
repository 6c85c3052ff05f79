"""Converts a job back to the document that reads as the same job, to show or send it."""

from base64 import b64encode
from typing import Any

import msgspec

from spillover.forms.jobs.arrays import format_array
from spillover.forms.jobs.constraints import constraints_doc
from spillover.forms.jobs.inputs import Unpacked
from spillover.forms.jobs.meaning import AfterRef, JobForm
from spillover.forms.jobs.on_agents import implied_by
from spillover.forms.jobs.where import topology_doc, where_doc
from spillover.model.admission import CONSTRAINTS
from spillover.model.files import File
from spillover.model.job import (
    Argv,
    Burst,
    Container,
    Environment,
    FromJob,
    JobSpec,
    OnFailure,
    OnTaskFailure,
    OnTaskSuccess,
    PythonCall,
    Retry,
    SecretUse,
    Shape,
    Shell,
    Terms,
    Work,
)
from spillover.model.resources import Resources
from spillover.model.units import MONEY, format_time, write_duration, write_memory
from spillover.wire.jobfile import API_VERSION

_TERMS = Terms()
_RETRY = Retry()


def to_doc(job: JobForm | JobSpec) -> dict[str, Any]:
    """Return the job file of a job."""
    spec, key, unpacked = (job.spec, job.key, job.unpacked) if isinstance(job, JobForm) else (job, None, ())
    metadata: dict[str, Any] = {"name": spec.name, "project": spec.project}
    if spec.labels:
        metadata["labels"] = dict(spec.labels)
    body = (_groups(spec) if spec.groups else _work(spec.work)) | _surroundings(spec) | _terms(spec.terms)
    if key is not None:
        body["key"] = key
    files = (*map(_packed, spec.inputs), *map(_unpacked, unpacked), *map(_taken, spec.taken))
    if inputs := list(files):
        body["inputs"] = inputs
    if spec.outputs:
        body["outputs"] = list(spec.outputs)
    unread = job.stdin if isinstance(job, JobForm) else None
    if spec.stdin is not None or unread is not None:
        body["stdin"] = unread if spec.stdin is None else _packed(spec.stdin)
    return {"apiVersion": API_VERSION, "kind": "Job", "metadata": metadata, "spec": body}


def _work(work: Work) -> dict[str, Any]:
    """Return the field that defines the work."""
    match work:
        case Shell():
            return {"run": work.run}
        case Argv():
            return {"command": list(work.command)}
        case PythonCall():
            return {"python": _python(work)}
        case Container():
            container: dict[str, Any] = {"image": work.image}
            if work.command:
                container["command"] = list(work.command)
            if work.manifest is not None:
                container["manifest"] = msgspec.json.decode(work.manifest)
            return {"container": container}


def _groups(spec: JobSpec) -> dict[str, Any]:
    """Return the groups of a gang with unlike tasks."""
    return {
        "groups": [
            {"name": group.name, "tasks": group.tasks, "resources": _amounts(group.resources)}
            | _work(own.work)
            | ({"env": dict(own.env)} if own.env else {})
            | ({"pin": group.pin} if group.pin else {})
            | ({"gpu_link": group.link} if group.link else {})
            for group, own in zip(spec.shape.groups, spec.groups, strict=True)
        ]
    }


def _amounts(asked: Resources) -> dict[str, Any]:
    """Return the resources of one task."""
    cpu = asked.cpu
    resources: dict[str, Any] = {"cpu": cpu // 1000 if cpu % 1000 == 0 else cpu / 1000}
    if asked.memory:
        resources["memory"] = write_memory(asked.memory)
    if asked.gpu:
        resources["gpu"] = asked.gpu
    if asked.other:
        resources["other"] = dict(asked.other)
    return resources


def _tasks(shape: Shape) -> int | str | None:
    """Return the number of tasks; None if that is one, or if groups say it."""
    if shape.most:
        return f"{shape.tasks}..{shape.most}"
    return shape.tasks if shape.tasks != 1 and not shape.groups else None


def _python(work: PythonCall) -> dict[str, Any]:
    """Return a Python function and its arguments."""
    if work.call:
        return {"call": work.call, "args": list(work.args)}
    python: dict[str, Any] = {"function": work.function}
    if work.arguments:
        python["arguments"] = b64encode(work.arguments).decode()
    if work.items:
        python |= {"items": work.items, "first": work.first}
    if work.values:
        python["values"] = [each.job for each in work.values]
    return python


def _packed(file: File) -> dict[str, Any]:
    """Return an input with a digest."""
    entry: dict[str, Any] = {"path": file.path, "digest": file.digest, "size": file.size}
    return entry | {"executable": True} if file.executable else entry


def _unpacked(entry: Unpacked) -> dict[str, Any] | str:
    """Return an input as the user wrote it."""
    return entry.path if entry.to is None else {"path": entry.path, "as": entry.to}


def _taken(entry: FromJob) -> dict[str, Any]:
    """Return an input that names outputs of another job."""
    written = {"from": entry.job, "path": entry.path}
    if entry.to:
        written["as"] = entry.to
    return written if entry.members is None else written | {"members": str(entry.members)}


def _environment(asked: Environment) -> dict[str, Any]:
    """Return a Python environment."""
    if asked.name:
        return {"name": asked.name}
    if asked.image:
        return {"image": asked.image}
    built = {"requirements": asked.requirements}
    return built if asked.text is None else built | {"text": asked.text}


def _secret(use: SecretUse) -> dict[str, Any]:
    """Return a secret that a job gets."""
    written: dict[str, Any] = {"name": use.name, "as": use.variable}
    return written | {"file": True} if use.file else written


def _surroundings(spec: JobSpec) -> dict[str, Any]:
    """Return where, when and with what the job runs."""
    body: dict[str, Any] = {"workdir": spec.workdir, "queue": spec.queue}
    if not spec.groups:
        body["resources"] = _amounts(spec.shape.resources)
    works = (spec.work, *[group.work for group in spec.groups])
    implied = [{PythonCall: "python", Container: "container"}.get(type(work)) for work in works]
    if spec.environment is not None:
        implied += implied_by(spec.environment)
    needs = [word for word in spec.shape.needs if word not in implied]
    after = [AfterRef.of(one) for one in spec.after]
    optional: dict[str, Any] = {
        "env": dict(spec.env),
        "tasks": _tasks(spec.shape),
        "priority": spec.priority,
        "burst": str(spec.shape.burst) if spec.shape.burst is not Burst.AUTO else None,
        "needs": needs,
        "where": None if spec.shape.where is None else where_doc(spec.shape.where),
        "deadline": None if spec.deadline is None else format_time(spec.deadline),
        "not_before": None if spec.not_before is None else format_time(spec.not_before),
        "array": format_array(spec.array, spec.throttle),
        "after": [
            {"job": one.ref, "on": str(one.on)} | ({"members": "same"} if one.same else {}) for one in after
        ],
        "singleton": spec.singleton,
        "hold": spec.hold,
        "terminal": spec.terminal,
        "stdout": spec.stdout,
        "stderr": spec.stderr,
        "open_mode": "append" if spec.append else None,
        "environment": None if spec.environment is None else _environment(spec.environment),
        "keep_state": spec.keep_state,
        "secrets": [_secret(each) for each in spec.secrets],
        "signal_before": write_duration(spec.signal_before) if spec.signal else None,
        "signal": spec.signal if spec.signal != "TERM" else None,
        "notify": [{"to": each.to, "on": [str(kind) for kind in each.on]} for each in spec.notify],
    }
    if spec.shape.rules is not None and CONSTRAINTS in spec.shape.runs:
        optional["constraints"] = constraints_doc(spec.shape.rules)
    if spec.shape.topology is not None:
        optional |= topology_doc(spec.shape.topology)
    if spec.shape.reservation:
        optional["reservation"] = spec.shape.reservation
    return body | {name: value for name, value in optional.items() if value}


def _terms(terms: Terms) -> dict[str, Any]:
    """Return time limits, cost limit and retries, without default values."""
    body: dict[str, Any] = {}
    if terms.walltime is not None:
        body["walltime"] = write_duration(terms.walltime)
    if terms.estimate is not None:
        body["estimate"] = write_duration(terms.estimate)
    if terms.grace != _TERMS.grace:
        body["grace"] = write_duration(terms.grace)
    if terms.lost_after != _TERMS.lost_after:
        body["lost_after"] = write_duration(terms.lost_after)
    if terms.retry != _RETRY:
        body["retry"] = {"exit": terms.retry.exit, "lost": terms.retry.lost}
    if terms.max_cost is not None:
        body["max_cost"] = terms.max_cost / MONEY
    if terms.data:
        body["data"] = write_memory(terms.data)
    if terms.on_cluster_failure is not OnFailure.WAIT:
        body["on_cluster_failure"] = str(terms.on_cluster_failure)
    if terms.on_task_failure is not OnTaskFailure.FAIL:
        body["on_task_failure"] = str(terms.on_task_failure)
    if terms.on_task_success is not OnTaskSuccess.WAIT:
        body["on_task_success"] = str(terms.on_task_success)
    return body
