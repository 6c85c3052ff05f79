"""Serves programs of users over gRPC: decodes, calls commands, encodes, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from spillover.api.grpc.documents import change_out, document_of, status_out
from spillover.api.grpc.job_changes import CHANGES
from spillover.api.grpc.job_questions import QUESTIONS, forecast_out, output_of
from spillover.api.grpc.methods import decoded, fields, raw_method
from spillover.api.grpc.people import (
    MOST_JOBS,
    NAMES,
    PROBLEMS,
    RETRY_AFTER,
    Asked,
    ServiceForPeople,
    check_count,
    invalid,
    refs,
    refuse,
    some,
)
from spillover.api.traces import trace_of_request
from spillover.forms.jobs.reading import BadForm, JobForm, read_job
from spillover.model.tokens import SUBMITTERS
from spillover.ports.callers import Stranger
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import FieldProblem

__all__ = ["PROBLEMS", "RETRY_AFTER", "SERVICE", "JobsService"]
SERVICE: Final = "spillover.jobs.v1.Jobs"
MOST_JOB: Final = 4 << 20
"""Most bytes of one job."""
MOST_PROBLEMS: Final = 100
_BREATH: Final = 500
"""Jobs to read before the event loop runs other work."""


class JobsService(ServiceForPeople):
    """The service for jobs."""

    name = SERVICE

    def check_role(self, method: str, asked: Asked) -> None:
        """See ServiceForPeople."""
        if method.rpartition("/")[2] in {"SubmitJob", *CHANGES} and asked.role not in SUBMITTERS:
            told = f"a token of role {asked.role} may not do this; use one of role submit"
            raise CommandError(ErrorKind.FORBIDDEN, told)

    def handler(self) -> Any:
        """Return all methods, for a server."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "SubmitJob": _submit,
            "GetJobStatus": _status,
            "ForecastJobs": _forecast,
            **QUESTIONS,
            **CHANGES,
        }
        handlers = {name: raw_method(unary, self.unary(one, name)) for name, one in methods.items()}
        handlers["WatchJobs"] = raw_method(stream, self._stream(_watched))
        handlers["ReadOutput"] = raw_method(stream, self._stream(output_of))
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _stream(
        self, method: Callable[[Asked, bytes], AsyncGenerator[Any]]
    ) -> Callable[[bytes, Any], AsyncIterator[Any]]:
        """Wrap a method that streams, as `unary` does; a token that becomes invalid ends the stream."""

        async def call(raw: bytes, context: Any) -> AsyncIterator[Any]:
            try:
                asked = self.asked(context.invocation_metadata() or ())
                self.check_size(raw)
                async with aclosing(method(asked, raw)) as replies:
                    async for reply in replies:
                        if not self.callers.is_valid(asked.token):
                            raise Stranger("the token is no longer valid")  # noqa: TRY301 - reported like all refusals
                        yield reply
            except Exception as error:  # noqa: BLE001 - callers must not see a traceback
                await refuse(context, error)

        return call


async def _watched(asked: Asked, raw: bytes) -> AsyncGenerator[pb.WatchJobsReply]:
    request = decoded(pb.WatchJobsRequest, raw, NAMES)
    after = request.after if request.HasField("after") else None
    async for changed in asked.commands.watch(after, refs(request.jobs), request.project or None):
        yield pb.WatchJobsReply(
            revision=changed.revision, changes=[change_out(change) for change in changed.changes]
        )


async def _submit(asked: Asked, raw: bytes) -> pb.SubmitJobReply:
    forms = await _forms(raw)
    trace, ignored = trace_of_request(asked.traceparent)
    jobs = await asked.commands.submit(forms, asked.user, trace)
    return pb.SubmitJobReply(jobs=jobs, warnings=asked.commands.without_effect(forms) + ignored)


async def _status(asked: Asked, raw: bytes) -> pb.GetJobStatusReply:
    request = decoded(pb.GetJobStatusRequest, raw, NAMES)
    views = [await asked.commands.job(ref) for ref in some(refs(request.jobs))]
    return pb.GetJobStatusReply(jobs=[status_out(view) for view in views])


async def _forecast(asked: Asked, raw: bytes) -> pb.ForecastJobsReply:
    return forecast_out(await asked.commands.forecast(await _forms(raw), asked.user))


async def _forms(raw: bytes) -> list[JobForm]:
    """Read the jobs of a submission; raise CommandError with the problems of all of them."""
    forms: list[JobForm] = []
    problems: list[FieldProblem] = []
    for at, job in enumerate(await _parts(raw)):
        if at % _BREATH == _BREATH - 1:
            await asyncio.sleep(0)
        try:
            forms.append(read_job(document_of(pb.NewJob.FromString(job))))
        except BadForm as bad:
            problems += [
                FieldProblem(f"jobs[{at}].{each.path}" if each.path else f"jobs[{at}]", each.message)
                for each in bad.problems
            ]
        except DecodeError:
            problems.append(FieldProblem(f"jobs[{at}]", "is not a job"))
        except ValueError as error:
            problems.append(FieldProblem(f"jobs[{at}].document", str(error)))
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise invalid(problems)
    return forms


async def _parts(raw: bytes) -> list[bytes]:
    """Return the encoded jobs of a submission; raise CommandError if there are none, too many, or one is too large.

    Each job is decoded separately, so that other work never waits longer than for the largest job.
    """
    jobs: list[bytes] = []
    try:
        for at, (number, start, end) in enumerate(fields(raw)):
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
            if end - start > MOST_JOB:
                told = f"has {end - start} bytes; the maximum is {MOST_JOB}; send large data as a file"
                raise invalid([FieldProblem(f"jobs[{len(jobs)}]", told)])
            if number == pb.SubmitJobRequest.JOBS_FIELD_NUMBER:
                jobs.append(raw[start:end])
            if at > MOST_JOBS:
                break
    except DecodeError:
        raise CommandError(ErrorKind.INVALID, "the request is not a valid SubmitJobRequest") from None
    check_count(jobs)
    return jobs
