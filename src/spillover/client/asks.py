"""Requests as values, and how to read their answers. Both clients send these and nothing else.

Most requests follow from the declaration of their endpoint. Those that need more have a function here.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

from spillover.client.errors import Refused, SpillError, Unavailable
from spillover.client.no_effect import warn_of
from spillover.client.steps import ClientStep
from spillover.model.tracing import HEADER, VARIABLE
from spillover.wire import endpoints
from spillover.wire.api import (
    AuditPage,
    BlobKept,
    ClusterAction,
    Digests,
    Forecast,
    Forecasts,
    Ids,
    JobPage,
    JobsThere,
    JobView,
    NotificationPage,
    Problem,
    ResultPage,
    ResultsAsked,
    ResultsOfJobs,
    SessionInput,
    SessionTaken,
)
from spillover.wire.endpoints import JSON, Content, Endpoint
from spillover.wire.parameters import (
    AuditQuery,
    EventsQuery,
    ListQuery,
    LogsQuery,
    NotificationsQuery,
    OfBlob,
    OfJob,
    OfSession,
    WaitQuery,
)

if TYPE_CHECKING:
    from spillover.client.blobs import Upload

T = TypeVar("T")
U = TypeVar("U")
P = TypeVar("P", bound=Struct)
B = TypeVar("B")
A = TypeVar("A")
MOST_DIGESTS: Final = 10_000
"""Most blobs in one request."""
MOST_PAGE: Final = 1000
"""Most jobs in one page."""
QUICK: Final = 30.0
"""Seconds for an answer that should come at once."""
BULK: Final = 300.0
"""Seconds for an answer about many jobs."""
KEEP_ALIVE: Final = 60.0
"""Seconds of silence after which a followed event stream is dead; the server sends something every 15."""


@dataclass(frozen=True, slots=True)
class Ask(ClientStep[T]):
    """One request."""

    method: str
    path: str
    read: Callable[[bytes], T]
    """Decodes the body of the answer."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    """Whether sending it twice has the same effect as once."""
    seconds: float | None = QUICK
    """Seconds for the answer, or for the next piece of a stream; None waits forever."""
    good: frozenset[int] = frozenset({200, 201})
    """Statuses whose body is an answer."""
    upload: "Upload | None" = None
    """A body that is read while it is sent, instead of `body`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Besides those of every request."""

    def giving(self, pick: Callable[[T], U]) -> "Ask[U]":
        """Return the same request, with a function applied to its answer."""
        read = self.read
        return cast("Ask[U]", replace(cast("Ask[Any]", self), read=lambda body: pick(read(body))))


def ask(
    endpoint: Endpoint[P, B, A],
    asked: P | None = None,
    body: B | Mapping[str, Any] | None = None,
    *,
    repeatable: bool = True,
    seconds: float | None = QUICK,
    upload: "Upload | None" = None,
) -> Ask[A]:
    """Build a request to an endpoint; the body is of the declared type, or plain values that the server checks."""
    asked = endpoint.parameters() if asked is None else asked
    path = endpoint.path
    for name in endpoint.in_path:
        path = path.replace(f"{{{name}}}", quote(_text(reference(getattr(asked, name))), safe="") or "-")
    return Ask(
        endpoint.method,
        path,
        _reader(endpoint.answer),
        _query(endpoint, asked),
        None if body is None else msgspec.json.encode(body),
        repeatable,
        seconds,
        frozenset({200, int(endpoint.status)} | ({503} if endpoint.unready is not None else set())),
        upload,
    )


def reference(thing: T) -> T:
    """Return an id or a name; raise TypeError if it is something else, such as the handle of a call."""
    if isinstance(thing, str):
        return thing
    hint = "; write `.job` behind it" if hasattr(thing, "job") else ""
    raise TypeError(f"{type(thing).__name__} is not the id or the name of a job{hint}")


def submit(docs: Sequence[Mapping[str, Any]]) -> Ask[list[str]]:
    """Submit documents; repeatable if all have a key."""
    keyed = all(isinstance(spec := doc.get("spec"), Mapping) and spec.get("key") for doc in docs)
    request = ask(endpoints.SUBMIT, body={"jobs": docs}, repeatable=keyed, seconds=BULK)
    return traced(request).giving(submitted)


def traced(request: Ask[T]) -> Ask[T]:
    """Return a request that makes jobs part of the trace of this process, if it belongs to one."""
    context = os.environ.get(VARIABLE, "").strip()
    if not context:
        return request
    # A header is one line of ASCII; the server warns of anything else that is wrong with it.
    return replace(request, headers={HEADER: ascii(context)[1:-1][:200]})


def submitted(ids: Ids) -> list[str]:
    """Return the ids of jobs that were submitted or changed, and warn of what they ask for in vain."""
    warn_of(ids.warnings)
    return ids.jobs


def forecast(docs: Sequence[Mapping[str, Any]]) -> Ask[list[Forecast]]:
    """Ask where documents would start."""
    request = ask(endpoints.FORECAST, body={"jobs": docs}, seconds=BULK)
    return request.giving(_forecast)


def _forecast(forecasts: Forecasts) -> list[Forecast]:
    """Return the forecasts of jobs, and warn of what they ask for in vain."""
    warn_of(forecasts.warnings)
    return forecasts.jobs


def page(query: ListQuery, size: int, cursor: str | None) -> Ask[JobPage]:
    """Ask for a page of jobs."""
    return ask(endpoints.LIST_JOBS, msgspec.structs.replace(query, limit=size, cursor=cursor))


def audit(query: AuditQuery, size: int, cursor: str | None) -> Ask[AuditPage]:
    """Ask for a page of what people did."""
    return ask(endpoints.AUDIT, msgspec.structs.replace(query, limit=size, cursor=cursor))


def notifications(query: NotificationsQuery, size: int, cursor: str | None) -> Ask[NotificationPage]:
    """Ask for a page of notifications that were not sent."""
    return ask(endpoints.NOTIFICATIONS, msgspec.structs.replace(query, limit=size, cursor=cursor))


def selected(state: str | Sequence[str] | None, since: str | datetime | None, **fields: Any) -> ListQuery:
    """Return a query for jobs in any of some states; the server checks them."""
    states = state if isinstance(state, str) or state is None else ",".join(state) or None
    return ListQuery(state=states, since=moment(since), **fields)


def wait(job: str, seconds: float) -> Ask[JobView]:
    """Ask for a job once it has ended, or in its state after some seconds."""
    return ask(endpoints.WAIT, WaitQuery(job, seconds), seconds=seconds + QUICK)


def results(job: str, members: str | None, seconds: float) -> Ask[ResultPage]:
    """Ask for results of a job, or of members of an array, as soon as one has ended."""
    wanted = ResultsAsked(members, timeout=round(seconds, 3))
    return ask(endpoints.RESULTS, OfJob(job), wanted, seconds=seconds + QUICK)


def results_of_jobs(jobs: Sequence[str], seconds: float) -> Ask[ResultPage]:
    """Ask for results of single jobs as soon as one of them has ended."""
    wanted = ResultsOfJobs(list(jobs), timeout=round(seconds, 3))
    return ask(endpoints.RESULTS_OF_JOBS, body=wanted, seconds=seconds + QUICK)


def act(
    what: Literal["cancel", "hold", "release", "requeue"],
    jobs: Sequence[str],
    states: str | Sequence[str] = (),
    dry_run: bool = False,
) -> Ask[list[str]]:
    """Act on jobs; a repeated requeue would requeue again."""
    named = states.split(",") if isinstance(states, str) else states
    body: dict[str, Any] = {"act": what, "jobs": [reference(job) for job in jobs]}
    if named:
        body["states"] = [each.strip().upper() for each in named]
    if dry_run:
        body["dry_run"] = True
    request = ask(endpoints.ACT, body=body, repeatable=dry_run or what != "requeue")
    return request.giving(lambda ids: ids.jobs)


def act_on_agents(
    what: Literal["drain", "resume", "forget"], agents: Sequence[str], reason: str = ""
) -> Ask[list[str]]:
    """Drain, resume or forget agents."""
    body: dict[str, Any] = {"act": what, "agents": list(agents)}
    if reason:  # servers of earlier releases do not know it
        body["reason"] = reason
    return ask(endpoints.ACT_ON_AGENTS, body=body).giving(lambda done: done.agents)


def logs(query: LogsQuery) -> Ask[bytes]:
    """Ask for the output of a job; followed output may be silent forever."""
    return ask(endpoints.LOGS, query, seconds=None if query.follow else QUICK)


def session_output(session: str) -> Ask[bytes]:
    """Ask for what comes from the task of a session; the server sends signs of life while that is nothing."""
    return ask(endpoints.SESSION_OUTPUT, OfSession(session), seconds=KEEP_ALIVE)


def session_input(session: str, after: int, data: bytes) -> Ask[SessionTaken]:
    """Send input to a session; the answer comes once the task has room for it."""
    return ask(endpoints.SESSION_INPUT, OfSession(session), SessionInput(after, data), seconds=None)


def events(query: EventsQuery) -> Ask[bytes]:
    """Ask for events."""
    return ask(endpoints.EVENTS, query, seconds=KEEP_ALIVE if query.follow else QUICK)


def act_on_clusters(
    what: Literal["drain", "resume", "remove"], clusters: Sequence[str], jobs: JobsThere = "finish"
) -> Ask[list[str]]:
    """Drain, resume or remove clusters."""
    done = ask(endpoints.ACT_ON_CLUSTERS, body=ClusterAction(what, list(clusters), jobs))
    return done.giving(lambda names: names.clusters)


def missing(digests: Sequence[str]) -> Ask[list[str]]:
    """Ask which blobs the server does not have."""
    return ask(endpoints.MISSING_BLOBS, body=Digests(list(digests))).giving(lambda found: found.digests)


def put_blob(digest: str, upload: "Upload") -> Ask[BlobKept]:
    """Upload a blob."""
    return ask(endpoints.PUT_BLOB, OfBlob(digest), upload=upload, seconds=BULK)


def ready() -> Ask[str | None]:
    """Ask why the server does not accept work; None if it does."""
    return ask(endpoints.READY).giving(
        lambda health: None if health.status == "ready" else health.message or health.status
    )


def moment(when: str | datetime | None) -> str | None:
    """Format a time for a query."""
    return when.astimezone().isoformat() if isinstance(when, datetime) else when


def answer(ask: Ask[T], status: int, body: bytes) -> T:
    """Decode an answer, or raise its error."""
    if status not in ask.good:
        raise refusal(ask, status, body)
    try:
        return ask.read(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable(
            "the program that answers there is not a Spillover server of this version", kind="internal"
        ) from None


def refusal(ask: Ask[Any], status: int, body: bytes) -> SpillError:
    """Return the error for a status and its problem document."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem(
            "", "", status, f"the program that answers there is not a Spillover server (status {status})"
        )
    kind = problem.type.rpartition(":")[2] or "unknown"
    if status == 429:  # certainly nothing was done
        return Unavailable(problem.detail, kind=kind, retry_after=problem.retry_after_s)
    if status < 500:
        return Refused(problem.detail, status=status, kind=kind, problems=problem.problems)
    note = "" if ask.repeatable or kind == "not_leader" or problem.untouched else UNKNOWN
    return Unavailable(problem.detail + note, kind=kind, retry_after=problem.retry_after_s)


UNKNOWN: Final = "; the request may have taken effect: check with `spill ls` before you repeat it (jobs with a `key` are safe to submit again)"


def _reader(content: Content[A]) -> Callable[[bytes], A]:
    """Return the decoder of an answer."""
    form: Any = content.types[0] if content.media == JSON else None
    return cast("Callable[[bytes], A]", bytes if form is None else msgspec.json.Decoder(form).decode)


def _query(endpoint: Endpoint[P, Any, Any], asked: P) -> dict[str, str]:
    """Return the query: all given values, without flags and choices that equal their default."""
    query: dict[str, str] = {}
    for name, default in zip(endpoint.in_query, asked.__struct_defaults__, strict=True):
        value = getattr(asked, name)
        if _is_said(value, default):
            query[name] = _text(value)
    return query


def _is_said(value: object, default: object) -> bool:
    """Return whether to send a value. Amounts are always sent, as another server version may have other defaults."""
    amount = isinstance(value, int | float) and not isinstance(value, bool) and value != 0
    return value is not None and (amount or value != default)


def _text(value: object) -> str:
    """Format a value for a URL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
