"""Returns results of Python calls, of one job or of many members of an array at once."""

import asyncio
import contextlib
from typing import Final

from msgspec import Struct

from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.lookup import Found, id_of, is_array
from spillover.control.requests.waiting import EndsOfJobs
from spillover.control.views.jobs import reason_view
from spillover.core.events import JobState
from spillover.core.records.jobs import Ended, Job
from spillover.core.state import State
from spillover.forms.jobs.arrays import ArrayError, parse_array
from spillover.model import ranges
from spillover.model.ids import JobId, member_id
from spillover.model.job import Range
from spillover.model.ranges import Ranges
from spillover.ports.archive import Archive, Finished
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem, ResultPage, ResultsAsked, ResultsOfJobs, ResultView
from spillover.wire.journal import decode_reason

LINGER: Final = 0.05
"""Seconds to collect more results after the first, as each answer has a fixed cost."""
MOST_BYTES: Final = 4 << 20
"""Most bytes of values in one answer, unless it has a single value."""


class _Some(Struct, frozen=True):
    """Results that exist now."""

    results: list[ResultView]
    full: bool
    """Whether the answer can hold no more."""


async def results_of(
    loop: Loop, archive: Archive, specs: Specs, found: Found, asked: ResultsAsked
) -> ResultPage:
    """Return existing results; if there are none, wait for some until the timeout."""
    members: Ranges | None = None
    if isinstance(found, Job | Finished) and is_array(found):
        members = _members(id_of(found), asked)
        spec = (await specs.get([found.spec])).get(found.spec)
        if spec is not None:  # ignore indexes that are not members
            members = ranges.minus(members, ranges.minus(members, spec.array))
    with contextlib.suppress(TimeoutError), loop.subscribers.to_jobs([id_of(found)]) as news:
        async with asyncio.timeout(asked.timeout):
            while True:
                some = await _there(loop, archive, id_of(found), members, asked.limit)
                if some.results:
                    break
                await news.wait()
            if not some.full and members is not None and len(some.results) < ranges.size(members):
                await asyncio.sleep(LINGER)
    return ResultPage((await _there(loop, archive, id_of(found), members, asked.limit)).results)


async def results_of_jobs(
    loop: Loop, archive: Archive, ends: EndsOfJobs, project: str | None, asked: ResultsOfJobs
) -> ResultPage:
    """Return the results of those jobs that have ended; if none has, wait for one until the timeout."""
    wanted = [JobId(each) for each in dict.fromkeys(asked.jobs)]
    until = asyncio.get_running_loop().time() + asked.timeout
    while True:
        # Nothing may end unseen between this look and the wait, so nothing is awaited in between.
        state = (await loop.read()).state
        gone = [each for each in wanted if each not in state.jobs]
        over = [each for each in wanted if each in state.jobs and type(state.jobs[each].phase) is Ended]
        _check(project, [state.jobs[each] for each in wanted if each in state.jobs])
        left = until - asyncio.get_running_loop().time()
        if not gone and not over and left > 0:
            await ends.wait_any(wanted, left)
            if len(wanted) > 1:
                await asyncio.sleep(LINGER)
            continue
        live = {each: state.jobs[each] for each in over}
        archived = await archive.some(gone) if gone else {}
        for each in gone:
            if each not in archived or project not in {None, archived[each].project}:
                raise CommandError(ErrorKind.UNKNOWN, f"there is no job {each!r}")
        return ResultPage(
            _fitting([live.get(each) or archived[each] for each in (*over, *gone)], asked.limit)
        )


def _check(project: str | None, jobs: list[Job]) -> None:
    """Raise CommandError for arrays, and for jobs of other projects."""
    for job in jobs:
        if project not in {None, job.kind.project}:
            raise CommandError(ErrorKind.UNKNOWN, f"there is no job {job.id!r}")
        if is_array(job):
            raise CommandError(ErrorKind.INVALID, f"{job.id} is an array; ask for its own results")


def _fitting(ended: list[Job | Finished], limit: int) -> list[ResultView]:
    """Return as many results as one answer may have."""
    results: list[ResultView] = []
    size = 0
    for each in ended[:limit]:
        view = _view(id_of(each), each, member=False)
        if view is None:
            continue
        size += len(view.value or b"")
        if results and size > MOST_BYTES:
            break
        results.append(view)
    return results


def _members(job: JobId, asked: ResultsAsked) -> Ranges:
    """Return the requested members of an array; raise CommandError if they are missing or invalid."""
    if asked.members is None:
        message = f"{job} is an array; name its members, such as 0-99"
        raise CommandError(ErrorKind.INVALID, message, [FieldProblem("members", "is missing")])
    try:
        return parse_array(asked.members)
    except ArrayError as error:
        raise CommandError(
            ErrorKind.INVALID, f"members: {error}", [FieldProblem("members", str(error))]
        ) from None


async def _there(loop: Loop, archive: Archive, job: JobId, members: Ranges | None, limit: int) -> _Some:
    """Return results that exist now."""
    state = (await loop.read()).state
    wanted = [job] if members is None else _ended(state, job, members, limit)
    live = {each: row for each in wanted if (row := state.jobs.get(each)) is not None}
    missing = [each for each in wanted if each not in live]
    archived = await archive.some(missing) if missing else {}
    results: list[ResultView] = []
    size = 0
    for each in wanted:
        view = _view(each, live.get(each) or archived.get(each), member=members is not None)
        if view is None:
            continue
        size += len(view.value or b"")
        if results and size > MOST_BYTES:
            return _Some(results, full=True)
        results.append(view)
    return _Some(results, full=len(wanted) >= limit)


def _ended(state: State, array: JobId, members: Ranges, limit: int) -> list[JobId]:
    """Return the first requested members that have ended."""
    known = state.jobs.get(array)
    if known is not None and known.extra.members is not None:
        members = ranges.minus(members, known.extra.members.unplaced)
        going = sorted(int(each.rpartition(".")[2]) for each in state.members.get(array, ()))
        members = ranges.minus(members, tuple(Range(index, index) for index in going))
    found: list[JobId] = []
    for index in ranges.indexes(members):
        found.append(member_id(array, index))
        if len(found) >= limit:
            break
    return found


def _view(job: JobId, found: Job | Finished | None, *, member: bool) -> ResultView | None:
    """Return a result; None if the job has not ended."""
    match found:
        case Finished():
            why = None if found.why is None else decode_reason(found.why)
            return ResultView(
                job,
                found.state,
                found.exit_code,
                found.signal,
                reason_view(why),
                found.value or None,
                found.value_digest or None,
            )
        case Job() if isinstance(found.phase, Ended):
            end = found.phase
            return ResultView(
                job,
                end.state,
                end.exit_code,
                end.signal,
                reason_view(end.why),
                end.value or None,
                end.value_digest or None,
            )
        case None if member:
            # An ended member without a record was dropped before it became a separate job.
            return ResultView(job, JobState.CANCELLED, None, None, None, None, None)
        case _:
            return None
