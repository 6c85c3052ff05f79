"""Converts messages of users' programs: typed jobs to job documents, and views of jobs to messages."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from spillover.forms.problems import BadForm, FormProblem
from spillover.model.units import SECOND, parse_time
from spillover.ports.commands import JobChange
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import JobDetail, JobView, ReasonView
from spillover.wire.jobfile import API_VERSION

STATES: Final[Mapping[str, Any]] = {
    name.removeprefix("JOB_STATE_"): value for name, value in pb.JobState.items()
}


def document_of(new: pb.NewJob) -> Any:
    """Return the job document of a message; raise ValueError if its JSON is invalid."""
    if new.WhichOneof("form") != "document":
        return _document(new.job)
    try:
        return msgspec.json.decode(new.document)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None


def _document(job: pb.Job) -> dict[str, Any]:
    """Convert a typed job to a document; leave out fields that are not set."""
    metadata = {"name": job.name, "project": job.project, "labels": dict(job.labels)}
    spec = {
        "run": job.run,
        "command": list(job.command),
        "env": dict(job.env),
        "workdir": job.workdir,
        "tasks": f"{job.tasks or 1}..{job.most_tasks}" if job.most_tasks else job.tasks,
        "resources": _resources(job.resources),
        "groups": [_group(group) for group in job.groups],
        "on_task_failure": job.on_task_failure,
        "on_task_success": job.on_task_success,
        "priority": job.priority,
        "queue": job.queue,
        "needs": list(job.needs),
        "array": job.array,
        "after": [*job.after, *[_after(each) for each in job.dependencies]],
        "hold": job.hold,
        "singleton": job.singleton,
        "stdout": job.stdout,
        "stderr": job.stderr,
        "key": job.key,
        "walltime": span_of(job.walltime) if job.HasField("walltime") else None,
        "environment": _environment(job),
        "burst": job.burst,
        "data": job.data,
        "where": _where(job.where) if job.HasField("where") else None,
        "retry": _present(job.retry, "exit", "lost"),
        "on_cluster_failure": job.on_cluster_failure,
        "lost_after": span_of(job.lost_after) if job.HasField("lost_after") else None,
        "grace": span_of(job.grace) if job.HasField("grace") else None,
        "terminal": job.terminal,
        "open_mode": job.open_mode,
        "keep_state": job.keep_state,
        "secrets": [_secret(each) for each in job.secrets],
        "inputs": [_input(each) for each in job.inputs],
        "outputs": list(job.outputs),
        "signal": job.signal,
        "signal_before": span_of(job.signal_before) if job.HasField("signal_before") else None,
        "estimate": span_of(job.estimate) if job.HasField("estimate") else None,
        "deadline": moment_of(job.deadline) if job.HasField("deadline") else None,
        "not_before": moment_of(job.not_before) if job.HasField("not_before") else None,
        "exclusive": job.exclusive,
        "pin": job.pin,
        "gpu_link": job.gpu_link,
        "reservation": job.reservation,
        "notify": [{"to": each.to} | _given({"on": list(each.on)}) for each in job.notify],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": _given(metadata),
        "spec": _given(spec) | _zeros(job) | _work(job) | _topology(job),
    }


def _zeros(job: pb.Job) -> dict[str, Any]:
    """Return fields that mean something if they are 0 or empty."""
    found: dict[str, Any] = {}
    if job.HasField("max_cost"):
        found["max_cost"] = job.max_cost
    if job.HasField("stdin"):
        found["stdin"] = {"path": job.stdin.path, "digest": job.stdin.digest, "size": job.stdin.size}
    if job.constraints:
        found["constraints"] = _json("constraints", job.constraints)
    return found


def _work(of: pb.Job | pb.Group) -> dict[str, Any]:
    """Return what to run if it is a container or a call."""
    found: dict[str, Any] = {}
    if of.HasField("container"):
        found["container"] = {"image": of.container.image, "command": list(of.container.command)}
    if of.HasField("python"):
        args = _json("python.args", of.python.args) if of.python.args else []
        found["python"] = {"call": of.python.call, "args": args}
    return found


def _json(field: str, text: str) -> Any:
    """Decode a field that is JSON; raise BadForm."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadForm([FormProblem("", None, f"spec.{field}", f"is not JSON: {error}")]) from None


def _environment(job: pb.Job) -> dict[str, Any]:
    """Return the Python environment of a job; empty if it has none."""
    listed = {"requirements": job.requirements_file or "requirements.txt", "text": job.requirements}
    return _given({"name": job.environment, "image": job.image}) | (listed if job.requirements else {})


def _where(where: pb.Where) -> dict[str, Any]:
    lists = {name: list(getattr(where, name)) for name in ("kind", "cluster", "region", "avoid")}
    return _given({"role": where.role, "labels": dict(where.labels), **lists})


def _present(message: Any, *names: str) -> dict[str, Any]:
    """Return the optional fields of a message that are there."""
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def _after(after: pb.Dependency) -> dict[str, str]:
    """Return a job to wait for, without fields that are not set."""
    return {"job": after.job} | _given({"on": after.on, "members": after.members})


def _topology(job: pb.Job) -> dict[str, Any]:
    """Return where the tasks of a job are; a level that is empty is a problem, so it is not left out."""
    found: dict[str, Any] = {}
    if job.HasField("within"):
        level = job.within.level
        found["within"] = {"prefer": level} if job.within.preferred else level
    if job.HasField("spread"):
        spread = job.spread
        found["spread"] = {"over": spread.over} | _given({"most": spread.most, "exact": spread.exact})
    return found


def _group(group: pb.Group) -> dict[str, Any]:
    """Convert a group of tasks to its part of a document."""
    return {"name": group.name} | _given(
        {
            "tasks": group.tasks,
            "resources": _resources(group.resources),
            "run": group.run,
            "command": list(group.command),
            "env": dict(group.env),
            "pin": group.pin,
            "gpu_link": group.gpu_link,
        }
        | _work(group)
    )


def _input(given: pb.Input) -> dict[str, Any]:
    """Convert an input; an uploaded file always has its size, which may be 0."""
    uploaded = {"digest": given.digest, "size": given.size, "executable": given.executable}
    other = {"as": given.to, "from": given.from_job, "members": given.members}
    return {"path": given.path} | _given(other) | (uploaded if given.digest else {})


def _secret(use: pb.SecretUse) -> dict[str, Any]:
    """Convert a secret that a job gets."""
    return {"name": use.name} | _given({"as": use.variable, "file": use.file})


def _resources(asked: pb.Resources) -> dict[str, Any]:
    return _given({"cpu": asked.cpu, "memory": asked.memory, "gpu": asked.gpu, "other": dict(asked.other)})


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that were set."""
    return {name: value for name, value in fields.items() if value}


def span_of(duration: Duration) -> str:
    """Return a duration in the syntax of job files."""
    nanos = duration.seconds * SECOND + duration.nanos
    sign = "-" if nanos < 0 else ""
    return f"{sign}{abs(nanos) // SECOND}.{abs(nanos) % SECOND:09}".rstrip("0").rstrip(".") + "s"


def moment_of(stamp: Timestamp) -> str:
    """Return a time in the syntax of job files; return one outside the calendar in words, for the error message."""
    try:
        return datetime.fromtimestamp(stamp.seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{stamp.seconds} seconds after 1970"


def status_out(view: JobView) -> pb.JobStatus:
    """Encode the state of a job."""
    status = pb.JobStatus(
        id=view.id,
        name=view.name,
        user=view.user,
        project=view.project,
        queue=view.queue,
        state=STATES[view.state],
        cluster=view.cluster or "",
        node=view.node or "",
        attempt=view.attempt,
        reason=reason_out(view.reason),
        submitted_at=stamp(view.submitted_at),
        started_at=stamp(view.started_at),
        finished_at=stamp(view.finished_at),
        exit_code=view.exit_code,
        signal=view.signal,
        cost=view.cost,
        members={} if view.array is None else view.array.counts,
        tasks=view.task_counts if isinstance(view, JobDetail) else {},
    )
    if view.estimate_s is not None:
        status.estimate.FromNanoseconds(int(view.estimate_s * SECOND))
    return status


def change_out(change: JobChange) -> pb.JobChange:
    """Encode a change of a job's state."""
    return pb.JobChange(
        revision=change.revision,
        at=_nanos(change.at),
        job=change.job,
        state=STATES[change.state],
        attempt=change.attempt,
        cluster=change.cluster or "",
        node=change.node or "",
        exit_code=change.exit_code,
        signal=change.signal,
        reason=reason_out(change.reason),
        members=",".join(
            str(each.first) if each.first == each.last else f"{each.first}-{each.last}"
            for each in change.members
        ),
    )


def reason_out(reason: ReasonView | None) -> pb.Reason | None:
    """Encode a reason."""
    return None if reason is None else pb.Reason(code=reason.code, message=reason.message, never=reason.never)


def stamp(time: str | None) -> Timestamp | None:
    """Encode a time."""
    return None if time is None else _nanos(parse_time(time))


def _nanos(at: int) -> Timestamp:
    return Timestamp(seconds=at // SECOND, nanos=at % SECOND)
