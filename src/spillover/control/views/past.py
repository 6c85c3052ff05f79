"""Exports ended jobs of the state and the archive with what a simulation needs."""

from collections.abc import AsyncIterator
from typing import Final

from spillover.control.controllers.archiving import finished_of
from spillover.control.live.loop import Loop
from spillover.control.views.jobs import money
from spillover.core.records.jobs import Ended
from spillover.ports.archive import Archive, Finished, Query
from spillover.ports.commands import Span
from spillover.wire.api import PastJob

PAGE: Final = 2000
"""Jobs to read from the archive at once; few enough not to block the loop."""


async def past_jobs(
    loop: Loop, archive: Archive, span: Span, project: str | None = None
) -> AsyncIterator[PastJob]:
    """Yield ended jobs of a span and a project, newest first, with members; those not archived yet come first."""
    # The state first. A job that is archived meanwhile is then in both, never in neither.
    ended = await loop.scan(lambda jobs: [job for job in jobs if type(job.phase) is Ended])
    seen: set[str] = set()
    for job in reversed(ended):
        if project not in {None, job.kind.project}:
            continue
        row = finished_of(job)
        if row is not None and _inside(row, span):
            seen.add(row.job)
            if row.array is None:
                yield past_job(row)
    before = None
    while True:
        rows = await archive.list(
            Query(
                project=project,
                since=span.since,
                until=span.until,
                ended_since=span.ended_since,
                before=before,
                limit=PAGE,
                members=True,
            )
        )
        for row in rows:
            if row.array is None and row.job not in seen:
                yield past_job(row)
        if len(rows) < PAGE:
            return
        before = rows[-1].number, rows[-1].job


def _inside(row: Finished, span: Span) -> bool:
    """Return whether a job is in the span."""
    return (
        (span.since is None or row.submitted >= span.since)
        and (span.until is None or row.submitted < span.until)
        and (span.ended_since is None or row.finished >= span.ended_since)
    )


def past_job(row: Finished) -> PastJob:
    """Return an archived job in the form that a simulation reads."""
    shape, terms = row.shape, row.terms
    asked = shape.resources
    return PastJob(
        id=row.job,
        name=row.name,
        user=row.user,
        project=row.project,
        queue=row.queue,
        priority=row.priority,
        state=row.state,
        submitted_ns=row.submitted,
        ready_ns=_ready(row),
        started_ns=row.started,
        finished_ns=row.finished,
        ran_ns=row.usage[0],
        attempt=row.attempt,
        cluster=row.cluster,
        node=row.node,
        cost=money(row.cost),
        cpu_milli=asked.cpu,
        memory=asked.memory,
        gpu=asked.gpu,
        tasks=shape.tasks,
        needs=list(shape.needs),
        burst=shape.burst,
        walltime_ns=terms.walltime,
        estimate_ns=terms.estimate,
        predicted_ns=row.predicted,
        deadline_ns=row.deadline,
        max_cost=None if terms.max_cost is None else money(terms.max_cost),
        data=terms.data,
    )


def _ready(row: Finished) -> int:
    """Return since when a job could have been placed: as recorded, else from its submission and `not_before`."""
    ready = row.ready if row.ready is not None else max(row.submitted, row.not_before or 0)
    return ready if row.started is None else min(ready, row.started)
