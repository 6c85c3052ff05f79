"""Serves programs of users over gRPC: decodes, calls commands, encodes, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

import grpc
import msgspec
from google.protobuf.message import DecodeError

from spillover.api.faults import logged_fault
from spillover.api.grpc.admission import Metadata
from spillover.api.grpc.documents import change_out, document_of, status_out
from spillover.api.grpc.methods import CODES, MethodBounds, decoded, fields, raw_method
from spillover.api.traces import trace_of_request
from spillover.control.requests.limits import Gauge
from spillover.forms.jobs.reading import BadForm, JobForm, read_job
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.tokens import PEOPLE, SUBMITTERS, TokenRole
from spillover.model.tracing import HEADER
from spillover.ports.callers import Caller, Callers, Stranger
from spillover.ports.commands import CommandError, Commands, ErrorKind
from spillover.ports.journal import StoreError
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import Action, FieldProblem

SERVICE: Final = "spillover.jobs.v1.Jobs"
MOST_JOBS: Final = 100_000
"""Most jobs in one request."""
MOST_JOB: Final = 4 << 20
"""Most bytes of one job."""
NAMES: Final = MethodBounds(8 << 20, MOST_JOBS + 10)
"""Bounds of a request that names jobs."""
MOST_PROBLEMS: Final = 100
_BREATH: Final = 500
"""Jobs to read before the event loop runs other work."""
MOST_DETAILS: Final = 3000
"""Most bytes of problems in trailing metadata, which are limited to 8 KiB in total."""
PROBLEMS: Final = "spillover-problems-bin"
RETRY_AFTER: Final = "retry-after-ms"
_CHANGES: Final = frozenset({"SubmitJob", "CancelJob"})
"""Methods that a token of role read may not call."""
Request = TypeVar("Request")
Reply = TypeVar("Reply")


class Asked(msgspec.Struct, frozen=True):
    """The caller, and the commands that it may use."""

    commands: Commands
    user: str
    token: str
    """Id of the token."""
    role: TokenRole = TokenRole.SUBMIT
    traceparent: str = ""
    """The metadata of that name; empty if there are none."""

    @property
    def admin(self) -> bool:
        """Whether the token has role admin."""
        return self.role is TokenRole.ADMIN


class ServiceForPeople:
    """The base of services for users' programs: checks callers and sizes of requests, and reports refusals."""

    name: str

    def __init__(
        self, commands: Callable[[Caller], Commands], callers: Callers, gauge: Gauge | None = None
    ) -> None:
        self._gauge = gauge
        """None sets no limits."""
        self._commands = commands
        self._callers = callers

    def admit(self, method: str, metadata: Metadata) -> None:
        """See Service."""
        self.check_role(method, self._asked(metadata))

    def check_role(self, method: str, asked: "Asked") -> None:
        """Raise unless the caller's role allows a method. By default every role of people is allowed."""
        del method, asked

    async def refuse(self, context: Any, error: Exception) -> NoReturn:
        """See Service."""
        await _refuse(context, error)

    def unary(
        self, method: Callable[[Asked, bytes], Awaitable[Reply]], name: str = ""
    ) -> Callable[[bytes, Any], Awaitable[Reply]]:
        """Wrap a method with a check of the token, and turn errors into gRPC statuses."""

        async def call(raw: bytes, context: Any) -> Reply:
            try:
                asked = self._asked(context.invocation_metadata() or ())
                self.check_role(name, asked)
                self._check_size(raw)
                return await method(asked, raw)
            except Exception as error:  # noqa: BLE001 - callers must not see a traceback
                await _refuse(context, error)

        return call

    def _check_size(self, raw: bytes) -> None:
        """Raise CommandError if a request is too large."""
        most = None if self._gauge is None else self._gauge.body
        if self._gauge is not None and most is not None and len(raw) > most:
            self._gauge.refused["body"] += 1
            told = f"the request has {len(raw)} bytes, of at most {most}; send several"
            raise CommandError(ErrorKind.TOO_LARGE, told)

    def _asked(self, metadata: Metadata) -> Asked:
        """Return the caller; raise Stranger or CommandError if it may not call."""
        given = {
            name: value if isinstance(value, str) else value.decode("latin-1") for name, value in metadata
        }
        scheme, _, shown = given.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Stranger("a token is required; send the metadata `authorization: Bearer TOKEN`")
        caller = self._callers.caller(shown.strip())
        if caller.role not in PEOPLE:
            told = f"a token of role {caller.role} may not do this; use one of role submit"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        user = caller.user or given.get("spill-user", "anonymous")
        if not is_name(user):
            raise CommandError(ErrorKind.INVALID, f"the metadata spill-user is not a name: {NAME_RULE}")
        return Asked(self._commands(caller), user, caller.token, caller.role, given.get(HEADER, ""))


class JobsService(ServiceForPeople):
    """The service for jobs."""

    name = SERVICE

    def check_role(self, method: str, asked: Asked) -> None:
        """See ServiceForPeople."""
        if method.rpartition("/")[2] in _CHANGES and asked.role not in SUBMITTERS:
            told = f"a token of role {asked.role} may not do this; use one of role submit"
            raise CommandError(ErrorKind.FORBIDDEN, told)

    def handler(self) -> Any:
        """Return all methods, for a server."""
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "SubmitJob": raw_method(unary, self.unary(_submit, "SubmitJob")),
            "GetJobStatus": raw_method(unary, self.unary(_status, "GetJobStatus")),
            "CancelJob": raw_method(unary, self.unary(_cancel, "CancelJob")),
            "WatchJobs": raw_method(grpc.unary_stream_rpc_method_handler, self._watch),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _watch(self, raw: bytes, context: Any) -> AsyncIterator[pb.WatchJobsReply]:
        try:
            asked = self._asked(context.invocation_metadata() or ())
            self._check_size(raw)
            request = decoded(pb.WatchJobsRequest, raw, NAMES)
            after = request.after if request.HasField("after") else None
            async for some in asked.commands.watch(after, _refs(request.jobs), request.project or None):
                if not self._callers.is_valid(asked.token):
                    raise Stranger("the token is no longer valid")  # noqa: TRY301 - reported like all refusals
                yield pb.WatchJobsReply(
                    revision=some.revision, changes=[change_out(change) for change in some.changes]
                )
        except Exception as error:  # noqa: BLE001 - as above
            await _refuse(context, error)


async def _submit(asked: Asked, raw: bytes) -> pb.SubmitJobReply:
    forms = await _forms(raw)
    trace, ignored = trace_of_request(asked.traceparent)
    jobs = await asked.commands.submit(forms, asked.user, trace)
    return pb.SubmitJobReply(jobs=jobs, warnings=asked.commands.without_effect(forms) + ignored)


async def _status(asked: Asked, raw: bytes) -> pb.GetJobStatusReply:
    request = decoded(pb.GetJobStatusRequest, raw, NAMES)
    views = [await asked.commands.job(ref) for ref in _some(_refs(request.jobs))]
    return pb.GetJobStatusReply(jobs=[status_out(view) for view in views])


async def _cancel(asked: Asked, raw: bytes) -> pb.CancelJobReply:
    request = decoded(pb.CancelJobRequest, raw, NAMES)
    done = await asked.commands.act(Action("cancel", _some(_refs(request.jobs))), asked.user)
    return pb.CancelJobReply(jobs=done.jobs)


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
        raise _invalid(problems)
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
                raise _invalid([FieldProblem(f"jobs[{len(jobs)}]", told)])
            if number == pb.SubmitJobRequest.JOBS_FIELD_NUMBER:
                jobs.append(raw[start:end])
            if at > MOST_JOBS:
                break
    except DecodeError:
        raise CommandError(ErrorKind.INVALID, "the request is not a valid SubmitJobRequest") from None
    _check_count(jobs)
    return jobs


def _refs(jobs: Sequence[str]) -> list[str]:
    """Return references to jobs; raise CommandError if there are too many or one is not a name."""
    if len(jobs) > MOST_JOBS:
        _check_count(jobs)
    for ref in jobs:
        if not is_name(ref):
            raise CommandError(ErrorKind.UNKNOWN, f"there is no job {ref[:80]!r}")
    return list(jobs)


def _some(refs: list[str]) -> list[str]:
    _check_count(refs)
    return refs


def _check_count(jobs: Sequence[object]) -> None:
    if not jobs:
        raise _invalid([FieldProblem("jobs", "is empty; give at least one job")])
    if len(jobs) > MOST_JOBS:
        raise CommandError(
            ErrorKind.TOO_LARGE, f"more than {MOST_JOBS} jobs in one request; send several requests"
        )


def _invalid(problems: Sequence[FieldProblem]) -> CommandError:
    first = f"{problems[0].path}: {problems[0].message}"
    message = first if len(problems) == 1 else f"{len(problems)} problems; the first is {first}"
    return CommandError(ErrorKind.INVALID, message, problems)


async def _refuse(context: Any, error: Exception) -> NoReturn:
    """End a call with the status and message of an error."""
    trailing: tuple[tuple[str, str | bytes], ...] = ()
    match error:
        case Stranger():
            code, message = grpc.StatusCode.UNAUTHENTICATED, str(error)
        case CommandError():
            code, message = CODES[error.kind], error.message
            trailing = _trailing(error)
        case StoreError():
            code, message = grpc.StatusCode.UNAVAILABLE, str(error)
        case _:
            code, message = grpc.StatusCode.INTERNAL, logged_fault("call failed", error)
    await context.abort(code, message[:1000], trailing)
    raise AssertionError("abort does not return")


def _trailing(error: CommandError) -> tuple[tuple[str, str | bytes], ...]:
    """Return what programs can read of a refusal: each problem, as far as there is space, and when to retry."""
    found: list[tuple[str, str | bytes]] = []
    if error.problems:
        told, room = pb.Problems(), MOST_DETAILS
        for problem in error.problems:
            one = pb.Problem(path=problem.path[:200], message=problem.message[:500])
            room -= one.ByteSize() + 4
            if room < 0:
                break
            told.problems.append(one)
        told.more = len(error.problems) - len(told.problems)
        found.append((PROBLEMS, told.SerializeToString()))
    if error.retry_after is not None:
        found.append((RETRY_AFTER, str(max(1, round(error.retry_after * 1000)))))
    return tuple(found)
