"""Commands about jobs: to submit and change them, to ask about them, and to read what they wrote and returned."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from msgspec import structs

from spillover.control.notifications.receivers import refusal
from spillover.control.requests import counterfactual, whatif
from spillover.control.requests import dry_run as forecasting
from spillover.control.requests.acting import Acting
from spillover.control.requests.changing import Changing
from spillover.control.requests.checking import check_text
from spillover.control.requests.commands.base import CallerCommands, Parts
from spillover.control.requests.lookup import Found, PendingMember, id_of
from spillover.control.requests.projects import forms_of, reason_within
from spillover.control.requests.rerunning import Rerunning, without_folder
from spillover.control.requests.sessions import Sessions
from spillover.control.requests.starts import LITTLE_PATIENCE
from spillover.control.requests.unused import without_effect
from spillover.control.requests.waiting import EndsOfJobs
from spillover.control.views import jobs as views
from spillover.control.views.details import detail_of
from spillover.control.views.efficiency import efficiency_of
from spillover.control.views.listing import list_jobs
from spillover.control.views.results import results_of, results_of_jobs
from spillover.core.records.jobs import Ended, Job
from spillover.forms.jobs.reading import JobForm
from spillover.ports.archive import Finished
from spillover.ports.blobs import BlobError
from spillover.ports.commands import CommandError, ErrorKind, JobQuery
from spillover.wire.api import (
    Action,
    ChangesView,
    CheckRequest,
    CheckView,
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


class JobCommands(CallerCommands):
    """Submits, changes and shows jobs."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._ends = EndsOfJobs(parts.loop)
        self._sessions = Sessions(parts.agents, parts.drivers)

    async def submit(self, jobs: Sequence[JobForm], user: str, traceparent: str = "") -> tuple[str, ...]:
        """Submit all of these jobs or none, as parts of a trace if it is given; return their ids in the same order."""
        if self._parts.gauge is not None:
            self._parts.gauge.submit(self._caller.token, len(jobs))
        jobs = forms_of(jobs, self._project)
        self._rights.check_priorities(jobs)
        self._check_receivers(jobs)
        return await self._submitting.submit(jobs, user, traceparent)

    def without_effect(self, jobs: Sequence[JobForm]) -> list[str]:
        """Return a line for each thing that these jobs ask for and that has no effect on this server."""
        return without_effect(jobs, self._loop.engine.state, self._parts.settings.now)

    def _check_receivers(self, jobs: Sequence[JobForm]) -> None:
        """Raise CommandError if a job wants somebody to be told whom it may not name."""
        for each in jobs:
            if each.spec.notify and (why := refusal(self._parts.settings.now, each.spec)) is not None:
                raise CommandError(ErrorKind.INVALID, f"{each.spec.name}: {why}")

    async def forecast(self, jobs: Sequence[JobForm], user: str) -> Forecasts:
        """Return where and when these jobs would start, without submitting them."""
        jobs = forms_of(jobs, self._project)
        self._rights.check_priorities(jobs)
        self._check_receivers(jobs)
        ids, tried, starts = await self._submitting.trial(jobs, user)
        starts = self._starts.corrected(starts, tried.now)
        told = forecasting.forecasts(ids, jobs, tried, self._project, starts)
        return structs.replace(told, warnings=self.without_effect(jobs))

    async def check(self, request: CheckRequest, user: str) -> CheckView:
        """Return what is wrong with the text of a job file, or the jobs in it."""

        async def forecast(jobs: Sequence[JobForm]) -> Forecasts:
            return await self.forecast(jobs, user)

        return await check_text(request, forecast)

    async def act(self, action: Action, who: str) -> Ids:
        """Cancel, hold, release or requeue jobs."""
        return await Acting(self._loop, self._lookup, self._rights).act(action, who)

    async def rerun(self, asked: Rerun, user: str, traceparent: str = "") -> Ids:
        """Submit jobs again, all or none; return the new ids in the order of the request."""
        parts = self._parts
        again = Rerunning(
            self._loop, parts.journal, parts.archive, parts.specs, parts.files, self._lookup, self._rights
        )
        jobs = await again.forms(asked, user)
        without = [] if asked.empty_state else [*without_folder(jobs), *again.warnings]
        told = self.without_effect(jobs) + without
        return Ids(list(await self.submit(jobs, user, traceparent)), told)

    async def change(self, ref: str, patch: Patch, who: str) -> Ids:
        """Change a job that waits, or the walltime of one that runs."""
        parts = self._parts
        changing = Changing(
            self._loop, parts.specs, self._submitting, self._lookup, parts.agents, self._rights
        )
        return await changing.change(ref, patch, who)

    async def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs, newest submission first."""
        if self._project is not None:
            if query.project not in {None, self._project}:
                return JobPage([], None)
            query = structs.replace(query, project=self._project)
        forecast = await self._starts.of_all() if query.starts else self._starts.recent()
        starts = None if forecast is None else forecast.starts
        return await list_jobs(
            self._loop, self._parts.archive, query, self._project, starts, self._place_reason
        )

    async def job(self, ref: str) -> JobDetail:
        """Return one job with its details."""
        found = await self._lookup.find(ref)
        view = await self._view(found)
        digest = found.array.spec if isinstance(found, PendingMember) else found.spec
        spec = (await self._parts.specs.get([digest])).get(digest)
        if spec is not None and spec.digests and self._parts.files is not None:
            with contextlib.suppress(BlobError):  # show the job anyway
                await self._parts.files.give(spec.digests, self._project)
        start, _ = await self._starts.view_of(found, LITTLE_PATIENCE)
        aside = [
            each for each in self._set_aside(self._loop.engine, self._project) if each.subject == id_of(found)
        ]
        detail = detail_of(found, structs.replace(view, expected_start=start), spec, aside)
        efficiency = await efficiency_of(self._loop, self._parts.archive, found)
        return structs.replace(detail, efficiency=efficiency)

    async def why(self, ref: str) -> WhyView:
        """Return why a job is in its state."""
        found = await self._lookup.find(ref)
        engine = await self._loop.read()
        if isinstance(found, Finished):
            return views.finished_why(found, engine.policies.chosen.unknown_runtime)
        job, member = (found.array, found.index) if isinstance(found, PendingMember) else (found, None)
        reason = found.reason if isinstance(found, PendingMember) else None
        view = views.why_view(
            engine, job, self._loop.now(), self._project, self._place_reason, self._problem, member, reason
        )
        start, note = await self._starts.view_of(found)
        return structs.replace(view, id=found.id, expected_start=start, expected_start_note=note)

    async def what_if(self, ref: str, asked: WhatIf) -> WhatIfView:
        """Return what would happen to a job under an assumption, without changing anything."""
        found = await self._lookup.find(ref)
        if isinstance(found, Finished):
            raise CommandError(ErrorKind.CONFLICT, f"{id_of(found)} has ended; there is nothing to predict")
        return await whatif.answer(
            self._loop, found.array if isinstance(found, PendingMember) else found, asked, self._project
        )

    async def changes(self, ref: str) -> ChangesView:
        """Return the smallest changes that would let a waiting job start now."""
        found = await self._lookup.find(ref)
        if isinstance(found, Finished) or (isinstance(found, Job) and isinstance(found.phase, Ended)):
            raise CommandError(ErrorKind.CONFLICT, f"{id_of(found)} has ended; there is nothing to change")
        why = await self.why(ref)
        job = found.array if isinstance(found, PendingMember) else found
        async with self._searches:
            return await counterfactual.changes_view(
                self._loop, job, why, self._project, self._parts.currency
            )

    async def wait(self, ref: str, timeout: float) -> JobView:  # noqa: ASYNC109 - a timeout is an answer here
        """Return a job once it has ended, or as it is after `timeout` seconds."""
        found = await self._lookup.find(ref)
        if isinstance(found, PendingMember) or (
            isinstance(found, Job) and not isinstance(found.phase, Ended)
        ):
            await self._ends.wait(found.id, timeout)
            found = await self._lookup.find(found.id)
        return await self._view(found)

    async def results(self, ref: str, asked: ResultsAsked) -> ResultPage:
        """Return how jobs ended and what they returned."""
        found = await self._lookup.find(ref)
        page = await results_of(self._loop, self._parts.archive, self._parts.specs, found, asked)
        return await self._given(page)

    async def results_of_jobs(self, asked: ResultsOfJobs) -> ResultPage:
        """Return how some of these jobs ended."""
        found = await results_of_jobs(self._loop, self._parts.archive, self._ends, self._project, asked)
        return await self._given(found)

    async def _given(self, page: ResultPage) -> ResultPage:
        """Let the caller read the blobs of these results."""
        if self._parts.files is not None:
            digests = [each.value_digest for each in page.results if each.value_digest is not None]
            await self._parts.files.give(digests, self._project)
        return page

    async def output(
        self, ref: str, *, attempt: int | None, task: int, stderr: bool, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        """Stream what a task wrote, from an offset; with `follow`, until the job ends."""
        return await self._reading.output(
            ref, attempt=attempt, task=task, stderr=stderr, offset=offset, follow=follow
        )

    async def open_session(self, ref: str, request: SessionRequest, who: str) -> SessionView:
        """Connect to a task that runs."""
        found = await self._lookup.find(ref)
        if not isinstance(found, Finished):
            self._rights.check_change(found, who, "enter")
        return await self._sessions.open(found, request, self._caller, who)

    async def session_output(self, session: str, who: str) -> AsyncIterator[bytes]:
        """Stream what comes from the task of a session."""
        return await self._sessions.output(session, self._caller, who)

    async def session_input(self, session: str, given: SessionInput, who: str) -> SessionTaken:
        """Pass input on to the task of a session."""
        return SessionTaken(await self._sessions.give(session, given.after, given.data, self._caller, who))

    async def files(self, ref: str, attempt: int | None) -> FilesView:
        """Return the output files of an attempt."""
        found = await self._lookup.find(ref)
        if self._parts.files is None:
            return FilesView(id_of(found), None, [], [])
        return await self._parts.files.brought_back(found, attempt, self._project)

    async def _view(self, found: Found) -> JobView:
        """Return a job as a list shows it; a pending member of an array looks like a job."""
        engine = await self._loop.read()
        reasons = views.Reasons(engine, self._project, self._place_reason, self._problem)
        match found:
            case Finished():
                return views.finished_view(found, engine.policies.chosen.unknown_runtime)
            case PendingMember():
                view = views.pending_member(views.job_view(engine, found.array, reasons), found.id)
                if found.reason is None:
                    return view
                reason = views.reason_view(reason_within(found.reason, engine.state, self._project))
                return structs.replace(view, state=found.state, reason=reason)
            case Job():
                return views.job_view(engine, found, reasons)
