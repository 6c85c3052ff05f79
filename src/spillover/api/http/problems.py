"""Turns errors into RFC 9457 problem documents, each with its HTTP status."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem, Problem

MEDIA: Final = "application/problem+json"
_TYPE: Final = "urn:spillover:problem:"
REFUSED: Final = "spillover.refused"
"""Key in the scope of a request that was answered with a problem."""
_STATUS: Final[dict[ErrorKind, HTTPStatus]] = {
    ErrorKind.INVALID: HTTPStatus.BAD_REQUEST,
    ErrorKind.UNKNOWN: HTTPStatus.NOT_FOUND,
    ErrorKind.AMBIGUOUS: HTTPStatus.CONFLICT,
    ErrorKind.CONFLICT: HTTPStatus.CONFLICT,
    ErrorKind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorKind.NOT_LEADER: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorKind.FORBIDDEN: HTTPStatus.FORBIDDEN,
    ErrorKind.LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    ErrorKind.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorKind.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}
WORDS: Final[dict[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    414: "query_too_long",
    415: "unsupported_media_type",
    421: "wrong_host",
    429: "limited",
    431: "headers_too_large",
    500: "internal",
    503: "unavailable",
}
"""The last part of a problem's type by status, if nothing more specific is known."""
_RETRY_AFTER: Final = 1.0
"""Seconds after which to retry an unavailable server, if the command sets none."""
_BYTE = re.compile(r"\(byte (\d+)\)")


class RequestRefused(Exception):
    """A request ends with this status, problem document and headers."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        kind: str | None = None,
        problems: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        untouched: bool = False,
    ) -> None:
        super().__init__(detail)
        self.untouched = untouched
        """Whether the server certainly changed nothing."""
        self.status = status
        self.detail = detail
        self.kind = kind or WORDS[status]
        """The last part of the problem's type."""
        self.problems = problems
        self.headers = dict(headers or {})
        self.retry_after = retry_after
        """Seconds; None if an unchanged retry would not help."""

    def body(self) -> bytes:
        """Encode the problem document."""
        return msgspec.json.encode(
            Problem(
                type=_TYPE + self.kind,
                title=self.status.phrase,
                status=self.status,
                detail=self.detail,
                problems=list(self.problems),
                retry_after_s=self.retry_after,
                untouched=self.untouched,
            )
        )


def refused(error: CommandError) -> RequestRefused:
    """Return the answer to a command that failed."""
    status = _STATUS[error.kind]
    after = error.retry_after
    if after is None and status is HTTPStatus.SERVICE_UNAVAILABLE:
        after = _RETRY_AFTER
    return RequestRefused(
        status,
        error.message,
        kind=error.kind.value,
        problems=error.problems,
        retry_after=after,
        untouched=error.untouched,
        headers=None if after is None else {"retry-after": str(max(1, round(after)))},
    )


def invalid(problems: Sequence[FieldProblem], what: str) -> RequestRefused:
    """Return an answer that lists each problem."""
    count = len(problems)
    first = f"{problems[0].path}: {problems[0].message}" if problems[0].path else problems[0].message
    detail = first if count == 1 else f"{count} problems in {what}; the first is {first}"
    return RequestRefused(HTTPStatus.BAD_REQUEST, detail, kind=ErrorKind.INVALID, problems=problems)


def not_json(body: bytes, error: Exception) -> RequestRefused:
    """Return the answer to a body that is not JSON, with the position of the error."""
    if not body.strip():
        return RequestRefused(
            HTTPStatus.BAD_REQUEST, "the body is empty; send a JSON document", kind="not_json"
        )
    text = str(error).removeprefix("JSON is malformed: ").lower()
    if isinstance(error, RecursionError):
        text = "it is nested too deeply"
    elif isinstance(error, UnicodeDecodeError):
        text = "it is not UTF-8"
    elif "truncated" in text:
        text = f"it ends in the middle of a value ({place(body, len(body))})"
    elif match := _BYTE.search(text):
        text = text[: match.start()] + f"({place(body, int(match[1]))})"
    return RequestRefused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {text}", kind="not_json")


def place(body: bytes, at: int) -> str:
    """Return the line and column of a byte, both from 1."""
    line = body.count(b"\n", 0, at) + 1
    column = at - (body.rfind(b"\n", 0, at) + 1) + 1
    return f"line {line}, column {column}"
