"""Pages of jobs: those of the state and those of the archive as one list, newest submission first."""

import base64
import binascii
import bisect
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from spillover.control import views
from spillover.control.loop import Loop
from spillover.control.overview import placed_jobs
from spillover.control.slices import SLICE, slices
from spillover.core.events import JobState
from spillover.core.jobs import Job
from spillover.core.state import State
from spillover.ports.archive import Archive, Query, listed
from spillover.ports.commands import CommandError, ErrorKind, JobQuery
from spillover.wire.api import FieldProblem, JobPage, JobView

Place = tuple[int, str]
"""Number and id of a job: where a listing stands, see `listed`."""
FRESH: Final = 2_000
"""Newest jobs that are looked at first: as a rule they fill a page."""
VIEWS: Final = 200
"""Jobs that are put into words before others get their turn."""
_ON_NODES: Final = frozenset({JobState.PLACED, JobState.RUNNING})


async def list_jobs(loop: Loop, archive: Archive, query: JobQuery, within: str | None = None) -> JobPage:
    """One page; `within` is the project of somebody who may know of no other."""
    before = _decode(query.cursor) if query.cursor is not None else None
    # The state first: what is archived while the archive is asked is in both, never in neither.
    shown = await _shown(loop, query, before, within)
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
    unknown = loop.engine.policies.chosen.unknown_runtime
    found: dict[str, tuple[Place, JobView]] = {}
    async for some in slices(rows, VIEWS):
        found.update(
            (row.job, ((row.number, row.job), views.finished_view(row, unknown)))
            for row in some
            if row.job not in shown  # the state knows better than the archive
        )
    found.update(shown)
    ordered = sorted(found.values(), key=lambda each: listed(*each[0]))
    page = ordered[: query.limit]
    return JobPage([view for _, view in page], _encode(page[-1][0]) if len(ordered) > query.limit else None)


async def _shown(
    loop: Loop, query: JobQuery, before: Place | None, within: str | None
) -> dict[str, tuple[Place, JobView]]:
    """The first jobs of the state that match, up to one more than a page has."""
    shown: dict[str, tuple[Place, JobView]] = {}
    async for jobs in _candidates(loop, query, before):
        async for some in slices(jobs, VIEWS):
            # Others had their turn since a job was found, so it may have changed or be gone; what it is now is durable.
            engine = await loop.read()
            reasons = views.Reasons(engine, within)
            now = [engine.state.jobs.get(each.id) for each in some]
            for job in _matching([each for each in now if each is not None], query, before):
                shown[job.id] = ((job.number, job.id), views.job_view(engine, job, reasons))
                if len(shown) > query.limit:
                    return shown
    return shown


async def _candidates(loop: Loop, query: JobQuery, before: Place | None) -> AsyncIterator[Sequence[Job]]:
    """Jobs that match as they are seen, in the order of the list, for as long as more are asked for."""
    state = (await loop.read()).state
    if (few := _few(state, query)) is not None:
        yield sorted(_matching(few, query, before), key=_order)
    elif query.members:
        while len(page := await _page_with_members(state, query, before)) > query.limit:
            yield page
            before = page[-1].number, page[-1].id
        yield page
    else:
        if before is None:
            fresh = list(itertools.islice(reversed(state.jobs.values()), FRESH))
            yield _matching(fresh, query, before)
            before = next(((job.number, job.id) for job in reversed(fresh) if "." not in job.id), None)
        jobs = list(reversed(state.jobs.values()))
        async for some in slices(jobs, first=0 if before is None else _index_after(jobs, before)):
            if matching := _matching(some, query, before):
                yield matching


def _few(state: State, query: JobQuery) -> list[Job] | None:
    """The only jobs of the state that can match, where an index knows them; None if all must be looked at."""
    if query.name is not None and not query.members:
        named = list(itertools.islice(state.called(query.name, query.project), FRESH + 1))
        if len(named) <= FRESH:  # else one of the newest jobs is as likely of that name
            return [state.jobs[each] for each in named]
    if query.state in _ON_NODES:
        placed = sum([len(node.holding) + len(node.ahead) for node in state.nodes.values()])
        if placed + len(state.members) <= SLICE:
            return [*placed_jobs(state), *(state.jobs[array] for array in state.members)]
    return None


async def _page_with_members(state: State, query: JobQuery, before: Place | None) -> list[Job]:
    """The first jobs that match, up to one more than a page has; members stand where they were placed, not in order."""
    found: list[Job] = []
    least = 0  # what has a lower number is not on this page
    async for some in slices(list(state.jobs.values())):
        matching = _matching([job for job in some if job.number >= least], query, before)
        found = sorted([*found, *matching], key=_order)[: query.limit + 1]
        if len(found) > query.limit:
            least = found[-1].number
    return found


def _index_after(jobs: Sequence[Job], before: Place) -> int:
    """Where to go on after a place, in jobs by falling number; members, which stand anywhere, are stepped over."""

    def number(at: int) -> int:
        while at < len(jobs) and "." in jobs[at].id:
            at += 1
        return -jobs[at].number if at < len(jobs) else 0

    return bisect.bisect_left(range(len(jobs)), -before[0], key=number)


def _matching(jobs: Sequence[Job], query: JobQuery, before: Place | None) -> list[Job]:
    """Those that match, in the same order; one condition after the other, as a comprehension each is the fastest."""
    found = list(jobs)
    if query.user is not None:
        found = [job for job in found if job.user == query.user]
    if query.name is not None:
        found = [job for job in found if job.name == query.name]
    if query.project is not None:
        found = [job for job in found if job.kind.project == query.project]
    if query.state is not None:
        found = [job for job in found if job.state == query.state]
    if not query.members:
        found = [job for job in found if "." not in job.id]
    if query.since is not None:
        found = [job for job in found if job.submitted >= query.since]
    if before is not None:
        place = listed(*before)
        found = [job for job in found if listed(job.number, job.id) > place]
    return found


def _order(job: Job) -> tuple[int, int, str]:
    return listed(job.number, job.id)


def _encode(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _decode(cursor: str) -> Place:
    try:
        place: Place = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=Place)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        message = "is not a cursor that a listing gave"
        raise CommandError(ErrorKind.INVALID, message, [FieldProblem("cursor", message)]) from None
    return place
