"""Who answers each endpoint: a handler calls a command and returns what its endpoint declares."""

from collections.abc import AsyncGenerator, AsyncIterator
from http import HTTPStatus
from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from spillover.api.http.bodies import read_jobs
from spillover.api.http.parameters import job_query, moment, span_of
from spillover.api.http.replies import Reply, as_json
from spillover.api.http.routing import Call, Route, serves
from spillover.api.http.streams import Stream
from spillover.forms.jobs import JobForm
from spillover.ports.blobs import NoBlob
from spillover.ports.commands import CommandError, Kind
from spillover.wire import endpoints
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentNames,
    AgentsAddress,
    AgentView,
    BlobKept,
    BudgetView,
    ClockView,
    ClusterView,
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
from spillover.wire.endpoints import NDJSON, OCTETS
from spillover.wire.parameters import (
    BlobQuery,
    CostQuery,
    EventsQuery,
    FilesQuery,
    ListQuery,
    LogsQuery,
    NoParameters,
    OfBlob,
    OfJob,
    OverviewQuery,
    PastQuery,
    WaitQuery,
)


@serves(endpoints.SUBMIT, read_jobs)
async def submit(call: Call[NoParameters, list[JobForm]]) -> Ids:
    """Take jobs."""
    ids = await call.commands.submit(call.body, call.user)
    return Ids(list(ids))


@serves(endpoints.FORECAST, read_jobs)
async def forecast(call: Call[NoParameters, list[JobForm]]) -> Forecasts:
    """Say where jobs would start."""
    return await call.commands.forecast(call.body, call.user)


@serves(endpoints.LIST_JOBS)
async def list_jobs(call: Call[ListQuery, None]) -> JobPage:
    """List jobs."""
    return await call.commands.jobs(job_query(call.asked))


@serves(endpoints.SHOW)
async def show(call: Call[OfJob, None]) -> JobDetail:
    """Show a job."""
    return await call.commands.job(call.asked.job)


@serves(endpoints.PATCH)
async def patch(call: Call[OfJob, Patch]) -> Ids:
    """Change a job."""
    return await call.commands.set_priority(call.asked.job, call.body.priority, call.user)


@serves(endpoints.WHY)
async def why(call: Call[OfJob, None]) -> WhyView:
    """Explain a job."""
    return await call.commands.why(call.asked.job)


@serves(endpoints.WAIT)
async def wait(call: Call[WaitQuery, None]) -> JobView:
    """Wait for a job."""
    return await call.commands.wait(call.asked.job, call.asked.timeout)


@serves(endpoints.RESULTS)
async def results(call: Call[OfJob, ResultsAsked]) -> ResultPage:
    """Send what calls returned."""
    return await call.commands.results(call.asked.job, call.body)


@serves(endpoints.LOGS)
async def logs(call: Call[LogsQuery, None]) -> Stream:
    """Send output."""
    asked = call.asked
    chunks = await call.commands.output(
        asked.job,
        attempt=asked.attempt,
        task=asked.task,
        stderr=asked.stream == "stderr",
        offset=asked.offset,
        follow=asked.follow,
    )
    return Stream(chunks, OCTETS)


@serves(endpoints.FILES)
async def files(call: Call[FilesQuery, None]) -> FilesView:
    """List what a job brought back."""
    return await call.commands.files(call.asked.job, call.asked.attempt)


@serves(endpoints.ACT)
async def act(call: Call[NoParameters, Action]) -> Ids:
    """Do something to jobs."""
    return await call.commands.act(call.body, call.user)


@serves(endpoints.EVENTS)
async def events(call: Call[EventsQuery, None]) -> Stream:
    """Send history."""
    asked = call.asked
    lines = _lines(call.commands.events(asked.after, asked.follow, asked.job))
    return Stream(lines, NDJSON, keep_alive=b"\n" if asked.follow else None)


@serves(endpoints.PAST)
async def past(call: Call[PastQuery, None]) -> Stream:
    """Send jobs that have ended."""
    return Stream(_lines(call.commands.past(span_of(call.asked))), NDJSON)


@serves(endpoints.CLUSTERS)
async def clusters(call: Call[NoParameters, None]) -> list[ClusterView]:
    """List clusters."""
    return await call.commands.clusters()


@serves(endpoints.AGENTS)
async def agents(call: Call[NoParameters, None]) -> list[AgentView]:
    """List agents."""
    return await call.commands.agents()


@serves(endpoints.SERVER)
async def server(call: Call[NoParameters, None]) -> ServerView:
    """Show the server."""
    return await call.commands.server()


@serves(endpoints.CLOCK)
async def clock(call: Call[NoParameters, None]) -> ClockView:
    """Show what is believed of the clock."""
    return await call.commands.clock()


@serves(endpoints.ACCEPT_CLOCK)
async def accept_clock(call: Call[NoParameters, None]) -> ClockView:
    """Follow the clock."""
    return await call.commands.accept_clock(call.user)


@serves(endpoints.OVERVIEW)
async def overview(call: Call[OverviewQuery, None]) -> Overview:
    """Show it all at a glance."""
    asked = call.asked
    return await call.commands.overview(asked.running, asked.queued, asked.agents)


@serves(endpoints.COSTS)
async def costs(call: Call[CostQuery, None]) -> CostReport:
    """Sum costs."""
    return await call.commands.costs(call.asked.by, moment(call.asked.since))


@serves(endpoints.BUDGETS)
async def budgets(call: Call[NoParameters, None]) -> list[BudgetView]:
    """List budgets."""
    return await call.commands.budgets()


@serves(endpoints.POLICY)
async def policy(call: Call[NoParameters, None]) -> PolicyView:
    """Show what decides."""
    return await call.commands.policy()


@serves(endpoints.SET_POLICY)
async def set_policy(call: Call[NoParameters, PolicyPatch]) -> PolicyOutcome:
    """Change what decides."""
    return await call.commands.set_policy(call.body, call.user)


@serves(endpoints.POLICY_HISTORY)
async def policy_history(call: Call[NoParameters, None]) -> list[PolicyRecord]:
    """List what decided before."""
    return await call.commands.policy_history()


@serves(endpoints.PUT_BLOB)
async def put_blob(call: Call[OfBlob, AsyncIterator[bytes]]) -> Reply:
    """Keep a blob."""
    fresh = await call.around.blobs.put(call.asked.digest, call.body, call.caller.project)
    return as_json(BlobKept(call.asked.digest, fresh), HTTPStatus.CREATED if fresh else HTTPStatus.OK)


@serves(endpoints.GET_BLOB)
async def get_blob(call: Call[BlobQuery, None]) -> Stream:
    """Send a blob."""
    blobs, digest, offset = call.around.blobs, call.asked.digest, call.asked.offset
    size = (await blobs.sizes([digest], call.caller.project)).get(digest)
    if size is None:
        raise NoBlob(digest)
    return Stream(blobs.get(digest, offset), OCTETS, length=max(0, size - offset))


@serves(endpoints.MISSING_BLOBS)
async def missing_blobs(call: Call[NoParameters, Digests]) -> Digests:
    """Say which blobs are not there."""
    there = await call.around.blobs.sizes(call.body.digests, call.caller.project)
    return Digests([digest for digest in call.body.digests if digest not in there])


@serves(endpoints.AGENTS_ADDRESS)
async def agents_address(call: Call[NoParameters, None]) -> AgentsAddress:
    """Say where agents find their service."""
    if call.around.address is None:
        raise CommandError(Kind.UNAVAILABLE, "no agents can join now: the server's data cannot be written")
    names = [cluster.name for cluster in await call.commands.clusters() if cluster.kind == "agents"]
    joined = [name for name in names if call.caller.cluster in {None, name}]
    only = joined[0] if len(joined) == 1 else None
    return msgspec.structs.replace(call.around.address, cluster=only, clusters=joined)


@serves(endpoints.ACT_ON_AGENTS)
async def act_on_agents(call: Call[NoParameters, AgentAction]) -> AgentNames:
    """Drain, resume or forget agents."""
    return await call.commands.act_on_agents(call.body, call.user)


@serves(endpoints.CREATE_TOKEN)
async def create_token(call: Call[NoParameters, TokenRequest]) -> NewToken:
    """Make a token."""
    return await call.commands.create_token(call.body, call.user)


@serves(endpoints.TOKENS)
async def tokens(call: Call[NoParameters, None]) -> list[TokenView]:
    """List tokens."""
    return await call.commands.tokens()


@serves(endpoints.REVOKE_TOKEN)
async def revoke_token(call: Call[NoParameters, TokenRef]) -> TokenRef:
    """End a token."""
    await call.commands.revoke_token(call.body.id, call.user)
    return call.body


@serves(endpoints.HEALTH)
async def health(_: Call[NoParameters, None]) -> Health:
    """Say that the process lives."""
    return Health("ok")


@serves(endpoints.READY)
async def ready(call: Call[NoParameters, None]) -> Reply:
    """Say whether work is accepted."""
    missing = call.commands.ready()
    if missing is None:
        return as_json(Health("ready"))
    return as_json(Health("not ready", missing), HTTPStatus.SERVICE_UNAVAILABLE)


@serves(endpoints.METRICS)
async def metrics(call: Call[NoParameters, None]) -> Reply:
    """Show figures for Prometheus, which are of all projects."""
    if call.caller.project is not None:
        told = f"figures are of the whole server, and this token is for project {call.caller.project!r}; use one without a project"
        raise CommandError(Kind.FORBIDDEN, told)
    return Reply(await call.around.figures(), CONTENT_TYPE_LATEST.encode())


@serves(endpoints.OPENAPI)
async def openapi(call: Call[NoParameters, None]) -> Reply:
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


ROUTES: Final[tuple[Route[Any, Any], ...]] = tuple(
    bound for bound in globals().values() if isinstance(bound, Route)
)
"""All that are bound above."""
