"""Handles each endpoint: a handler calls a command and returns what its endpoint declares."""

from collections.abc import AsyncGenerator, AsyncIterator
from http import HTTPStatus
from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from spillover.api.http import signing_in
from spillover.api.http.bodies import read_jobs
from spillover.api.http.parameters import audit_query, event_filter, job_query, moment, span_of, usage_keys
from spillover.api.http.replies import Reply, as_json
from spillover.api.http.routing import HttpRoute, Request, serves
from spillover.api.http.streams import Stream
from spillover.api.traces import trace_of_request
from spillover.forms.jobs.reading import JobForm
from spillover.ports.blobs import NoBlob
from spillover.ports.commands import CommandError, ErrorKind, LiveMessage
from spillover.wire import endpoints
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentDetail,
    AgentNames,
    AgentsAddress,
    AgentView,
    AuditPage,
    BlobKept,
    BudgetView,
    ChangesView,
    CheckRequest,
    CheckView,
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
    FrontierRequest,
    FrontierView,
    Health,
    Ids,
    JobDetail,
    JobPage,
    JobView,
    MachineCosts,
    NewToken,
    NodeView,
    NotificationAction,
    NotificationIds,
    NotificationPage,
    NotificationTest,
    Overview,
    PastJob,
    Patch,
    PlannedView,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    PoolPause,
    PoolRef,
    PoolView,
    QueueView,
    RekeyOutcome,
    Rerun,
    ReservationRef,
    ReservationRequest,
    ReservationView,
    ResultPage,
    ResultsAsked,
    ResultsOfJobs,
    SecretRef,
    SecretRequest,
    SecretView,
    Series,
    ServerView,
    SessionInput,
    SessionRequest,
    SessionTaken,
    SessionView,
    SweepRequest,
    SweepView,
    TokenRef,
    TokenRequest,
    TokenView,
    UsageReport,
    WhatIf,
    WhatIfView,
    WhyView,
)
from spillover.wire.endpoints import NDJSON, OCTETS, SSE
from spillover.wire.parameters import (
    AgentQuery,
    AuditQuery,
    BlobQuery,
    CostQuery,
    EventsQuery,
    FilesQuery,
    ListQuery,
    LogsQuery,
    MachineCostQuery,
    NodesQuery,
    NoParameters,
    NotificationsQuery,
    OfBlob,
    OfJob,
    OfSession,
    OverviewQuery,
    PastQuery,
    SecretsQuery,
    SeriesQuery,
    UsageQuery,
    WaitQuery,
)


@serves(endpoints.SUBMIT, read_jobs)
async def submit(request: Request[NoParameters, list[JobForm]]) -> Ids:
    """Submit jobs."""
    trace, ignored = trace_of_request(request.traceparent)
    ids = await request.commands.submit(request.body, request.user, trace)
    return Ids(list(ids), request.commands.without_effect(request.body) + ignored)


@serves(endpoints.FORECAST, read_jobs)
async def forecast(request: Request[NoParameters, list[JobForm]]) -> Forecasts:
    """Forecast where and when jobs would start."""
    return await request.commands.forecast(request.body, request.user)


@serves(endpoints.CHECK)
async def check(request: Request[NoParameters, CheckRequest]) -> CheckView:
    """Check the text of a job file."""
    return await request.commands.check(request.body, request.user)


@serves(endpoints.LIST_JOBS)
async def list_jobs(request: Request[ListQuery, None]) -> JobPage:
    """List jobs."""
    return await request.commands.jobs(job_query(request.asked))


@serves(endpoints.SHOW)
async def show(request: Request[OfJob, None]) -> JobDetail:
    """Show a job."""
    return await request.commands.job(request.asked.job)


@serves(endpoints.PATCH)
async def patch(request: Request[OfJob, Patch]) -> Ids:
    """Change a job."""
    return await request.commands.change(request.asked.job, request.body, request.user)


@serves(endpoints.WHY)
async def why(request: Request[OfJob, None]) -> WhyView:
    """Explain why a job waits, runs where it runs, or ended."""
    return await request.commands.why(request.asked.job)


@serves(endpoints.WHAT_IF)
async def what_if(request: Request[OfJob, WhatIf]) -> WhatIfView:
    """Answer what would happen to a job under other conditions."""
    return await request.commands.what_if(request.asked.job, request.body)


@serves(endpoints.CHANGES)
async def changes(request: Request[OfJob, None]) -> ChangesView:
    """Find changes that would let a job start."""
    return await request.commands.changes(request.asked.job)


@serves(endpoints.WAIT)
async def wait(request: Request[WaitQuery, None]) -> JobView:
    """Wait for the end of a job."""
    return await request.commands.wait(request.asked.job, request.asked.timeout)


@serves(endpoints.RESULTS)
async def results(request: Request[OfJob, ResultsAsked]) -> ResultPage:
    """Return the results of Python calls."""
    return await request.commands.results(request.asked.job, request.body)


@serves(endpoints.RESULTS_OF_JOBS)
async def results_of_jobs(request: Request[NoParameters, ResultsOfJobs]) -> ResultPage:
    """Return the results of many Python calls."""
    return await request.commands.results_of_jobs(request.body)


@serves(endpoints.LOGS)
async def logs(request: Request[LogsQuery, None]) -> Stream:
    """Stream the output of a task."""
    asked = request.asked
    chunks = await request.commands.output(
        asked.job,
        attempt=asked.attempt,
        task=asked.task,
        stderr=asked.stream == "stderr",
        offset=asked.offset,
        follow=asked.follow,
    )
    return Stream(chunks, OCTETS)


@serves(endpoints.OPEN_SESSION)
async def open_session(request: Request[OfJob, SessionRequest]) -> SessionView:
    """Open a session with a task."""
    return await request.commands.open_session(request.asked.job, request.body, request.user)


@serves(endpoints.SESSION_OUTPUT)
async def session_output(request: Request[OfSession, None]) -> Stream:
    """Stream what comes from the task of a session."""
    chunks = await request.commands.session_output(request.asked.session, request.user)
    return Stream(chunks, OCTETS)


@serves(endpoints.SESSION_INPUT)
async def session_input(request: Request[OfSession, SessionInput]) -> SessionTaken:
    """Pass input on to the task of a session."""
    return await request.commands.session_input(request.asked.session, request.body, request.user)


@serves(endpoints.FILES)
async def files(request: Request[FilesQuery, None]) -> FilesView:
    """List the output files of a job."""
    return await request.commands.files(request.asked.job, request.asked.attempt)


@serves(endpoints.ACT)
async def act(request: Request[NoParameters, Action]) -> Ids:
    """Apply an action to jobs."""
    return await request.commands.act(request.body, request.user)


@serves(endpoints.RERUN)
async def rerun(request: Request[NoParameters, Rerun]) -> Ids:
    """Submit jobs again."""
    trace, ignored = trace_of_request(request.traceparent)
    ids = await request.commands.rerun(request.body, request.user, trace)
    return Ids(ids.jobs, ids.warnings + ignored)


@serves(endpoints.EVENTS)
async def events(request: Request[EventsQuery, None]) -> Stream:
    """Stream events."""
    asked = request.asked
    lines = _lines(request.commands.events(asked.after, asked.follow, asked.job, event_filter(asked)))
    return Stream(lines, NDJSON, keep_alive=b"\n" if asked.follow else None)


@serves(endpoints.AUDIT)
async def audit(request: Request[AuditQuery, None]) -> AuditPage:
    """List what people did."""
    return await request.commands.audit(audit_query(request.asked))


@serves(endpoints.PAST)
async def past(request: Request[PastQuery, None]) -> Stream:
    """Stream ended jobs."""
    return Stream(_lines(request.commands.past(span_of(request.asked))), NDJSON)


@serves(endpoints.CLUSTERS)
async def clusters(request: Request[NoParameters, None]) -> list[ClusterView]:
    """List clusters."""
    return await request.commands.clusters()


@serves(endpoints.ADD_CLUSTER)
async def add_cluster(request: Request[NoParameters, ClusterRequest]) -> ClusterView:
    """Add a cluster."""
    return await request.commands.add_cluster(request.body, request.user)


@serves(endpoints.ACT_ON_CLUSTERS)
async def act_on_clusters(request: Request[NoParameters, ClusterAction]) -> ClusterNames:
    """Drain, resume or remove clusters."""
    return await request.commands.act_on_clusters(request.body, request.user)


@serves(endpoints.CONFIGURE)
async def configure(request: Request[NoParameters, ConfigRequest]) -> ConfigOutcome:
    """Read and apply the configuration again."""
    return await request.commands.configure(request.body, request.user)


@serves(endpoints.AGENTS)
async def agents(request: Request[NoParameters, None]) -> list[AgentView]:
    """List agents."""
    return await request.commands.agents()


@serves(endpoints.NODES)
async def nodes(request: Request[NodesQuery, None]) -> list[NodeView]:
    """List the nodes of external clusters."""
    return await request.commands.nodes(request.asked.cluster)


@serves(endpoints.SHOW_AGENT)
async def show_agent(request: Request[AgentQuery, None]) -> AgentDetail:
    """Show an agent."""
    return await request.commands.agent(request.asked.agent)


@serves(endpoints.SERVER)
async def server(request: Request[NoParameters, None]) -> ServerView:
    """Show the server."""
    return await request.commands.server()


@serves(endpoints.RESERVATIONS)
async def reservations(request: Request[NoParameters, None]) -> list[ReservationView]:
    """List reserved capacity."""
    return await request.commands.reservations()


@serves(endpoints.RESERVE)
async def reserve(request: Request[NoParameters, ReservationRequest]) -> ReservationView:
    """Reserve nodes."""
    return await request.commands.reserve(request.body, request.user)


@serves(endpoints.UNRESERVE)
async def unreserve(request: Request[NoParameters, ReservationRef]) -> ReservationRef:
    """Cancel an advance reservation."""
    await request.commands.unreserve(request.body.name, request.user)
    return request.body


@serves(endpoints.POOLS)
async def pools(request: Request[NoParameters, None]) -> list[PoolView]:
    """List pools."""
    return await request.commands.pools()


@serves(endpoints.POOL_PLAN)
async def pool_plan(request: Request[NoParameters, None]) -> list[PlannedView]:
    """Show what pools would do now."""
    return await request.commands.pool_plan()


@serves(endpoints.PAUSE_POOL)
async def pause_pool(request: Request[NoParameters, PoolPause]) -> PoolView:
    """Pause a pool."""
    return await request.commands.pause_pool(request.body, request.user)


@serves(endpoints.RESUME_POOL)
async def resume_pool(request: Request[NoParameters, PoolRef]) -> PoolView:
    """Resume a pool."""
    return await request.commands.resume_pool(request.body.cluster, request.user)


@serves(endpoints.SWEEP_POOLS)
async def sweep_pools(request: Request[NoParameters, SweepRequest]) -> list[SweepView]:
    """Sweep pools."""
    return await request.commands.sweep_pools(request.body)


@serves(endpoints.CLOCK)
async def clock(request: Request[NoParameters, None]) -> ClockView:
    """Show the state of the server's clock."""
    return await request.commands.clock()


@serves(endpoints.ACCEPT_CLOCK)
async def accept_clock(request: Request[NoParameters, None]) -> ClockView:
    """Accept the wall clock of the server."""
    return await request.commands.accept_clock(request.user)


@serves(endpoints.OVERVIEW)
async def overview(request: Request[OverviewQuery, None]) -> Overview:
    """Show an overview of the server."""
    asked = request.asked
    return await request.commands.overview(asked.running, asked.queued, asked.agents)


@serves(endpoints.LIVE)
async def live(request: Request[NoParameters, None]) -> Stream:
    """Stream what an open page shows."""
    return Stream(_sent(request.commands.live()), SSE, keep_alive=b":\n\n")


@serves(endpoints.SERIES)
async def series(request: Request[SeriesQuery, None]) -> Series:
    """Show the last hours."""
    return await request.commands.series(moment(request.asked.since))


@serves(endpoints.COSTS)
async def costs(request: Request[CostQuery, None]) -> CostReport:
    """Sum costs."""
    return await request.commands.costs(request.asked.by, moment(request.asked.since))


@serves(endpoints.USAGE)
async def usage(request: Request[UsageQuery, None]) -> UsageReport:
    """Sum usage."""
    return await request.commands.usage(usage_keys(request.asked), moment(request.asked.since))


@serves(endpoints.MACHINE_COSTS)
async def machine_costs(request: Request[MachineCostQuery, None]) -> MachineCosts:
    """Sum costs of machines."""
    return await request.commands.machine_costs(request.asked.by, moment(request.asked.since))


@serves(endpoints.BUDGETS)
async def budgets(request: Request[NoParameters, None]) -> list[BudgetView]:
    """List budgets."""
    return await request.commands.budgets()


@serves(endpoints.QUEUES)
async def queues(request: Request[NoParameters, None]) -> list[QueueView]:
    """List queues."""
    return await request.commands.queues()


@serves(endpoints.POLICY)
async def policy(request: Request[NoParameters, None]) -> PolicyView:
    """Show the current policies."""
    return await request.commands.policy()


@serves(endpoints.SET_POLICY)
async def set_policy(request: Request[NoParameters, PolicyPatch]) -> PolicyOutcome:
    """Change the policies."""
    return await request.commands.set_policy(request.body, request.user)


@serves(endpoints.POLICY_HISTORY)
async def policy_history(request: Request[NoParameters, None]) -> list[PolicyRecord]:
    """List earlier policies."""
    return await request.commands.policy_history()


@serves(endpoints.FRONTIER)
async def frontier(request: Request[NoParameters, None]) -> FrontierView:
    """Show what other waits would have cost and saved."""
    return await request.commands.frontier()


@serves(endpoints.COMPUTE_FRONTIER)
async def compute_frontier(request: Request[NoParameters, FrontierRequest]) -> FrontierView:
    """Begin to compute the frontier."""
    return await request.commands.compute_frontier(request.body)


@serves(endpoints.PUT_BLOB)
async def put_blob(request: Request[OfBlob, AsyncIterator[bytes]]) -> Reply:
    """Store a blob."""
    fresh = await request.services.blobs.put(request.asked.digest, request.body, request.caller.project)
    return as_json(BlobKept(request.asked.digest, fresh), HTTPStatus.CREATED if fresh else HTTPStatus.OK)


@serves(endpoints.GET_BLOB)
async def get_blob(request: Request[BlobQuery, None]) -> Stream:
    """Stream a blob."""
    blobs, digest, offset = request.services.blobs, request.asked.digest, request.asked.offset
    size = (await blobs.sizes([digest], request.caller.project)).get(digest)
    if size is None:
        raise NoBlob(digest)
    return Stream(blobs.get(digest, offset), OCTETS, length=max(0, size - offset))


@serves(endpoints.MISSING_BLOBS)
async def missing_blobs(request: Request[NoParameters, Digests]) -> Digests:
    """Return the digests of blobs that the server does not have."""
    there = await request.services.blobs.sizes(request.body.digests, request.caller.project)
    return Digests([digest for digest in request.body.digests if digest not in there])


@serves(endpoints.AGENTS_ADDRESS)
async def agents_address(request: Request[NoParameters, None]) -> AgentsAddress:
    """Return the address of the agents' service."""
    if request.services.address is None:
        raise CommandError(ErrorKind.UNAVAILABLE, "no agent can join now: the server cannot write its data")
    names = [cluster.name for cluster in await request.commands.clusters() if cluster.kind == "agents"]
    joined = [name for name in names if request.caller.cluster in {None, name}]
    only = joined[0] if len(joined) == 1 else None
    return msgspec.structs.replace(request.services.address, cluster=only, clusters=joined)


@serves(endpoints.ACT_ON_AGENTS)
async def act_on_agents(request: Request[NoParameters, AgentAction]) -> AgentNames:
    """Drain, resume or forget agents."""
    return await request.commands.act_on_agents(request.body, request.user)


@serves(endpoints.CREATE_TOKEN)
async def create_token(request: Request[NoParameters, TokenRequest]) -> NewToken:
    """Create a token."""
    return await request.commands.create_token(request.body, request.user)


@serves(endpoints.TOKENS)
async def tokens(request: Request[NoParameters, None]) -> list[TokenView]:
    """List tokens."""
    return await request.commands.tokens()


@serves(endpoints.REVOKE_TOKEN)
async def revoke_token(request: Request[NoParameters, TokenRef]) -> TokenRef:
    """Revoke a token."""
    await request.commands.revoke_token(request.body.id, request.user)
    return request.body


@serves(endpoints.SET_SECRET)
async def set_secret(request: Request[NoParameters, SecretRequest]) -> SecretView:
    """Set a secret."""
    return await request.commands.set_secret(request.body, request.user)


@serves(endpoints.SECRETS)
async def secrets(request: Request[SecretsQuery, None]) -> list[SecretView]:
    """List secrets."""
    return await request.commands.secrets(request.asked.project)


@serves(endpoints.REMOVE_SECRET)
async def remove_secret(request: Request[NoParameters, SecretRef]) -> SecretRef:
    """Remove a secret."""
    return await request.commands.remove_secret(request.body, request.user)


@serves(endpoints.NOTIFICATIONS)
async def notifications(request: Request[NotificationsQuery, None]) -> NotificationPage:
    """List notifications that were not sent."""
    asked = request.asked
    return await request.commands.notifications(asked.failed, asked.limit, asked.cursor)


@serves(endpoints.ACT_ON_NOTIFICATIONS)
async def act_on_notifications(request: Request[NoParameters, NotificationAction]) -> NotificationIds:
    """Send notifications again, or drop them."""
    return await request.commands.act_on_notifications(request.body)


@serves(endpoints.TEST_NOTIFICATION)
async def test_notification(request: Request[NoParameters, NotificationTest]) -> NotificationIds:
    """Send a notification to try whether it arrives."""
    return await request.commands.test_notification(request.body, request.user)


@serves(endpoints.REKEY_SECRETS)
async def rekey_secrets(request: Request[NoParameters, None]) -> RekeyOutcome:
    """Encrypt all secrets with the first key."""
    return await request.commands.rekey_secrets()


@serves(endpoints.HEALTH)
async def health(_: Request[NoParameters, None]) -> Health:
    """Report that the process is alive."""
    return Health("ok")


@serves(endpoints.READY)
async def ready(request: Request[NoParameters, None]) -> Reply:
    """Report whether the server accepts work."""
    missing = request.commands.ready()
    if missing is None:
        return as_json(Health("ready"))
    return as_json(Health("not ready", missing), HTTPStatus.SERVICE_UNAVAILABLE)


@serves(endpoints.METRICS)
async def metrics(request: Request[NoParameters, None]) -> Reply:
    """Return metrics for Prometheus. They cover all projects."""
    if request.caller.project is not None:
        told = f"metrics cover the whole server, and this token is for project {request.caller.project!r}; use one without a project"
        raise CommandError(ErrorKind.FORBIDDEN, told)
    return Reply(await request.services.figures(), CONTENT_TYPE_LATEST.encode())


@serves(endpoints.OPENAPI)
async def openapi(request: Request[NoParameters, None]) -> Reply:
    """Return the OpenAPI document."""
    return Reply(request.services.document)


async def _lines(history: AsyncIterator[EventView] | AsyncIterator[PastJob]) -> AsyncIterator[bytes]:
    """Yield each event or job as a line of JSON."""
    encoder = msgspec.json.Encoder()
    try:
        async for one in history:
            yield encoder.encode(one) + b"\n"
    finally:
        if isinstance(history, AsyncGenerator):
            await history.aclose()


async def _sent(messages: AsyncIterator[LiveMessage]) -> AsyncIterator[bytes]:
    """Yield messages as server-sent events. A page that was cut off comes back after two seconds."""
    try:
        yield b"retry: 2000\n\n"
        async for each in messages:
            yield b"event: %s\ndata: %s\n\n" % (each.event.encode(), each.data)
    finally:
        if isinstance(messages, AsyncGenerator):
            await messages.aclose()


ROUTES: Final[tuple[HttpRoute[Any, Any], ...]] = (
    tuple(bound for bound in globals().values() if isinstance(bound, HttpRoute)) + signing_in.ROUTES
)
"""All routes: those that are bound above, and those for signing in."""
