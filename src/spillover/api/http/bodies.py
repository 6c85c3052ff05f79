"""Reads bodies of requests: limits their size, and decodes JSON directly into types.

A submission of many jobs uses typed decoding, which is fast. Only if that fails, the body is read again as plain
values, so that the answer can list every problem of every job.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from spillover.api.faults import misfit
from spillover.api.http.guard import Headers
from spillover.api.http.problems import RequestRefused, invalid, not_json
from spillover.control.live.garbage import not_collecting
from spillover.forms.jobs.reading import JobForm, from_doc, read_job
from spillover.forms.problems import BadForm
from spillover.wire.api import FieldProblem, Jobs
from spillover.wire.jobfile import JobDoc

MOST_BYTES: Final = 64 * 2**20
MOST_JOBS: Final = 100_000
MOST_PROBLEMS: Final = 100
"""Most problems in one answer."""
PATIENCE: Final = 60.0
"""Seconds that a body may take to arrive."""
_BREATH: Final = 500
"""Jobs to read before the event loop runs other work."""
T = TypeVar("T")


def json_reader(form: type[T]) -> Callable[[bytes], Awaitable[T]]:
    """Return a reader of bodies of one type."""
    decoder = msgspec.json.Decoder(form)

    async def read(body: bytes) -> T:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            raise invalid([misfit(error)], "the body") from None
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise not_json(body, error) from None

    return read


async def receive_body(
    headers: Headers, receive: Callable[[], Awaitable[Any]], most: int | None = None
) -> bytes | None:
    """Receive the whole body, up to a number of bytes; return None if the caller disconnected."""
    most = MOST_BYTES if most is None else most
    media = headers.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
    if media != b"application/json":
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be JSON; send Content-Type: application/json"
        )
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and (len(length) > 18 or int(length) > most):
        raise _larger(most)
    parts, more = bytearray(), True
    try:
        async with asyncio.timeout(PATIENCE):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts += message.get("body", b"")
                if len(parts) > most:
                    raise _larger(most)
                more = message.get("more_body", False)
    except TimeoutError:
        raise RequestRefused(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body did not arrive within {PATIENCE:.0f} s",
            headers={"connection": "close"},
        ) from None
    return bytes(parts)


_many = msgspec.json.Decoder(Jobs)
_one = msgspec.json.Decoder(JobDoc)


async def read_jobs(body: bytes) -> list[JobForm]:
    """Read the jobs of a body that is one document or `{"jobs": [...]}`."""
    try:
        return await _fast(body)
    except (msgspec.DecodeError, BadForm, ValueError, RecursionError):
        return await _careful(body)


async def _fast(body: bytes) -> list[JobForm]:
    """Read jobs with typed decoding. After any failure, `_careful` finds the problems."""
    if not body[:100].lstrip(b" \t\r\n{").startswith(b'"jobs"'):
        return [from_doc(_one.decode(body))]
    with not_collecting():
        docs = _many.decode(body).jobs
    _check_count(docs)
    forms: list[JobForm] = []
    for start in range(0, len(docs), _BREATH):
        if start:
            await asyncio.sleep(0)
        with not_collecting():
            forms += [from_doc(doc) for doc in docs[start : start + _BREATH]]
    return forms


async def _careful(body: bytes) -> list[JobForm]:
    """Read plain values with the checker of job files, and report all problems."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise not_json(body, error) from None
    if not isinstance(value, dict):
        raise invalid(
            [FieldProblem("", 'the body is neither a job document nor {"jobs": [...]}')], "the body"
        )
    if "jobs" not in value:
        forms, problems = await _check([value], lambda _: "")
    else:
        problems = [
            FieldProblem(str(name)[:100], "is not allowed beside jobs") for name in value if name != "jobs"
        ]
        docs = value["jobs"]
        if not isinstance(docs, list):
            raise invalid([*problems, FieldProblem("jobs", "must be a list of job documents")], "the body")
        _check_count(docs)
        forms, more = await _check(docs, lambda index: f"jobs[{index}]")
        problems += more
    if problems:
        raise invalid(problems, "the body")
    return forms


async def _check(
    docs: Sequence[Any], where: Callable[[int], str]
) -> tuple[list[JobForm], list[FieldProblem]]:
    """Read each document. The slow checker runs only for those that typed conversion rejects."""
    forms: list[JobForm] = []
    problems: list[FieldProblem] = []
    for index, doc in enumerate(docs):
        if index % _BREATH == _BREATH - 1:
            await asyncio.sleep(0)
        try:
            forms.append(from_doc(msgspec.convert(doc, JobDoc)))
            continue
        except (msgspec.ValidationError, BadForm, ValueError):
            pass
        try:
            forms.append(read_job(doc))
        except BadForm as bad:
            problems += _placed(bad, where(index))
            if len(problems) >= MOST_PROBLEMS:
                if rest := len(docs) - index - 1:
                    problems.append(FieldProblem("jobs", f"{rest} more were not checked"))
                break
    return forms, problems


def _placed(bad: BadForm, where: str) -> list[FieldProblem]:
    """Prefix the problems of one document with its place in the body."""
    placed = [
        FieldProblem(
            f"{where}.{problem.path}" if where and problem.path else where or problem.path, problem.message
        )
        for problem in bad.problems
    ]
    return [*placed, FieldProblem(where, f"{bad.more} more problems")] if bad.more else placed


def _check_count(docs: Sequence[object]) -> None:
    """Refuse a list that is empty or too long."""
    if not docs:
        raise invalid([FieldProblem("jobs", "is empty; give at least one job")], "the body")
    if len(docs) > MOST_JOBS:
        raise _too_large(f"{len(docs)} jobs in one request; send at most {MOST_JOBS} at a time")


def _larger(most: int) -> RequestRefused:
    """Return the refusal of a body that is too large."""
    size = f"{most // 2**20} MiB" if most % 2**20 == 0 else f"{most} bytes"
    return _too_large(f"the body is larger than {size}; send several requests")


def _too_large(detail: str) -> RequestRefused:
    """Return the refusal of a request that carries too much."""
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, kind="too_large")
