"""Methods of programs that change jobs: decodes what to do, calls the command, encodes what was changed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from spillover.api.grpc.documents import moment_of, span_of
from spillover.api.grpc.methods import decoded
from spillover.api.grpc.people import NAMES, Asked, checked, invalid, refs, some
from spillover.api.traces import trace_of_request
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import Action, FieldProblem, Ids, Patch, Rerun

REMOVED: Final = ("walltime", "estimate", "deadline", "memory", "after")
"""What a change can remove."""
_RESOURCES: Final = ("cpu", "memory", "gpu")


async def _cancel(asked: Asked, raw: bytes) -> pb.CancelJobReply:
    request = decoded(pb.CancelJobRequest, raw, NAMES)
    return pb.CancelJobReply(jobs=(await _act(asked, "cancel", request)).jobs)


def _action(
    what: Literal["hold", "release", "requeue"],
) -> Callable[[Asked, bytes], Awaitable[pb.ChangedJobs]]:
    """Return a method that does something to jobs."""

    async def method(asked: Asked, raw: bytes) -> pb.ChangedJobs:
        return _changed(await _act(asked, what, decoded(pb.ActionRequest, raw, NAMES)))

    return method


async def _act(asked: Asked, what: str, request: pb.CancelJobRequest | pb.ActionRequest) -> Ids:
    states = [pb.JobState.Name(each).removeprefix("JOB_STATE_") for each in request.states]
    fields = {"act": what, "jobs": some(refs(request.jobs)), "states": states, "dry_run": request.dry_run}
    return await asked.commands.act(checked(Action, fields), asked.user)


async def _change(asked: Asked, raw: bytes) -> pb.ChangedJobs:
    request = decoded(pb.ChangeJobRequest, raw, NAMES)
    (job,) = refs([request.job])
    return _changed(await asked.commands.change(job, _patch(request), asked.user))


def _patch(request: pb.ChangeJobRequest) -> Patch:
    """Return what a request changes; raise CommandError."""
    problems = [
        FieldProblem(f"remove[{at}]", f"{name[:80]!r} cannot be removed; write one of {', '.join(REMOVED)}")
        for at, name in enumerate(request.remove)
        if name not in REMOVED
    ]
    given = [name for name in REMOVED if _is_given(request, name) and name in request.remove]
    problems += [FieldProblem(name, "is given and removed; leave one of them out") for name in given]
    if problems:
        raise invalid(problems)
    spec: dict[str, Any] = {name: None for name in request.remove if name != "memory"}
    spec |= {
        name: span_of(getattr(request, name)) for name in ("walltime", "estimate") if request.HasField(name)
    }
    if request.HasField("deadline"):
        spec["deadline"] = moment_of(request.deadline)
    spec |= {
        name: getattr(request, name) for name in ("queue", "throttle", "priority") if request.HasField(name)
    }
    if request.after:
        spec["after"] = list(request.after)
    resources = {name: getattr(request, name) for name in _RESOURCES if request.HasField(name)}
    if "memory" in request.remove:
        resources["memory"] = None
    metadata = {"name": request.name} if request.HasField("name") else {}
    return Patch(metadata=metadata, spec=spec | ({"resources": resources} if resources else {}))


def _is_given(request: pb.ChangeJobRequest, name: str) -> bool:
    return bool(request.after) if name == "after" else request.HasField(name)


async def _rerun(asked: Asked, raw: bytes) -> pb.ChangedJobs:
    request = decoded(pb.RerunJobsRequest, raw, NAMES)
    try:
        changes = msgspec.json.decode(request.changes or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise invalid([FieldProblem("changes", "is not a JSON object")]) from None
    fields = {
        "jobs": some(refs(request.jobs)),
        "failed": request.failed,
        "changes": changes,
        "empty_state": request.empty_state,
    }
    trace, ignored = trace_of_request(asked.traceparent)
    done = await asked.commands.rerun(checked(Rerun, fields), asked.user, trace)
    return _changed(done, ignored)


def _changed(done: Ids, more: Sequence[str] = ()) -> pb.ChangedJobs:
    return pb.ChangedJobs(jobs=done.jobs, warnings=[*done.warnings, *more])


CHANGES: Final[Mapping[str, Callable[[Asked, bytes], Awaitable[Any]]]] = {
    "CancelJob": _cancel,
    "HoldJobs": _action("hold"),
    "ReleaseJobs": _action("release"),
    "RequeueJobs": _action("requeue"),
    "ChangeJob": _change,
    "RerunJobs": _rerun,
}
"""Methods by name, which take a token that may submit."""
