"""Commands about what happened: events, the audit, and jobs that have ended."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from msgspec import structs

from spillover.control.requests.commands.base import CallerCommands
from spillover.control.requests.lookup import id_of
from spillover.control.requests.projects import OwnHistory
from spillover.control.views.audit import audit_page
from spillover.control.views.changes import Watching
from spillover.control.views.history import history
from spillover.control.views.past import past_jobs
from spillover.model.ids import is_whole_id
from spillover.ports.audit import AuditQuery
from spillover.ports.commands import ALL_EVENTS, CommandError, ErrorKind, EventFilter, JobChanges, Span
from spillover.wire.api import AuditPage, EventView, PastJob


class HistoryCommands(CallerCommands):
    """Shows what happened, and follows it."""

    async def events(
        self, after: int | None, follow: bool, job: str | None, only: EventFilter = ALL_EVENTS
    ) -> AsyncIterator[EventView]:
        """Stream events after a revision."""
        found = await self._lookup.find(job) if job is not None else None
        wanted = None if found is None else id_of(found)
        own = OwnHistory(self._lookup) if self._project is not None else None
        views_of = history(self._loop, self._parts.journal, after, follow, wanted, own, only)
        async with contextlib.aclosing(views_of) as lines:
            async for view in lines:
                yield view

    async def audit(self, query: AuditQuery) -> AuditPage:
        """Return what people did, newest first."""
        parts = self._parts
        if parts.audit is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server does not keep an audit")
        if self._project is not None:
            if query.project not in {None, self._project}:
                return AuditPage([], None)
            query = structs.replace(query, project=self._project)
        if query.job is not None:
            query = structs.replace(query, job=await self._id_in_audit(query.job))
        return await audit_page(self._loop, parts.journal, parts.archive, parts.audit, query)

    async def _id_in_audit(self, ref: str) -> str:
        """Return the id of a job; the audit also has jobs that are gone from the archive, by their full ids."""
        try:
            return id_of(await self._lookup.find(ref))
        except CommandError as error:
            if error.kind is ErrorKind.UNKNOWN and is_whole_id(ref):
                return ref
            raise

    async def watch(
        self, after: int | None, jobs: Sequence[str], project: str | None
    ) -> AsyncIterator[JobChanges]:
        """Stream state changes of jobs."""
        if project is not None and self._project not in {None, project}:
            raise CommandError(
                ErrorKind.FORBIDDEN, f"your token is limited to project {self._project!r}, not {project!r}"
            )
        wanted = project or self._project
        lookup = self._lookup.within(wanted)
        watching = Watching(self._loop, self._parts.journal, lookup, whole=wanted is None)
        async with contextlib.aclosing(watching.changes(after, jobs)) as changes:
            async for each in changes:
                yield each

    def past(self, span: Span) -> AsyncIterator[PastJob]:
        """Stream ended jobs in the form that a backtest reads."""
        return past_jobs(self._loop, self._parts.archive, span, self._project)
