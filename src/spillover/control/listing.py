"""Pages of jobs: those of the state and those of the archive as one list, newest submission first."""

import base64
import binascii
import itertools
from collections.abc import Iterator

import msgspec

from spillover.control import views
from spillover.control.loop import Loop
from spillover.core.state import Job, State
from spillover.ports.archive import Archive, Finished, Query
from spillover.ports.commands import CommandError, JobQuery, Kind
from spillover.wire.api import FieldProblem, JobPage

Place = tuple[int, str]
"""Number and id of a job: where a listing stands, numbers falling, ids rising."""


async def list_jobs(loop: Loop, archive: Archive, query: JobQuery) -> JobPage:
    """One page."""
    before = _decode(query.cursor) if query.cursor is not None else None
    rows = await archive.list(
        Query(
            state=query.state,
            project=query.project,
            user=query.user,
            name=query.name,
            since=query.since,
            before=before,
            limit=query.limit + 1,
            members=query.members,
        )
    )
    engine = await loop.read()
    live = list(itertools.islice(_live(engine.state, query, before), query.limit + 1))
    found: dict[str, tuple[Place, Job | Finished]] = {row.job: ((row.number, row.job), row) for row in rows}
    found.update(
        {job.id: ((job.number, job.id), job) for job in live}
    )  # the state knows better than the archive
    ordered = sorted(found.values(), key=lambda each: (-each[0][0], each[0][1]))
    page = ordered[: query.limit]
    unknown = engine.policies.chosen.unknown_runtime
    jobs = [
        views.finished_view(job, unknown) if isinstance(job, Finished) else views.job_view(engine, job)
        for _, job in page
    ]
    return JobPage(jobs, _encode(page[-1][0]) if len(ordered) > query.limit else None)


def _live(state: State, query: JobQuery, before: Place | None) -> Iterator[Job]:
    """Jobs of the state that match, newest first."""
    for job in reversed(state.jobs.values()):
        if not query.members and "." in job.id:
            continue
        if before is not None and (-job.number, job.id) <= (-before[0], before[1]):
            continue
        if query.since is not None and job.submitted < query.since:
            continue
        if query.state is not None and job.state != query.state:
            continue
        if (
            (query.project is None or job.kind.project == query.project)
            and (query.user is None or job.user == query.user)
            and (query.name is None or job.name == query.name)
        ):
            yield job


def _encode(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _decode(cursor: str) -> Place:
    try:
        place: Place = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=Place)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        message = "is not a cursor that a listing gave"
        raise CommandError(Kind.INVALID, message, [FieldProblem("cursor", message)]) from None
    return place
