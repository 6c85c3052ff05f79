"""Pages of jobs: those of the state and those of the archive as one list, newest submission first."""

import base64
import binascii
import heapq
import itertools
from collections.abc import Iterator

import msgspec

from spillover.control import views
from spillover.control.loop import Loop
from spillover.core.jobs import Job
from spillover.core.state import State
from spillover.ports.archive import Archive, Query, listed
from spillover.ports.commands import CommandError, JobQuery, Kind
from spillover.wire.api import FieldProblem, JobPage, JobView

Place = tuple[int, str]
"""Number and id of a job: where a listing stands, see `listed`."""


async def list_jobs(loop: Loop, archive: Archive, query: JobQuery, within: str | None = None) -> JobPage:
    """One page; `within` is the project of somebody who may know of no other."""
    before = _decode(query.cursor) if query.cursor is not None else None
    # The state first: what is archived while the archive is asked is in both, never in neither.
    engine = await loop.read()
    unknown = engine.policies.chosen.unknown_runtime
    reasons = views.Reasons(engine, within)
    live = _first(_live(engine.state, query, before), query)
    shown: dict[str, tuple[Place, JobView]] = {
        job.id: ((job.number, job.id), views.job_view(engine, job, reasons)) for job in live
    }
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
    found: dict[str, tuple[Place, JobView]] = {
        row.job: ((row.number, row.job), views.finished_view(row, unknown)) for row in rows
    }
    found.update(shown)  # the state knows better than the archive
    ordered = sorted(found.values(), key=lambda each: listed(*each[0]))
    page = ordered[: query.limit]
    return JobPage([view for _, view in page], _encode(page[-1][0]) if len(ordered) > query.limit else None)


def _first(jobs: Iterator[Job], query: JobQuery) -> list[Job]:
    """The first of what matches; members came to the state when they were placed, so they are not in order."""
    most = query.limit + 1
    if query.members:
        return heapq.nsmallest(most, jobs, key=lambda job: listed(job.number, job.id))
    return list(itertools.islice(jobs, most))


def _live(state: State, query: JobQuery, before: Place | None) -> Iterator[Job]:
    """Jobs of the state that match, newest first."""
    for job in reversed(state.jobs.values()):
        if not query.members and "." in job.id:
            continue
        if before is not None and listed(job.number, job.id) <= listed(*before):
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
