"""The one table of routes: dispatch, decoding and the OpenAPI document are all made from it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from spillover.api.http.bodies import JOBS, Body, json_body
from spillover.api.http.queries import (
    BlobQuery,
    CostQuery,
    EventsQuery,
    FilesQuery,
    ListQuery,
    LogsQuery,
    NoQuery,
    OverviewQuery,
    PastQuery,
    WaitQuery,
    job_query,
    moment,
    span_of,
)
from spillover.api.http.replies import Reply, as_json
from spillover.api.http.streams import Stream
from spillover.forms.jobs import JobForm
from spillover.model.tokens import TokenRole
from spillover.ports.blobs import Blobs, NoBlob
from spillover.ports.callers import ADMIN, Caller
from spillover.ports.commands import CommandError, Commands, Kind
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
    EventView,
    FilesView,
    Forecasts,
    Health,
    Ids,
    JobDetail,
    JobPage,
    JobView,
    NewToken,
    Overview,
    PastJob,
    Patch,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    ResultPage,
    ResultsAsked,
    ServerView,
    TokenRef,
    TokenRequest,
    TokenView,
    WhyView,
)

Q = TypeVar("Q", bound=Struct)
B = TypeVar("B")
NDJSON: Final = "application/x-ndjson"
OCTETS: Final = "application/octet-stream"
JSON: Final = "application/json"


PEOPLE: Final = frozenset({TokenRole.SUBMIT, TokenRole.ADMIN})
ADMINS: Final = frozenset({TokenRole.ADMIN})
AGENTS: Final = frozenset({TokenRole.AGENT, TokenRole.ADMIN})


Figures: TypeAlias = Callable[[], Awaitable[bytes]]
"""What Prometheus is told."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What handlers may use."""

    commands: Commands
    figures: Figures
    document: bytes
    """The OpenAPI document."""
    blobs: Blobs
    address: AgentsAddress | None = None
    """Where agents find their service; None while there is none."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, B]):
    """One request, decoded."""

    around: Surroundings
    user: str
    job: str
    """What stands for `{job}` in the path; empty where it has none."""
    query: Q
    body: B
    digest: str = ""
    """What stands for `{digest}` in the path; empty where it has none."""
    caller: Caller = ADMIN

    @property
    def commands(self) -> Commands:
        """What carries it out, as far as the caller may."""
        return self.around.commands.of(self.caller)


Handler: TypeAlias = Callable[[Call[Q, B]], Awaitable[Reply | Stream]]


@dataclass(frozen=True, slots=True)
class Route(Generic[Q, B]):
    """One operation."""

    method: str
    path: str
    handler: Handler[Q, B]
    summary: str
    answer: Any
    """Type of a good answer, or of each line of a stream; None for bytes."""
    query: type[Q]
    body: Body[B] | None = None
    status: int = HTTPStatus.OK
    media: str = JSON
    open: bool = False
    """Whether it needs no token."""
    roles: frozenset[TokenRole] = PEOPLE
    """Whose tokens are good for it."""
    errors: tuple[int, ...] = ()
    """Statuses it may answer with a problem, beyond those that any route may."""
    unready: Any = None
    """Type of its answer of status 503, where that is not a problem."""
    streamed: bool = False
    """Whether its body is bytes, taken as they come."""


async def submit(call: Call[NoQuery, list[JobForm]]) -> Reply:
    """Take jobs."""
    ids = await call.commands.submit(call.body, call.user)
    return as_json(Ids(list(ids)), HTTPStatus.CREATED)


async def forecast(call: Call[NoQuery, list[JobForm]]) -> Reply:
    """Say where jobs would start."""
    return as_json(await call.commands.forecast(call.body, call.user))


async def list_jobs(call: Call[ListQuery, None]) -> Reply:
    """List jobs."""
    return as_json(await call.commands.jobs(job_query(call.query)))


async def show(call: Call[NoQuery, None]) -> Reply:
    """Show a job."""
    return as_json(await call.commands.job(call.job))


async def patch(call: Call[NoQuery, Patch]) -> Reply:
    """Change a job."""
    return as_json(await call.commands.set_priority(call.job, call.body.priority, call.user))


async def why(call: Call[NoQuery, None]) -> Reply:
    """Explain a job."""
    return as_json(await call.commands.why(call.job))


async def wait(call: Call[WaitQuery, None]) -> Reply:
    """Wait for a job."""
    return as_json(await call.commands.wait(call.job, call.query.timeout))


async def results(call: Call[NoQuery, ResultsAsked]) -> Reply:
    """Send what calls returned."""
    return as_json(await call.commands.results(call.job, call.body))


async def logs(call: Call[LogsQuery, None]) -> Stream:
    """Send output."""
    query = call.query
    chunks = await call.commands.output(
        call.job,
        attempt=query.attempt,
        task=query.task,
        stderr=query.stream == "stderr",
        offset=query.offset,
        follow=query.follow,
    )
    return Stream(chunks, OCTETS)


async def files(call: Call[FilesQuery, None]) -> Reply:
    """List what a job brought back."""
    return as_json(await call.commands.files(call.job, call.query.attempt))


async def act(call: Call[NoQuery, Action]) -> Reply:
    """Do something to jobs."""
    return as_json(await call.commands.act(call.body, call.user))


async def events(call: Call[EventsQuery, None]) -> Stream:
    """Send history."""
    query = call.query
    lines = _lines(call.commands.events(query.after, query.follow, query.job))
    return Stream(lines, NDJSON, keep_alive=b"\n" if query.follow else None)


async def past(call: Call[PastQuery, None]) -> Stream:
    """Send jobs that have ended."""
    return Stream(_lines(call.commands.past(span_of(call.query))), NDJSON)


async def clusters(call: Call[NoQuery, None]) -> Reply:
    """List clusters."""
    return as_json(await call.commands.clusters())


async def add_cluster(call: Call[NoQuery, ClusterRequest]) -> Reply:
    """Use one more cluster."""
    return as_json(await call.commands.add_cluster(call.body, call.user), HTTPStatus.CREATED)


async def act_on_clusters(call: Call[NoQuery, ClusterAction]) -> Reply:
    """Drain, resume or remove clusters."""
    return as_json(await call.commands.act_on_clusters(call.body, call.user))


async def configure(call: Call[NoQuery, ConfigRequest]) -> Reply:
    """Read the configuration again."""
    return as_json(await call.commands.configure(call.body, call.user))


async def agents(call: Call[NoQuery, None]) -> Reply:
    """List agents."""
    return as_json(await call.commands.agents())


async def server(call: Call[NoQuery, None]) -> Reply:
    """Show the server."""
    return as_json(await call.commands.server())


async def clock(call: Call[NoQuery, None]) -> Reply:
    """Show what is believed of the clock."""
    return as_json(await call.commands.clock())


async def accept_clock(call: Call[NoQuery, None]) -> Reply:
    """Follow the clock."""
    return as_json(await call.commands.accept_clock(call.user))


async def overview(call: Call[OverviewQuery, None]) -> Reply:
    """Show it all at a glance."""
    query = call.query
    return as_json(await call.commands.overview(query.running, query.queued, query.agents))


async def costs(call: Call[CostQuery, None]) -> Reply:
    """Sum costs."""
    return as_json(await call.commands.costs(call.query.by, moment(call.query.since)))


async def budgets(call: Call[NoQuery, None]) -> Reply:
    """List budgets."""
    return as_json(await call.commands.budgets())


async def policy(call: Call[NoQuery, None]) -> Reply:
    """Show what decides."""
    return as_json(await call.commands.policy())


async def set_policy(call: Call[NoQuery, PolicyPatch]) -> Reply:
    """Change what decides."""
    return as_json(await call.commands.set_policy(call.body, call.user))


async def policy_history(call: Call[NoQuery, None]) -> Reply:
    """List what decided before."""
    return as_json(await call.commands.policy_history())


async def put_blob(call: Call[NoQuery, AsyncIterator[bytes]]) -> Reply:
    """Keep a blob."""
    fresh = await call.around.blobs.put(call.digest, call.body, call.caller.project)
    return as_json(BlobKept(call.digest, fresh), HTTPStatus.CREATED if fresh else HTTPStatus.OK)


async def get_blob(call: Call[BlobQuery, None]) -> Stream:
    """Send a blob."""
    blobs, digest, offset = call.around.blobs, call.digest, call.query.offset
    size = (await blobs.sizes([digest], call.caller.project)).get(digest)
    if size is None:
        raise NoBlob(digest)
    return Stream(blobs.get(digest, offset), OCTETS, length=max(0, size - offset))


async def missing_blobs(call: Call[NoQuery, Digests]) -> Reply:
    """Say which blobs are not there."""
    there = await call.around.blobs.sizes(call.body.digests, call.caller.project)
    return as_json(Digests([digest for digest in call.body.digests if digest not in there]))


async def agents_address(call: Call[NoQuery, None]) -> Reply:
    """Say where agents find their service."""
    if call.around.address is None:
        raise CommandError(Kind.UNAVAILABLE, "no agents can join now: the server's data cannot be written")
    names = [cluster.name for cluster in await call.commands.clusters() if cluster.kind == "agents"]
    joined = [name for name in names if call.caller.cluster in {None, name}]
    only = joined[0] if len(joined) == 1 else None
    return as_json(msgspec.structs.replace(call.around.address, cluster=only, clusters=joined))


async def act_on_agents(call: Call[NoQuery, AgentAction]) -> Reply:
    """Drain, resume or forget agents."""
    return as_json(await call.commands.act_on_agents(call.body, call.user))


async def create_token(call: Call[NoQuery, TokenRequest]) -> Reply:
    """Make a token."""
    return as_json(await call.commands.create_token(call.body, call.user), HTTPStatus.CREATED)


async def tokens(call: Call[NoQuery, None]) -> Reply:
    """List tokens."""
    return as_json(await call.commands.tokens())


async def revoke_token(call: Call[NoQuery, TokenRef]) -> Reply:
    """End a token."""
    await call.commands.revoke_token(call.body.id, call.user)
    return as_json(call.body)


async def health(_: Call[NoQuery, None]) -> Reply:
    """Say that the process lives."""
    return as_json(Health("ok"))


async def ready(call: Call[NoQuery, None]) -> Reply:
    """Say whether work is accepted."""
    missing = call.commands.ready()
    if missing is None:
        return as_json(Health("ready"))
    return as_json(Health("not ready", missing), HTTPStatus.SERVICE_UNAVAILABLE)


async def metrics(call: Call[NoQuery, None]) -> Reply:
    """Show figures for Prometheus, which are of all projects."""
    if call.caller.project is not None:
        told = f"figures are of the whole server, and this token is for project {call.caller.project!r}; use one without a project"
        raise CommandError(Kind.FORBIDDEN, told)
    return Reply(await call.around.figures(), CONTENT_TYPE_LATEST.encode())


async def openapi(call: Call[NoQuery, None]) -> Reply:
    """Describe this API."""
    return Reply(call.around.document)


async def _lines(history: AsyncIterator[EventView] | AsyncIterator[PastJob]) -> AsyncIterator[bytes]:
    """Each event or job as a line of JSON."""
    encoder = msgspec.json.Encoder()
    try:
        async for one in history:
            yield encoder.encode(one) + b"\n"
    finally:
        if isinstance(history, AsyncGenerator):
            await history.aclose()


_JOB: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
_BUSY: Final = (HTTPStatus.SERVICE_UNAVAILABLE,)
_BODY: Final = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)
_SUBMITTED: Final = (*_JOB, *_BODY, HTTPStatus.TOO_MANY_REQUESTS, *_BUSY)

ROUTES: Final[tuple[Route[Any, Any], ...]] = (
    Route("POST", "/v1/jobs", submit, "Submit one job or many, all or none", Ids, NoQuery, JOBS, 201, errors=_SUBMITTED),
    Route("GET", "/v1/jobs", list_jobs, "List jobs, newest first", JobPage, ListQuery, errors=_BUSY),
    Route("POST", "/v1/forecast", forecast, "Say where jobs would start, without submitting them", Forecasts, NoQuery, JOBS, errors=_SUBMITTED),
    Route("GET", "/v1/jobs/{job}", show, "Show a job", JobDetail, NoQuery, errors=(*_JOB, *_BUSY)),
    Route("PATCH", "/v1/jobs/{job}", patch, "Change a job that has not been placed", Ids, NoQuery, json_body(Patch), errors=_SUBMITTED),
    Route("GET", "/v1/jobs/{job}/why", why, "Say why a job is where it is", WhyView, NoQuery, errors=(*_JOB, *_BUSY)),
    Route("GET", "/v1/jobs/{job}/wait", wait, "Wait for a job to end", JobView, WaitQuery, errors=(*_JOB, *_BUSY)),
    Route("POST", "/v1/jobs/{job}/results", results, "Read what Python calls returned, of many members of an array at once", ResultPage, NoQuery, json_body(ResultsAsked), errors=_SUBMITTED),
    Route("GET", "/v1/jobs/{job}/logs", logs, "Read what a job wrote", None, LogsQuery, media=OCTETS, errors=(*_JOB, *_BUSY)),
    Route("GET", "/v1/jobs/{job}/files", files, "List the files that a job brought back", FilesView, FilesQuery, errors=(*_JOB, *_BUSY)),
    Route("POST", "/v1/actions", act, "Cancel, hold, release or requeue jobs, all or none", Ids, NoQuery, json_body(Action), errors=_SUBMITTED),
    Route("GET", "/v1/events", events, "Read history as lines of JSON", EventView, EventsQuery, media=NDJSON, errors=(*_JOB, *_BUSY)),
    Route("GET", "/v1/past", past, "Read jobs that have ended as lines of JSON, with all that a simulation needs", PastJob, PastQuery, media=NDJSON, errors=_BUSY),
    Route("GET", "/v1/clusters", clusters, "List clusters", list[ClusterView], NoQuery, errors=_BUSY),
    Route("POST", "/v1/clusters", add_cluster, "Add a cluster, to be used from now on", ClusterView, NoQuery, json_body(ClusterRequest), 201, roles=ADMINS, errors=(HTTPStatus.CONFLICT, *_BODY, *_BUSY)),
    Route("POST", "/v1/clusters/actions", act_on_clusters, "Drain, resume or remove clusters", ClusterNames, NoQuery, json_body(ClusterAction), roles=ADMINS, errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *_BODY, *_BUSY)),
    Route("POST", "/v1/config", configure, "Read the configuration again and do as it says, or say what that would change", ConfigOutcome, NoQuery, json_body(ConfigRequest), roles=ADMINS, errors=(HTTPStatus.CONFLICT, *_BODY, *_BUSY)),
    Route("GET", "/v1/agents", agents, "List agents", list[AgentView], NoQuery, errors=_BUSY),
    Route("GET", "/v1/server", server, "Show the server", ServerView, NoQuery, errors=_BUSY),
    Route("GET", "/v1/clock", clock, "Show what the server believes of the clock of its machine", ClockView, NoQuery, errors=_BUSY),
    Route("POST", "/v1/clock/accept", accept_clock, "Follow the clock of the machine although it jumped too far to be believed", ClockView, NoQuery, roles=ADMINS, errors=(HTTPStatus.CONFLICT, *_BUSY)),
    Route("GET", "/v1/overview", overview, "Show clusters, agents, what runs and the head of the queue", Overview, OverviewQuery, errors=_BUSY),
    Route("GET", "/v1/costs", costs, "Say what was spent, by project, user, cluster, day, week or month", CostReport, CostQuery, errors=_BUSY),
    Route("GET", "/v1/budgets", budgets, "List budgets in the period that is now", list[BudgetView], NoQuery, errors=_BUSY),
    Route("GET", "/v1/policy", policy, "Show which policies decide", PolicyView, NoQuery, errors=_BUSY),
    Route("PATCH", "/v1/policy", set_policy, "Decide by other policies from now on", PolicyOutcome, NoQuery, json_body(PolicyPatch), roles=ADMINS, errors=(*_BODY, *_BUSY)),
    Route("GET", "/v1/policy/history", policy_history, "List changes of the policies, newest first", list[PolicyRecord], NoQuery, errors=_BUSY),
    Route("PUT", "/v1/blobs/{digest}", put_blob, "Keep bytes under their SHA-256", BlobKept, NoQuery, status=201, streamed=True, errors=(HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, *_BUSY)),
    Route("GET", "/v1/blobs/{digest}", get_blob, "Read the bytes of a SHA-256", None, BlobQuery, media=OCTETS, errors=(HTTPStatus.NOT_FOUND, *_BUSY)),
    Route("POST", "/v1/blobs/missing", missing_blobs, "Say which blobs are not there", Digests, NoQuery, json_body(Digests), errors=(*_BODY, *_BUSY)),
    Route("GET", "/v1/agents/address", agents_address, "Say where agents find their service", AgentsAddress, NoQuery, roles=AGENTS, errors=_BUSY),
    Route("POST", "/v1/agents/actions", act_on_agents, "Drain, resume or forget agents", AgentNames, NoQuery, json_body(AgentAction), roles=ADMINS, errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *_BODY, *_BUSY)),
    Route("POST", "/v1/tokens", create_token, "Make a token", NewToken, NoQuery, json_body(TokenRequest), 201, roles=ADMINS, errors=(HTTPStatus.CONFLICT, *_BODY, *_BUSY)),
    Route("GET", "/v1/tokens", tokens, "List tokens, newest first, without their secrets", list[TokenView], NoQuery, roles=ADMINS, errors=_BUSY),
    Route("POST", "/v1/tokens/revoke", revoke_token, "Let nobody in with a token any more", TokenRef, NoQuery, json_body(TokenRef), roles=ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BODY, *_BUSY)),
    Route("GET", "/v1/health", health, "Whether the process lives", Health, NoQuery, open=True),
    Route("GET", "/v1/ready", ready, "Whether the server accepts work", Health, NoQuery, open=True, unready=Health),
    Route("GET", "/metrics", metrics, "Figures for Prometheus", None, NoQuery, media="text/plain"),
    Route("GET", "/v1/openapi.json", openapi, "This description", dict[str, Any], NoQuery),
)  # fmt: skip
