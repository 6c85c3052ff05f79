"""Converts messages of users' programs: typed jobs to job documents, and views of jobs to messages."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from spillover.model.units import SECOND, parse_time
from spillover.ports.commands import JobChange
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import JobDetail, ReasonView
from spillover.wire.jobfile import API_VERSION

_STATES: Final[Mapping[str, Any]] = {
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
        "walltime": _span(job.walltime) if job.HasField("walltime") else None,
        "environment": {"name": job.environment} if job.environment else None,
        "keep_state": job.keep_state,
        "secrets": [_secret(each) for each in job.secrets],
        "inputs": [_input(each) for each in job.inputs],
        "outputs": list(job.outputs),
        "signal": job.signal,
        "signal_before": _span(job.signal_before) if job.HasField("signal_before") else None,
        "estimate": _span(job.estimate) if job.HasField("estimate") else None,
        "deadline": _moment(job.deadline) if job.HasField("deadline") else None,
        "not_before": _moment(job.not_before) if job.HasField("not_before") else None,
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
        "spec": _given(spec) | _topology(job),
    }


def _after(after: pb.After) -> dict[str, str]:
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
    return _given({"cpu": asked.cpu, "memory": asked.memory, "gpu": asked.gpu})


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that were set."""
    return {name: value for name, value in fields.items() if value}


def _span(duration: Duration) -> str:
    """Return a duration in the syntax of job files."""
    nanos = duration.seconds * SECOND + duration.nanos
    sign = "-" if nanos < 0 else ""
    return f"{sign}{abs(nanos) // SECOND}.{abs(nanos) % SECOND:09}".rstrip("0").rstrip(".") + "s"


def _moment(stamp: Timestamp) -> str:
    """Return a time in the syntax of job files; return one outside the calendar in words, for the error message."""
    try:
        return datetime.fromtimestamp(stamp.seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{stamp.seconds} seconds after 1970"


def status_out(view: JobDetail) -> pb.JobStatus:
    """Encode the state of a job."""
    status = pb.JobStatus(
        id=view.id,
        name=view.name,
        user=view.user,
        project=view.project,
        queue=view.queue,
        state=_STATES[view.state],
        cluster=view.cluster or "",
        node=view.node or "",
        attempt=view.attempt,
        reason=_reason(view.reason),
        submitted_at=_stamp(view.submitted_at),
        started_at=_stamp(view.started_at),
        finished_at=_stamp(view.finished_at),
        exit_code=view.exit_code,
        signal=view.signal,
        cost=view.cost,
        members={} if view.array is None else view.array.counts,
        tasks=view.task_counts,
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
        state=_STATES[change.state],
        attempt=change.attempt,
        cluster=change.cluster or "",
        node=change.node or "",
        exit_code=change.exit_code,
        signal=change.signal,
        reason=_reason(change.reason),
        members=",".join(
            str(each.first) if each.first == each.last else f"{each.first}-{each.last}"
            for each in change.members
        ),
    )


def _reason(reason: ReasonView | None) -> pb.Reason | None:
    return None if reason is None else pb.Reason(code=reason.code, message=reason.message, never=reason.never)


def _stamp(time: str | None) -> Timestamp | None:
    return None if time is None else _nanos(parse_time(time))


def _nanos(at: int) -> Timestamp:
    return Timestamp(seconds=at // SECOND, nanos=at % SECOND)
