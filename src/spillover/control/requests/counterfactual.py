"""Finds what would let a waiting job start now, each change tried by the scheduler on a snapshot of its own."""

import threading
from collections.abc import Sequence
from typing import Any, Final

from spillover.control.live.loop import Loop
from spillover.control.requests.projects import OTHER
from spillover.control.requests.starts import after, steps_for, time_for
from spillover.control.requests.whatif import on_snapshot
from spillover.control.views.jobs import when
from spillover.core.records.jobs import Job
from spillover.deciding.counterfactual import MOST_STEPS, Found, Start, ends_before, search, try_start
from spillover.deciding.forward import first_jobs
from spillover.deciding.whatif import Assumption, Snapshot
from spillover.model.ids import JobId
from spillover.model.resources import Resources
from spillover.model.units import SECOND, format_cpu, format_duration, format_memory, format_money
from spillover.wire.api import ChangesView, OtherJob, SmallChange, WhyView

MOST_TIME: Final = 5 * SECOND
"""After so long the search ends with what it has found."""
MOST_AHEAD: Final = 5
MOST_ENDS: Final = 10
_ONE_CPU: Final = 1000


async def changes_view(loop: Loop, job: Job, why: WhyView, project: str | None, currency: str) -> ChangesView:
    """Return the smallest changes with which a job would start now, who is ahead, and what ends before it starts."""
    found, tried, complete = await _search(loop, job.id)
    ends: dict[JobId, int] = {}
    if why.state == "QUEUED":
        ends = await _ends(loop, job.id)
    engine = await loop.ready()
    state = engine.state
    ahead = _before(job.id, first_jobs(engine, MOST_AHEAD + 1))[:MOST_AHEAD] if why.ahead else []
    return ChangesView(
        id=why.id,
        state=why.state,
        sentence=why.sentence,
        ahead=[_other(state.jobs[each], project) for each in ahead],
        ahead_in_all=why.ahead or 0,
        more_ahead=why.more_ahead,
        ends=[
            _other(state.jobs[each], project, end)
            for each, end in list(ends.items())[:MOST_ENDS]
            if each in state.jobs
        ],
        expected_start=why.expected_start,
        changes=[_shown(job, each, currency) for each in found],
        tried=tried,
        complete=complete,
    )


async def _search(loop: Loop, job: JobId) -> tuple[list[Found], int, bool]:
    """Return what was found, how many changes were tried, and whether the search came to its end."""
    found: list[Found] = []
    engine = await loop.ready()
    if job not in engine.state.jobs:
        return found, 0, True
    looking = search(engine, Snapshot(engine).state.jobs[job], found)
    until, tried = loop.time.monotonic() + MOST_TIME, 0
    try:
        asked = next(looking)
        while loop.time.monotonic() < until:
            tried += 1
            asked = looking.send(await _tried(loop, job, asked))
    except StopIteration:
        return found, tried, True
    return found, tried, False


async def _tried(loop: Loop, job: JobId, asked: Sequence[Assumption]) -> Start | None:
    """Return where the job starts under some assumptions, on a snapshot of the present state."""
    now = loop.now()

    def start(snapshot: Snapshot) -> Start | None:
        there = snapshot.state.jobs.get(job)
        return None if there is None else try_start(snapshot, now, job, asked)

    return await on_snapshot(loop, start)


async def _ends(loop: Loop, job: JobId) -> dict[JobId, int]:
    """Return what ends before a job starts; nothing if that takes too long to find."""
    engine, now, over = await loop.ready(), loop.now(), threading.Event()
    late = after(loop, time_for(engine))

    def ask(snapshot: Snapshot) -> dict[JobId, int]:
        if job not in snapshot.state.jobs:
            return {}
        most = min(MOST_STEPS, steps_for(engine))
        return ends_before(snapshot, now, job, most, lambda: over.is_set() or late())

    try:
        return await on_snapshot(loop, ask, few=0)
    finally:
        over.set()  # whoever asked may be gone


def _before(job: JobId, jobs: Sequence[JobId]) -> list[JobId]:
    """Return the jobs in order up to one of them."""
    return list(jobs[: jobs.index(job)] if job in jobs else jobs)


def _other(job: Job, project: str | None, end: int | None = None) -> OtherJob:
    """Return another job; one of another project without its id, name and user, for a caller of one project."""
    if project not in {None, job.kind.project}:
        return OtherJob(None, OTHER, "", when(end))
    return OtherJob(job.id, job.name, job.user, when(end))


# --- in words


def _shown(job: Job, found: Found, currency: str) -> SmallChange:
    cluster = found.start.cluster
    condition = _of_job(job, found) or _of_limits(found, currency)
    sentence = f"{condition}, it would start on {cluster}"
    return SmallChange(found.what, sentence, cluster, str(found.start.why), _patch(found))


def _of_job(job: Job, found: Found) -> str | None:
    """Say how the job would change; None if something else would."""
    before, after = found.before, found.after
    each = " for each task" if job.kind.shape.tasks > 1 else ""
    match found.what:
        case "cpu":
            return f"with {_cpus(after)}{each} instead of {format_cpu(before)}"
        case "memory":
            return f"with {format_memory(after)} of memory{each} instead of {format_memory(before)}"
        case "gpu":
            return f"with {_gpus(after)}{each} instead of {before}"
        case "size":
            return f"with {_size(found.resources or Resources())}{each}"
        case "tasks":
            return f"with {after} task{'' if after == 1 else 's'} instead of {before}"
        case "walltime":
            return f"with a walltime of {format_duration(after)} instead of {format_duration(before)}"
        case "priority":
            return f"with priority {after} instead of {before}"
        case _:
            return _WORDS.get(found.what)


_WORDS: Final = {
    "where": "if it could run on any cluster and machine",
    "burst": "if it were rented at once (`burst: always`)",
    "hold": "if it were released",
}


def _of_limits(found: Found, currency: str) -> str:
    """Say which limit would be higher, or what a cluster would have."""
    before, after = found.before, found.after
    match found.what:
        case "max_cost":
            return f"with a max_cost of {format_money(after, currency)} instead of {format_money(before)}"
        case "budget":
            more = f"{format_money(after, currency)} instead of {format_money(before)}"
            return f"if the budget of {found.about} were {more}"
        case "queue":
            queue, _, what = found.about.partition(" ")
            return f"if queue {queue} allowed {_limit(what, after)} instead of {_limit(what, before)}"
        case _:
            return f"with {after} more machine{'' if after == 1 else 's'} in {found.about} like its largest"


def _cpus(milli: int) -> str:
    return f"{format_cpu(milli)} CPU{'' if milli == _ONE_CPU else 's'}"


def _gpus(count: int) -> str:
    return f"{count or 'no'} GPU{'' if count == 1 else 's'}"


def _size(resources: Resources) -> str:
    parts = [_cpus(resources.cpu)]
    if resources.memory:
        parts.append(f"{format_memory(resources.memory)} of memory")
    if resources.gpu:
        parts.append(_gpus(resources.gpu))
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def _limit(what: str, amount: int) -> str:
    match what:
        case "jobs":
            return f"{amount} running job{'' if amount == 1 else 's'}"
        case "cpu":
            return _cpus(amount)
        case "memory":
            return f"{format_memory(amount)} of memory"
        case _:
            return _gpus(amount)


def _patch(found: Found) -> dict[str, Any] | None:
    """Return the change as `PATCH /v1/jobs/{job}` takes it; None if the job cannot be changed that way."""
    if found.resources is not None:
        asked = found.resources
        amounts = {"cpu": f"{asked.cpu}m", "memory": str(asked.memory), "gpu": asked.gpu}
        wanted = amounts if found.what == "size" else {found.what: amounts[found.what]}
        return {"spec": {"resources": wanted}}
    match found.what:
        case "walltime":
            return {"spec": {"walltime": f"{found.after // SECOND}s"}}
        case "priority":
            return {"spec": {"priority": found.after}}
        case _:
            return None
