"""What may stand behind the `?` of each path, as types: they are decoded from and described by the same classes."""

from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from spillover.api.http.problems import invalid, misfit
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.units import FOREVER, UnitError, parse_time
from spillover.ports.archive import CostBy
from spillover.ports.commands import JobQuery, Span
from spillover.wire.api import FieldProblem

MOST_FIELDS: Final = 32
Text = Annotated[str, Meta(min_length=1, max_length=100)]
Moment = Annotated[str, Meta(max_length=40, extra_json_schema={"format": "date-time"})]
Revision = Annotated[int, Meta(ge=0, le=FOREVER)]
Q = TypeVar("Q", bound=Struct)


class NoQuery(Struct, frozen=True):
    """Nothing."""


class ListQuery(Struct, frozen=True):
    """Which jobs to list."""

    state: (
        Literal["HELD", "QUEUED", "PLACED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"] | None
    ) = None
    project: Text | None = None
    user: Text | None = None
    name: Text | None = None
    since: Moment | None = None
    """Submitted at or after, RFC 3339 with a zone."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """`next` of the page before."""
    members: bool = False
    """Whether members of arrays are listed too."""


class OverviewQuery(Struct, frozen=True):
    """How much to show of each."""

    running: Annotated[int, Meta(ge=0, le=1000)] = 50
    """Jobs that run or have a place."""
    queued: Annotated[int, Meta(ge=0, le=1000)] = 50
    """Jobs at the head of the queue."""
    agents: Annotated[int, Meta(ge=0, le=10_000)] = 1000


class CostQuery(Struct, frozen=True):
    """What costs are summed by, and since when."""

    by: CostBy = "project"
    since: Moment | None = None
    """Attempts that were over at or after it, RFC 3339 with a zone."""


class PastQuery(Struct, frozen=True):
    """Which jobs that have ended."""

    since: Moment | None = None
    """Submitted at or after, RFC 3339 with a zone."""
    until: Moment | None = None
    """Submitted before, likewise."""
    ended_since: Moment | None = None
    """Ended at or after, likewise."""


class WaitQuery(Struct, frozen=True):
    """How long to wait for a job to end."""

    timeout: Annotated[float, Meta(ge=0, le=60)] = 30.0
    """Seconds; the job is answered as it is when they are over."""


class LogsQuery(Struct, frozen=True):
    """Which output, and from where on."""

    stream: Literal["stdout", "stderr"] = "stdout"
    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Left out: the accepted one, else the newest."""
    task: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    offset: Revision = 0
    """Bytes to skip."""
    follow: bool = False
    """Whether to go on until the attempt has ended."""


class FilesQuery(Struct, frozen=True):
    """Files of which attempt."""

    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Left out: the last that brought any back."""


class BlobQuery(Struct, frozen=True):
    """Which part of a blob."""

    offset: Revision = 0
    """Bytes to skip."""


class EventsQuery(Struct, frozen=True):
    """Which part of history."""

    after: Revision | None = None
    """Only what is newer than this revision. Left out: all that is kept or, when following, only what is to come."""
    follow: bool = False
    """Whether to go on with what is to come."""
    job: Text | None = None
    """Only events of this job."""


def read_query(raw: bytes, form: type[Q]) -> Q:
    """Decode a query string, or say everything that is wrong with it."""
    if not raw:
        return form()
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except UnicodeDecodeError:
        raise invalid([FieldProblem("query", "is not UTF-8")], "the query") from None
    except ValueError:
        raise invalid([FieldProblem("query", f"has more than {MOST_FIELDS} fields")], "the query") from None
    known = {field.name: field for field in msgspec.structs.fields(form)}
    problems: list[FieldProblem] = []
    values: dict[str, object] = {}
    for name, text in pairs:
        if name not in known:
            problems.append(FieldProblem(name[:100], _unknown(name, list(known))))
        elif name in values:
            problems.append(FieldProblem(name, "is there more than once"))
        else:
            try:
                values[name] = _convert(text, known[name].type)
            except msgspec.ValidationError as error:
                problems.append(FieldProblem(name, misfit(error).message))
    if problems:
        raise invalid(problems, "the query")
    return form(**values)


def moment(text: str | None, name: str = "since") -> int | None:
    """A time as nanoseconds UTC, if one is given under this name."""
    if text is None:
        return None
    try:
        return min(max(0, parse_time(text)), FOREVER)
    except UnitError as error:
        raise invalid([FieldProblem(name, str(error))], "the query") from None


def span_of(query: PastQuery) -> Span:
    """A span as commands understand it."""
    return Span(moment(query.since), moment(query.until, "until"), moment(query.ended_since, "ended_since"))


def job_query(query: ListQuery) -> JobQuery:
    """A listing as commands understand it."""
    since = moment(query.since)
    given = (("project", query.project), ("user", query.user), ("name", query.name))
    if wrong := [
        FieldProblem(field, f"is not a name: {NAME_RULE}")
        for field, text in given
        if text and not is_name(text)
    ]:
        raise invalid(wrong, "the query")
    return JobQuery(
        state=query.state,
        project=query.project,
        user=query.user,
        name=query.name,
        since=since,
        limit=query.limit,
        cursor=query.cursor,
        members=query.members,
    )


def _convert(text: str, form: Any) -> object:
    """Text as it is where text is asked for, else what it stands for; `null` stands for nothing that can be asked."""
    try:
        return msgspec.convert(text, form)
    except msgspec.ValidationError:
        value = msgspec.convert(text, form, strict=False)
    if value is None:
        raise msgspec.ValidationError("null is not a value here; leave it out")
    return value


def _unknown(name: str, known: list[str]) -> str:
    """That nothing is called so, with the nearest name that is."""
    near = get_close_matches(name, known, n=1)
    if near:
        return f"is not known here; did you mean {near[0]}?"
    return f"is not known here; there {'are ' + ', '.join(known) if known else 'is nothing to ask'}"
