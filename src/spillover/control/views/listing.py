"""Lists jobs of the state and of the archive as one list, newest submission first."""

import base64
import binascii
import bisect
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import msgspec

from spillover.control.live.loop import Loop
from spillover.control.live.slices import SLICE, slices
from spillover.control.views import jobs as views
from spillover.control.views.overview import placed_jobs
from spillover.core.events import JobState
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.core.transitions import TERMINAL
from spillover.deciding.expected import StartRange
from spillover.model.ids import JobId
from spillover.model.reasons import Reason
from spillover.ports.archive import Archive, Finished, Query, listed
from spillover.ports.commands import CommandError, ErrorKind, JobQuery
from spillover.wire.api import FieldProblem, JobPage, JobView

Place = tuple[int, str]
"""Number and id of a job, as a position in the list; see `listed`."""
FRESH: Final = 2_000
"""Newest jobs to check first, as they usually fill a page."""
VIEWS: Final = 200
"""Jobs to convert before other work runs."""
_WAITING: Final = frozenset({JobState.QUEUED, JobState.HELD})
_ON_NODES: Final = frozenset({JobState.PLACED, JobState.RUNNING})


async def list_jobs(
    loop: Loop,
    archive: Archive,
    query: JobQuery,
    within: str | None = None,
    starts: Mapping[JobId, StartRange] | None = None,
    place_reason: Callable[[Job], Reason | None] | None = None,
) -> JobPage:
    """Return one page; `within` is the only project that the caller may see, `starts` are expected starts, if known.

    `place_reason` returns why nothing is known about a placed job, or why it does not start.
    """
    before = _decode(query.cursor) if query.cursor is not None else None
    # The state first. A job that is archived meanwhile is then in both, never in neither.
    shown = await _shown(loop, query, before, within, place_reason)
    rows = await _archived(archive, query, before)
    unknown = loop.engine.policies.chosen.unknown_runtime
    found: dict[str, tuple[Place, JobView]] = {}
    async for some in slices(rows, VIEWS):
        found.update(
            (row.job, ((row.number, row.job), views.finished_view(row, unknown)))
            for row in some
            if row.job not in shown  # the state is more current than the archive
        )
    found.update(shown)
    ordered = sorted(found.values(), key=lambda each: listed(*each[0]))
    page = ordered[: query.limit]
    shown_jobs = [view for _, view in page]
    if starts:
        shown_jobs = [_with_start(view, starts) for view in shown_jobs]
    return JobPage(shown_jobs, _encode(page[-1][0]) if len(ordered) > query.limit else None)


async def _archived(archive: Archive, query: JobQuery, before: Place | None) -> list[Finished]:
    """Return the first matching jobs of the archive, at most one more than a page.

    One search for each state finds them by an index, however many jobs are in other states. The archive has ended jobs
    only.
    """
    wanted: Sequence[str | None] = sorted(query.states & TERMINAL) if query.states else [None]
    found: list[Finished] = []
    for state in wanted:
        found += await archive.list(
            Query(
                state=state,
                project=query.project,
                user=query.user,
                name=query.name,
                since=query.since,
                before=before,
                limit=query.limit + 1,
                members=query.members,
                queue=query.queue,
            )
        )
    return found


def _with_start(view: JobView, starts: Mapping[JobId, StartRange]) -> JobView:
    """Add the expected start to a job that waits."""
    found = starts.get(JobId(view.id)) if view.state in _WAITING else None
    return view if found is None else msgspec.structs.replace(view, expected_start=views.start_view(found))


async def _shown(
    loop: Loop,
    query: JobQuery,
    before: Place | None,
    within: str | None,
    place_reason: Callable[[Job], Reason | None] | None,
) -> dict[str, tuple[Place, JobView]]:
    """Return the first matching jobs of the state, at most one more than a page."""
    shown: dict[str, tuple[Place, JobView]] = {}
    async for jobs in _candidates(loop, query, before):
        async for some in slices(jobs, VIEWS):
            # Other work ran since the job was found. Read again, as it may have changed or left, and to show only
            # durable state.
            engine = await loop.read()
            reasons = views.Reasons(engine, within, place_reason)
            now = [engine.state.jobs.get(each.id) for each in some]
            for job in _matching(engine.state, [each for each in now if each is not None], query, before):
                shown[job.id] = ((job.number, job.id), views.job_view(engine, job, reasons))
                if len(shown) > query.limit:
                    return shown
    return shown


async def _candidates(loop: Loop, query: JobQuery, before: Place | None) -> AsyncIterator[Sequence[Job]]:
    """Yield matching jobs in the order of the list, as long as the caller asks for more."""
    state = (await loop.read()).state
    if (few := _few(state, query)) is not None:
        yield sorted(_matching(state, few, query, before), key=_order)
    elif query.members:
        while len(page := await _page_with_members(state, query, before)) > query.limit:
            yield page
            before = page[-1].number, page[-1].id
        yield page
    else:
        if before is None:
            fresh = list(itertools.islice(reversed(state.jobs.values()), FRESH))
            yield _matching(state, fresh, query, before)
            before = next(((job.number, job.id) for job in reversed(fresh) if "." not in job.id), None)
        jobs = list(reversed(state.jobs.values()))
        async for some in slices(jobs, first=0 if before is None else _index_after(jobs, before)):
            if matching := _matching(state, some, query, before):
                yield matching


def _few(state: State, query: JobQuery) -> list[Job] | None:
    """Return the only jobs that can match, if an index has them; None if all must be checked."""
    if query.name is not None and not query.members:
        named = list(itertools.islice(state.called(query.name, query.project), FRESH + 1))
        if len(named) <= FRESH:  # else the newest jobs match as quickly
            return [state.jobs[each] for each in named]
    if query.states and query.states <= _ON_NODES:
        placed = sum([len(node.holding) + len(node.ahead) for node in state.nodes.values()])
        if placed + len(state.members) <= SLICE:
            return [*placed_jobs(state), *(state.jobs[array] for array in state.members)]
    return None


async def _page_with_members(state: State, query: JobQuery, before: Place | None) -> list[Job]:
    """Return the first matching jobs, at most one more than a page; members are not in order in the state."""
    found: list[Job] = []
    least = 0  # lower numbers are not on this page
    async for some in slices(list(state.jobs.values())):
        matching = _matching(state, [job for job in some if job.number >= least], query, before)
        found = sorted([*found, *matching], key=_order)[: query.limit + 1]
        if len(found) > query.limit:
            least = found[-1].number
    return found


def _index_after(jobs: Sequence[Job], before: Place) -> int:
    """Return the index after a position, in jobs by falling number; skips members, which are not in order."""

    def number(at: int) -> int:
        while at < len(jobs) and "." in jobs[at].id:
            at += 1
        return -jobs[at].number if at < len(jobs) else 0

    return bisect.bisect_left(range(len(jobs)), -before[0], key=number)


def _has_members_in(state: State, job: Job, query: JobQuery) -> bool:
    """Return whether an array has placed members in these states, of which it does not have one itself."""
    return any(state.jobs[each].state in query.states for each in state.members[job.id])


def _matching(state: State, jobs: Sequence[Job], query: JobQuery, before: Place | None) -> list[Job]:
    """Return matching jobs in the same order; one comprehension for each condition is the fastest way."""
    found = list(jobs)
    if query.user is not None:
        found = [job for job in found if job.user == query.user]
    if query.name is not None:
        found = [job for job in found if job.name == query.name]
    if query.project is not None:
        found = [job for job in found if job.kind.project == query.project]
    if query.queue is not None:
        found = [job for job in found if job.kind.queue == query.queue]
    if query.states:
        arrays = (
            state.members
        )  # few jobs are arrays that partly run, so this costs the others next to nothing
        found = [
            job
            for job in found
            if job.state in query.states or (job.id in arrays and _has_members_in(state, job, query))
        ]
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
        message = "is not a cursor of a listing"
        raise CommandError(ErrorKind.INVALID, message, [FieldProblem("cursor", message)]) from None
    return place
