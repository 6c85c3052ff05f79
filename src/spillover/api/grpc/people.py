"""The base of gRPC services for users' programs: who calls, what they may, how large requests are, and how refusals look."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

import grpc
import msgspec

from spillover.api.faults import logged_fault, misfit
from spillover.api.grpc.admission import Metadata
from spillover.api.grpc.methods import CODES, MethodBounds
from spillover.control.requests.limits import Gauge
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.tokens import PEOPLE, TokenRole
from spillover.model.tracing import HEADER
from spillover.ports.callers import Caller, Callers, Stranger
from spillover.ports.commands import CommandError, Commands, ErrorKind
from spillover.ports.journal import StoreError
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import FieldProblem

MOST_JOBS: Final = 100_000
"""Most jobs in one request."""
NAMES: Final = MethodBounds(8 << 20, MOST_JOBS + 10)
"""Bounds of a request that names jobs."""
MOST_DETAILS: Final = 3000
"""Most bytes of problems in trailing metadata, which are limited to 8 KiB in total."""
PROBLEMS: Final = "spillover-problems-bin"
RETRY_AFTER: Final = "retry-after-ms"
Reply = TypeVar("Reply")
Form = TypeVar("Form")


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
        self.callers = callers

    def admit(self, method: str, metadata: Metadata) -> None:
        """See Service."""
        self.check_role(method, self.asked(metadata))

    def check_role(self, method: str, asked: "Asked") -> None:
        """Raise unless the caller's role allows a method. By default every role of people is allowed."""
        del method, asked

    async def refuse(self, context: Any, error: Exception) -> NoReturn:
        """See Service."""
        await refuse(context, error)

    def unary(
        self, method: Callable[[Asked, bytes], Awaitable[Reply]], name: str = ""
    ) -> Callable[[bytes, Any], Awaitable[Reply]]:
        """Wrap a method with a check of the token, and turn errors into gRPC statuses."""

        async def call(raw: bytes, context: Any) -> Reply:
            try:
                asked = self.asked(context.invocation_metadata() or ())
                self.check_role(name, asked)
                self.check_size(raw)
                return await method(asked, raw)
            except Exception as error:  # noqa: BLE001 - callers must not see a traceback
                await refuse(context, error)

        return call

    def check_size(self, raw: bytes) -> None:
        """Raise CommandError if a request is too large."""
        most = None if self._gauge is None else self._gauge.body
        if self._gauge is not None and most is not None and len(raw) > most:
            self._gauge.refused["body"] += 1
            told = f"the request has {len(raw)} bytes, of at most {most}; send several"
            raise CommandError(ErrorKind.TOO_LARGE, told)

    def asked(self, metadata: Metadata) -> Asked:
        """Return the caller; raise Stranger or CommandError if it may not call."""
        given = {
            name: value if isinstance(value, str) else value.decode("latin-1") for name, value in metadata
        }
        scheme, _, shown = given.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Stranger("a token is required; send the metadata `authorization: Bearer TOKEN`")
        caller = self.callers.caller(shown.strip())
        if caller.role not in PEOPLE:
            told = f"a token of role {caller.role} may not do this; use one of role submit"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        user = caller.user or given.get("spill-user", "anonymous")
        if not is_name(user):
            raise CommandError(ErrorKind.INVALID, f"the metadata spill-user is not a name: {NAME_RULE}")
        return Asked(self._commands(caller), user, caller.token, caller.role, given.get(HEADER, ""))


def refs(jobs: Sequence[str]) -> list[str]:
    """Return references to jobs; raise CommandError if there are too many or one is not a name."""
    if len(jobs) > MOST_JOBS:
        check_count(jobs)
    for ref in jobs:
        if not is_name(ref):
            raise CommandError(ErrorKind.UNKNOWN, f"there is no job {ref[:80]!r}")
    return list(jobs)


def some(names: list[str]) -> list[str]:
    """Return names; raise CommandError if there are none."""
    check_count(names)
    return names


def check_count(jobs: Sequence[object]) -> None:
    """Raise CommandError if there are no jobs, or too many."""
    if not jobs:
        raise invalid([FieldProblem("jobs", "is empty; give at least one job")])
    if len(jobs) > MOST_JOBS:
        raise CommandError(
            ErrorKind.TOO_LARGE, f"more than {MOST_JOBS} jobs in one request; send several requests"
        )


def checked(form: type[Form], fields: object) -> Form:
    """Return fields as a type of the API, with its bounds; raise CommandError."""
    try:
        return msgspec.convert(fields, form)
    except msgspec.ValidationError as error:
        raise invalid([misfit(error)]) from None


def invalid(problems: Sequence[FieldProblem]) -> CommandError:
    """Return the refusal of a request with these problems."""
    first = f"{problems[0].path}: {problems[0].message}" if problems[0].path else problems[0].message
    message = first if len(problems) == 1 else f"{len(problems)} problems; the first is {first}"
    return CommandError(ErrorKind.INVALID, message, problems)


async def refuse(context: Any, error: Exception) -> NoReturn:
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
