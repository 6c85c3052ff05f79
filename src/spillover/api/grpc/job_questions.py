"""Methods of programs that ask about jobs, queues and usage: decodes the question, calls the command, encodes the answer."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from spillover.api.grpc.documents import STATES, reason_out, stamp, status_out
from spillover.api.grpc.methods import SMALL, decoded
from spillover.api.grpc.people import NAMES, Asked, checked, invalid, refs, some
from spillover.model.budget import USAGE_BY, UsageBy
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.units import FOREVER, SECOND
from spillover.ports.commands import JobQuery
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import (
    ExpectedStart,
    FieldProblem,
    Forecast,
    Forecasts,
    Hours,
    QueueAmounts,
    QueueView,
    ResultsAsked,
    ResultsOfJobs,
    ResultView,
    UsageView,
)
from spillover.wire.parameters import ListQuery, WaitQuery

T = TypeVar("T")
_PIECE: Final = 256 << 10
"""Most bytes of output in one message."""


async def _list(asked: Asked, raw: bytes) -> pb.ListJobsReply:
    request = decoded(pb.ListJobsRequest, raw, SMALL)
    given = [(field, getattr(request, field)) for field in ("project", "user", "name", "queue")]
    if wrong := [
        FieldProblem(field, f"is not a name: {NAME_RULE}")
        for field, text in given
        if text and not is_name(text)
    ]:
        raise invalid(wrong)
    bounded = checked(ListQuery, {"limit": request.limit or 100, "cursor": request.cursor or None})
    page = await asked.commands.jobs(
        JobQuery(
            states=frozenset(pb.JobState.Name(each).removeprefix("JOB_STATE_") for each in request.states),
            since=_nanos(request.since) if request.HasField("since") else None,
            limit=bounded.limit,
            cursor=bounded.cursor,
            members=request.members,
            project=request.project or None,
            user=request.user or None,
            name=request.name or None,
            queue=request.queue or None,
        )
    )
    return pb.ListJobsReply(jobs=[status_out(view) for view in page.jobs], next=page.next or "")


async def _explain(asked: Asked, raw: bytes) -> pb.ExplainJobReply:
    request = decoded(pb.ExplainJobRequest, raw, SMALL)
    (job,) = refs([request.job])
    view = await asked.commands.why(job)
    return pb.ExplainJobReply(
        id=view.id,
        state=STATES[view.state],
        reason=reason_out(view.reason),
        sentence=view.sentence,
        waiting_since=stamp(view.waiting_since),
        waited=_seconds(view.waited_s),
        spills_at=stamp(view.spills_at),
        ahead=view.ahead,
        more_ahead=view.more_ahead,
        estimate=_seconds(view.estimate_s),
        estimate_from=view.estimate_from or "",
        estimate_because=view.estimate_because or "",
        clusters=[
            pb.ClusterVerdict(cluster=each.cluster, role=each.role, reason=reason_out(each.reason))
            for each in view.clusters
        ],
        estimated_cost=view.estimated_cost,
        cost_at_walltime=view.cost_at_walltime,
        ends_at=stamp(view.ends_at),
        expected_start=_expected(view.expected_start),
        expected_start_note=view.expected_start_note or "",
    )


async def _wait(asked: Asked, raw: bytes) -> pb.JobStatus:
    request = decoded(pb.WaitJobRequest, raw, SMALL)
    (job,) = refs([request.job])
    fields = {"job": job} | ({"timeout": _span(request.timeout)} if request.HasField("timeout") else {})
    return status_out(await asked.commands.wait(job, checked(WaitQuery, fields).timeout))


async def _results(asked: Asked, raw: bytes) -> pb.GetResultsReply:
    request = decoded(pb.GetResultsRequest, raw, NAMES)
    jobs = some(refs(request.jobs))
    bounds = {"limit": request.limit or 1000, "timeout": _span(request.timeout)}
    if request.members:
        if len(jobs) > 1:
            raise invalid([FieldProblem("members", f"is for one array, and {len(jobs)} jobs are named")])
        wanted = checked(ResultsAsked, bounds | {"members": request.members})
        page = await asked.commands.results(jobs[0], wanted)
    else:
        page = await asked.commands.results_of_jobs(checked(ResultsOfJobs, bounds | {"jobs": jobs}))
    return pb.GetResultsReply(results=[_result(each) for each in page.results])


def _result(view: ResultView) -> pb.JobResult:
    return pb.JobResult(
        job=view.id,
        state=STATES[view.state],
        exit_code=view.exit_code,
        signal=view.signal,
        reason=reason_out(view.reason),
        value=view.value,
        value_digest=view.value_digest or "",
    )


async def output_of(asked: Asked, raw: bytes) -> AsyncGenerator[pb.OutputPiece]:
    """Stream what a task wrote."""
    request = decoded(pb.ReadOutputRequest, raw, SMALL)
    (job,) = refs([request.job])
    pieces: Any = await asked.commands.output(
        job,
        attempt=request.attempt if request.HasField("attempt") else None,
        task=request.task,
        stderr=request.stderr,
        offset=request.offset,
        follow=request.follow,
    )
    async with aclosing(pieces):
        async for piece in pieces:
            for at in range(0, len(piece), _PIECE):
                yield pb.OutputPiece(data=piece[at : at + _PIECE])


def forecast_out(forecasts: Forecasts) -> pb.ForecastJobsReply:
    """Encode where and when jobs would start."""
    return pb.ForecastJobsReply(
        jobs=[_forecast(each) for each in forecasts.jobs], warnings=forecasts.warnings
    )


def _forecast(view: Forecast) -> pb.JobForecast:
    return pb.JobForecast(
        name=view.name,
        cluster=view.cluster or "",
        node=view.node or "",
        nodes=view.nodes,
        starts_at=stamp(view.starts_at),
        spills_at=stamp(view.spills_at),
        reason=reason_out(view.reason),
        estimate=_seconds(view.estimate_s),
        estimated_cost=view.estimated_cost,
        cost_at_walltime=view.cost_at_walltime,
        expected_start=_expected(view.expected_start),
        note=view.note or "",
    )


async def _queues(asked: Asked, raw: bytes) -> pb.ListQueuesReply:
    decoded(pb.ListQueuesRequest, raw, SMALL)
    return pb.ListQueuesReply(queues=[_queue(view) for view in await asked.commands.queues()])


def _queue(view: QueueView) -> pb.Queue:
    return pb.Queue(
        name=view.name,
        description=view.description,
        default=view.default,
        priority=view.priority,
        running=view.running,
        queued=view.queued,
        used=_amounts(view.used),
        limits=_amounts(view.limits),
        user_limits=_amounts(view.user_limits),
        walltime=_seconds(view.walltime_s),
        projects=view.projects,
        users=view.users,
        clusters=view.clusters,
    )


def _amounts(of: QueueAmounts) -> pb.QueueAmounts:
    return pb.QueueAmounts(running=of.running, cpu=of.cpu, memory=of.memory, gpu=of.gpu, queued=of.queued)


async def _usage(asked: Asked, raw: bytes) -> pb.GetUsageReply:
    request = decoded(pb.GetUsageRequest, raw, SMALL)
    by: list[UsageBy] = [known for word in request.by or ["project"] for known in USAGE_BY if known == word]
    if wrong := [
        FieldProblem(f"by[{at}]", f"{word[:80]!r} is not one of {', '.join(USAGE_BY)}")
        for at, word in enumerate(request.by)
        if word not in USAGE_BY
    ]:
        raise invalid(wrong)
    since = _nanos(request.since) if request.HasField("since") else None
    report = await asked.commands.usage(list(dict.fromkeys(by)), since)
    rows = [_group(row) for row in report.rows]
    return pb.GetUsageReply(currency=report.currency, rows=rows, total=_group(report.total))


def _group(view: UsageView) -> pb.UsageGroup:
    return pb.UsageGroup(
        key=view.key,
        jobs=view.jobs,
        owned=_hours(view.owned),
        rented=_hours(view.rented),
        measured=_hours(view.measured),
        unused=_hours(view.unused),
        cost=view.cost,
    )


def _hours(of: Hours) -> pb.Hours:
    return pb.Hours(cpu=of.cpu, gpu=of.gpu, memory=of.memory)


def _expected(start: ExpectedStart | None) -> pb.ExpectedStart | None:
    return None if start is None else pb.ExpectedStart(p50=stamp(start.p50), p90=stamp(start.p90))


def _seconds(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    duration = Duration()
    duration.FromNanoseconds(int(seconds * SECOND))
    return duration


def _span(duration: Duration) -> float:
    """Return a duration in seconds."""
    return duration.seconds + duration.nanos / SECOND


def _nanos(at: Timestamp) -> int:
    """Return a time in nanoseconds UTC, within what the server counts with."""
    return min(max(0, at.seconds * SECOND + at.nanos), FOREVER)


QUESTIONS: Final[Mapping[str, Callable[[Asked, bytes], Awaitable[Any]]]] = {
    "ListJobs": _list,
    "ExplainJob": _explain,
    "WaitJob": _wait,
    "GetResults": _results,
    "ListQueues": _queues,
    "GetUsage": _usage,
}
"""Methods by name, for all tokens of people."""
