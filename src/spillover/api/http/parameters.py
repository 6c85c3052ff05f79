"""Decodes the parameters of a request into the types of its endpoint, and into arguments of commands."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar, get_args
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from spillover.api.faults import misfit
from spillover.api.http.problems import RequestRefused, invalid
from spillover.forms.problems import shown
from spillover.model.budget import USAGE_BY, UsageBy
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.units import FOREVER, UnitError, parse_time
from spillover.ports.audit import AuditQuery
from spillover.ports.commands import EventFilter, JobQuery, Span
from spillover.wire.api import FieldProblem
from spillover.wire.endpoints import Endpoint
from spillover.wire.parameters import AuditQuery as AuditParameters
from spillover.wire.parameters import EventsQuery, ListQuery, PastQuery, PathRule, TextRule, UsageQuery

MOST_FIELDS: Final = 32
P = TypeVar("P", bound=Struct)


class ParameterReader(Generic[P]):
    """Decodes the parameters of one endpoint, from its path and its query."""

    def __init__(self, endpoint: Endpoint[P, Any, Any]) -> None:
        self._form = endpoint.parameters
        types = {field.name: field.type for field in msgspec.structs.fields(endpoint.parameters)}
        self._in_path = [(name, types[name], _rule(types[name])) for name in endpoint.in_path]
        self._in_query = {name: types[name] for name in endpoint.in_query}
        self._rules = {
            name: rule for name, form in self._in_query.items() if (rule := _text_rule(form)) is not None
        }

    def read(self, parts: Sequence[str], query: bytes) -> P:
        """Decode the parts of the path, in their order, and the query; refuse them with all problems."""
        values: dict[str, object] = {}
        for (name, form, rule), text in zip(self._in_path, parts, strict=True):
            values[name] = _part(name, text, form, rule)
        if query:
            values |= self._queried(query)
        return self._form(**values)

    def _queried(self, raw: bytes) -> dict[str, object]:
        """Decode the fields of a query that are given."""
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
            )
        except UnicodeDecodeError:
            raise invalid([FieldProblem("query", "is not UTF-8")], "the query") from None
        except ValueError:
            raise invalid(
                [FieldProblem("query", f"has more than {MOST_FIELDS} fields")], "the query"
            ) from None
        known = self._in_query
        problems: list[FieldProblem] = []
        values: dict[str, object] = {}
        for name, text in pairs:
            if name not in known:
                problems.append(FieldProblem(name[:100], _unknown(name, list(known))))
            elif name in values:
                problems.append(FieldProblem(name, "is repeated"))
            else:
                try:
                    values[name] = _convert(text, known[name])
                except msgspec.ValidationError as error:
                    problems.append(FieldProblem(name, misfit(error).message))
                    continue
                if (rule := self._rules.get(name)) is not None and (told := rule.problem(text)) is not None:
                    problems.append(FieldProblem(name, told))
        if problems:
            raise invalid(problems, "the query")
        return values


def _rule(form: Any) -> PathRule | None:
    """Return the rule that the type of a path parameter carries; None if it has none."""
    return next((note for note in get_args(form)[1:] if isinstance(note, PathRule)), None)


def _text_rule(form: Any) -> TextRule | None:
    """Return the rule that the type of a query parameter carries, which may be optional; None if it has none."""
    notes = [*get_args(form)[1:], *(note for one in get_args(form) for note in get_args(one)[1:])]
    return next((note for note in notes if isinstance(note, TextRule)), None)


def _part(name: str, text: str, form: Any, rule: PathRule | None) -> object:
    """Decode one parameter of the path."""
    if rule is not None:
        if not rule.fits(text):
            raise RequestRefused(rule.status, rule.told, kind=rule.kind)
        return text
    try:
        return _convert(text, form)
    except msgspec.ValidationError as error:
        raise invalid([FieldProblem(name, misfit(error).message)], "the path") from None


def moment(text: str | None, name: str = "since") -> int | None:
    """Convert a time to nanoseconds UTC; None if it is not given. `name` is that of the parameter."""
    if text is None:
        return None
    try:
        return min(max(0, parse_time(text)), FOREVER)
    except UnitError as error:
        raise invalid([FieldProblem(name, str(error))], "the query") from None


def span_of(query: PastQuery) -> Span:
    """Convert the query for past jobs to a span for commands."""
    return Span(moment(query.since), moment(query.until, "until"), moment(query.ended_since, "ended_since"))


def event_filter(query: EventsQuery) -> EventFilter:
    """Convert the query for the history to a filter for commands."""
    until = moment(query.until, "until")
    if until is not None and query.follow:
        raise invalid([FieldProblem("until", "does not go with follow; leave one of them out")], "the query")
    return EventFilter(query.user, moment(query.since), until, query.cycles)


def audit_query(query: AuditParameters) -> AuditQuery:
    """Convert the query for what people did."""
    return AuditQuery(
        user=query.user,
        type=query.type,
        job=query.job,
        project=query.project,
        since=moment(query.since),
        until=moment(query.until, "until"),
        before=None if query.cursor is None else int(query.cursor),
        limit=query.limit,
    )


def usage_keys(query: UsageQuery) -> list[UsageBy]:
    """Convert the keys of a question about usage, which were checked."""
    return [known for word in query.by.split(",") for known in USAGE_BY if known == word]


def job_query(query: ListQuery) -> JobQuery:
    """Convert the query of a listing for commands."""
    since = moment(query.since)
    states = frozenset(query.state.split(",")) if query.state is not None else frozenset[str]()
    given = (("project", query.project), ("user", query.user), ("name", query.name), ("queue", query.queue))
    if wrong := [
        FieldProblem(field, f"is not a name: {NAME_RULE}")
        for field, text in given
        if text and not is_name(text)
    ]:
        raise invalid(wrong, "the query")
    return JobQuery(
        states=states,
        project=query.project,
        user=query.user,
        name=query.name,
        since=since,
        limit=query.limit,
        cursor=query.cursor,
        members=query.members,
        starts=query.starts,
        queue=query.queue,
    )


def _convert(text: str, form: Any) -> object:
    """Convert text to a type, as text if the type allows it; refuse `null`."""
    try:
        return msgspec.convert(text, form)
    except msgspec.ValidationError:
        value = _yes_or_no(text) if form is bool else msgspec.convert(text, form, strict=False)
    if value is None:
        raise msgspec.ValidationError("null is not allowed; leave it out")
    return value


def _yes_or_no(text: str) -> bool:
    """A flag. Errors speak of true and false, not of JSON types."""
    try:
        return msgspec.convert(text, bool, strict=False)
    except msgspec.ValidationError:
        raise msgspec.ValidationError(f"{shown(text)} must be true or false") from None


def _unknown(name: str, known: list[str]) -> str:
    """Return a message about an unknown parameter, with the closest known name."""
    near = get_close_matches(name, known, n=1)
    if near:
        return f"is not a known parameter; did you mean {near[0]}?"
    return (
        f"is not a known parameter; {'known parameters: ' + ', '.join(known) if known else 'there are none'}"
    )
