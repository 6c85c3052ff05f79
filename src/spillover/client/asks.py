"""Every request as a value, and how its answer is read: both faces of the client send these and nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import quote

import msgspec

from spillover.client.errors import Refused, SpillError, Unavailable
from spillover.client.steps import Step
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentNames,
    AgentsAddress,
    AgentView,
    BlobKept,
    BudgetView,
    ClockView,
    ClusterAction,
    ClusterNames,
    ClusterRequest,
    ClusterView,
    ConfigOutcome,
    ConfigRequest,
    CostReport,
    Digests,
    FilesView,
    Forecast,
    Forecasts,
    Health,
    Ids,
    JobDetail,
    JobPage,
    JobsThere,
    JobView,
    NewToken,
    Overview,
    Patch,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    Problem,
    ResultPage,
    ResultsAsked,
    ServerView,
    TokenRef,
    TokenRequest,
    TokenView,
    WhyView,
)

if TYPE_CHECKING:
    from spillover.client.blobs import Upload

T = TypeVar("T")
JOBS: Final = "/v1/jobs"
BLOBS: Final = "/v1/blobs"
MOST_DIGESTS: Final = 10_000
"""Blobs that one request asks for."""
MOST_PAGE: Final = 1000
"""Jobs that one request lists."""
QUICK: Final = 30.0
"""Seconds for an answer that should come at once."""
BULK: Final = 300.0
"""Seconds for an answer to many jobs."""
KEEP_ALIVE: Final = 60.0
"""Seconds of silence after which a followed history is dead: the server says something every 15."""


@dataclass(frozen=True, slots=True)
class Ask(Step[T]):
    """One request."""

    method: str
    path: str
    read: Callable[[bytes], T]
    """Makes the answer from its body."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    """Whether asking again cannot do it twice."""
    seconds: float | None = QUICK
    """How long the answer, or the next piece of a stream, may take; None is for ever."""
    good: frozenset[int] = frozenset({200, 201})
    """Statuses whose body is an answer."""
    upload: "Upload | None" = None
    """A body that is read while it is sent, in place of `body`."""


def submit(docs: Sequence[Mapping[str, Any]]) -> Ask[list[str]]:
    """Submit documents."""
    keyed = all(isinstance(spec := doc.get("spec"), Mapping) and spec.get("key") for doc in docs)
    return Ask("POST", JOBS, _ids, body=_bulk(docs), repeatable=keyed, seconds=BULK)


def forecast(docs: Sequence[Mapping[str, Any]]) -> Ask[list[Forecast]]:
    """Ask where documents would start."""
    return Ask("POST", "/v1/forecast", _forecasts, body=_bulk(docs), seconds=BULK)


def page(
    state: str | None,
    project: str | None,
    user: str | None,
    name: str | None,
    since: str | datetime | None,
    members: bool,
    size: int,
    cursor: str | None,
) -> Ask[JobPage]:
    """Some of the jobs."""
    query = _query(state=state, project=project, user=user, name=name, since=since, limit=size, cursor=cursor)
    return Ask("GET", JOBS, _reader(JobPage), query | ({"members": "true"} if members else {}))


def job(ref: str) -> Ask[JobDetail]:
    """One job."""
    return Ask("GET", _job(ref), _reader(JobDetail))


def why(ref: str) -> Ask[WhyView]:
    """Why a job is where it is."""
    return Ask("GET", _job(ref, "/why"), _reader(WhyView))


def wait(ref: str, seconds: float) -> Ask[JobView]:
    """A job once it ended, or as it is after some seconds."""
    query = {"timeout": f"{seconds:.3f}"}
    return Ask("GET", _job(ref, "/wait"), _reader(JobView), query, seconds=seconds + QUICK)


def results(ref: str, members: str | None, seconds: float) -> Ask[ResultPage]:
    """Results of a job, or of members of an array, as soon as one has ended."""
    body = msgspec.json.encode(ResultsAsked(members, timeout=round(seconds, 3)))
    return Ask("POST", _job(ref, "/results"), _reader(ResultPage), body=body, seconds=seconds + QUICK)


def act(what: Literal["cancel", "hold", "release", "requeue"], refs: Sequence[str]) -> Ask[list[str]]:
    """Do something to jobs; a requeue that is repeated would requeue again."""
    body = msgspec.json.encode(Action(what, list(refs)))
    return Ask("POST", "/v1/actions", _ids, body=body, repeatable=what != "requeue")


def set_priority(ref: str, priority: int) -> Ask[list[str]]:
    """Change a priority."""
    return Ask("PATCH", _job(ref), _ids, body=msgspec.json.encode(Patch(priority)))


def logs(ref: str, *, follow: bool, stderr: bool, attempt: int | None, task: int, offset: int) -> Ask[bytes]:
    """Output of a job."""
    query = _query(
        stream="stderr" if stderr else None, attempt=attempt, task=task or None, offset=offset or None
    )
    if follow:
        query["follow"] = "true"
    return Ask("GET", _job(ref, "/logs"), bytes, query, seconds=None if follow else QUICK)


def events(*, after: int | None, follow: bool, job: str | None) -> Ask[bytes]:
    """History."""
    query = _query(after=after, job=job) | ({"follow": "true"} if follow else {})
    return Ask("GET", "/v1/events", bytes, query, seconds=KEEP_ALIVE if follow else QUICK)


def past(
    since: str | datetime | None, until: str | datetime | None, ended_since: str | datetime | None
) -> Ask[bytes]:
    """Jobs that have ended."""
    query = _query(since=since, until=until, ended_since=ended_since)
    return Ask("GET", "/v1/past", bytes, query, seconds=BULK)


def clusters() -> Ask[list[ClusterView]]:
    """All clusters."""
    return Ask("GET", "/v1/clusters", _reader(list[ClusterView]))


def add_cluster(cluster: Mapping[str, Any], *, check: bool) -> Ask[ClusterView]:
    """Use one more cluster."""
    body = msgspec.json.encode(ClusterRequest(dict(cluster), check))
    return Ask("POST", "/v1/clusters", _reader(ClusterView), body=body)


def act_on_clusters(
    act: Literal["drain", "resume", "remove"], clusters: Sequence[str], jobs: JobsThere = "finish"
) -> Ask[list[str]]:
    """Drain, resume or remove clusters."""
    body = msgspec.json.encode(ClusterAction(act, list(clusters), jobs))
    return Ask(
        "POST", "/v1/clusters/actions", lambda answer: _reader(ClusterNames)(answer).clusters, body=body
    )


def configure(*, dry_run: bool, jobs: JobsThere) -> Ask[ConfigOutcome]:
    """Read the configuration again."""
    body = msgspec.json.encode(ConfigRequest(dry_run, jobs))
    return Ask("POST", "/v1/config", _reader(ConfigOutcome), body=body)


def agents() -> Ask[list[AgentView]]:
    """All agents."""
    return Ask("GET", "/v1/agents", _reader(list[AgentView]))


def costs(
    by: Literal["project", "user", "cluster", "day", "week", "month"], since: str | datetime | None
) -> Ask[CostReport]:
    """What was spent."""
    return Ask("GET", "/v1/costs", _reader(CostReport), _query(by=by, since=since))


def budgets() -> Ask[list[BudgetView]]:
    """All budgets."""
    return Ask("GET", "/v1/budgets", _reader(list[BudgetView]))


def server() -> Ask[ServerView]:
    """The server."""
    return Ask("GET", "/v1/server", _reader(ServerView))


def overview(running: int, queued: int, agents: int) -> Ask[Overview]:
    """All of it at a glance."""
    query = _query(running=running, queued=queued, agents=agents)
    return Ask("GET", "/v1/overview", _reader(Overview), query)


def policy() -> Ask[PolicyView]:
    """What decides."""
    return Ask("GET", "/v1/policy", _reader(PolicyView))


def set_policy(line: str | None, *, dry_run: bool) -> Ask[PolicyOutcome]:
    """Change what decides."""
    body = msgspec.json.encode(PolicyPatch(line, dry_run))
    return Ask("PATCH", "/v1/policy", _reader(PolicyOutcome), body=body)


def policy_history() -> Ask[list[PolicyRecord]]:
    """What decided before."""
    return Ask("GET", "/v1/policy/history", _reader(list[PolicyRecord]))


def files(ref: str, attempt: int | None) -> Ask[FilesView]:
    """What a job brought back."""
    return Ask("GET", _job(ref, "/files"), _reader(FilesView), _query(attempt=attempt))


def missing(digests: Sequence[str]) -> Ask[list[str]]:
    """Which blobs are not there."""
    body = msgspec.json.encode(Digests(list(digests)))
    return Ask("POST", f"{BLOBS}/missing", lambda answer: _reader(Digests)(answer).digests, body=body)


def put_blob(digest: str, upload: "Upload") -> Ask[BlobKept]:
    """Keep a blob."""
    return Ask("PUT", f"{BLOBS}/{digest}", _reader(BlobKept), upload=upload, seconds=BULK)


def get_blob(digest: str, offset: int) -> Ask[bytes]:
    """Read a blob."""
    return Ask("GET", f"{BLOBS}/{digest}", bytes, _query(offset=offset or None))


def agents_address() -> Ask[AgentsAddress]:
    """Where agents find their service."""
    return Ask("GET", "/v1/agents/address", _reader(AgentsAddress))


def create_token(request: TokenRequest) -> Ask[NewToken]:
    """Make a token; one that was made twice is one too many."""
    body = msgspec.json.encode(request)
    return Ask("POST", "/v1/tokens", _reader(NewToken), body=body, repeatable=False)


def tokens() -> Ask[list[TokenView]]:
    """All tokens."""
    return Ask("GET", "/v1/tokens", _reader(list[TokenView]))


def act_on_agents(act: Literal["drain", "resume", "forget"], agents: Sequence[str]) -> Ask[list[str]]:
    """Drain, resume or forget agents."""
    body = msgspec.json.encode(AgentAction(act, list(agents)))
    return Ask("POST", "/v1/agents/actions", lambda answer: _reader(AgentNames)(answer).agents, body=body)


def revoke_token(token: str) -> Ask[str]:
    """End a token."""
    body = msgspec.json.encode(TokenRef(token))
    return Ask("POST", "/v1/tokens/revoke", lambda answer: _reader(TokenRef)(answer).id, body=body)


def clock() -> Ask[ClockView]:
    """What is believed of the clock."""
    return Ask("GET", "/v1/clock", _reader(ClockView))


def accept_clock() -> Ask[ClockView]:
    """Have the clock followed."""
    return Ask("POST", "/v1/clock/accept", _reader(ClockView), repeatable=False)


def ready() -> Ask[str | None]:
    """What keeps the server from accepting work, if anything."""
    return Ask("GET", "/v1/ready", _missing, good=frozenset({200, 503}))


def answer(ask: Ask[T], status: int, body: bytes) -> T:
    """Read an answer, or raise what it says."""
    if status not in ask.good:
        raise refusal(ask, status, body)
    try:
        return ask.read(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable(
            "what answers there is not a Spillover server of this version", kind="internal"
        ) from None


def refusal(ask: Ask[Any], status: int, body: bytes) -> SpillError:
    """The error that a status and its problem document stand for."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem("", "", status, f"what answers there is not a Spillover server (status {status})")
    kind = problem.type.rpartition(":")[2] or "unknown"
    if status == 429:  # nothing was done, which is known
        return Unavailable(problem.detail, kind=kind, retry_after=problem.retry_after_s)
    if status < 500:
        return Refused(problem.detail, status=status, kind=kind, problems=problem.problems)
    note = "" if ask.repeatable or kind == "not_leader" else UNKNOWN
    return Unavailable(problem.detail + note, kind=kind, retry_after=problem.retry_after_s)


UNKNOWN: Final = "; whether it was done is not known: look with `spill ls` before you repeat it (jobs with a `key` are safe to submit again)"


def _ids(body: bytes) -> list[str]:
    return msgspec.json.decode(body, type=Ids).jobs


def _forecasts(body: bytes) -> list[Forecast]:
    return msgspec.json.decode(body, type=Forecasts).jobs


def _missing(body: bytes) -> str | None:
    health = msgspec.json.decode(body, type=Health)
    return None if health.status == "ready" else health.message or health.status


def _reader(form: type[T]) -> Callable[[bytes], T]:
    """Decoding into a type."""
    return lambda body: msgspec.json.decode(body, type=form)


def _bulk(docs: Sequence[Mapping[str, Any]]) -> bytes:
    return msgspec.json.encode({"jobs": docs})


def _job(ref: str, below: str = "") -> str:
    return f"{JOBS}/{quote(ref, safe='') or '-'}{below}"


def _query(**values: str | int | datetime | None) -> dict[str, str]:
    """The fields that are given, as text."""
    return dict(_texts(values))


def _texts(values: Mapping[str, str | int | datetime | None]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, datetime):
            yield name, value.astimezone().isoformat()
        elif value is not None:
            yield name, str(value)
