"""Handles endpoints about jobs, and about the files that they bring and leave."""

from collections.abc import AsyncIterator
from http import HTTPStatus

from spillover.api.http.bodies import read_jobs
from spillover.api.http.parameters import job_query
from spillover.api.http.replies import Reply, as_json
from spillover.api.http.routing import Request, serves
from spillover.api.http.streams import Stream
from spillover.api.traces import trace_of_request
from spillover.forms.jobs.reading import JobForm
from spillover.ports.blobs import NoBlob
from spillover.wire import endpoints
from spillover.wire.api import (
    Action,
    BlobKept,
    ChangesView,
    CheckRequest,
    CheckView,
    Digests,
    FilesView,
    Forecasts,
    Ids,
    JobDetail,
    JobPage,
    JobView,
    Patch,
    Rerun,
    ResultPage,
    ResultsAsked,
    ResultsOfJobs,
    SessionInput,
    SessionRequest,
    SessionTaken,
    SessionView,
    WhatIf,
    WhatIfView,
    WhyView,
)
from spillover.wire.endpoints import OCTETS
from spillover.wire.parameters import (
    BlobQuery,
    FilesQuery,
    ListQuery,
    LogsQuery,
    NoParameters,
    OfBlob,
    OfJob,
    OfSession,
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
