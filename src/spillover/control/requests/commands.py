"""Carries out requests of users for the HTTP API. Every answer passes the gate."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from copy import copy
from typing import Final, Self

from msgspec import Struct, field, structs

from spillover.control.agents.administration import act_on_agents
from spillover.control.agents.silence import silence_of
from spillover.control.controllers.delivering import Delivering
from spillover.control.controllers.sampling import Sampling
from spillover.control.driving.drivers import Drivers
from spillover.control.live.loop import Loop
from spillover.control.live.slices import slices
from spillover.control.live.specs import Specs
from spillover.control.notifications.receivers import refusal
from spillover.control.notifications.settings import Settings
from spillover.control.pools.controls import PoolControls
from spillover.control.requests import counterfactual, whatif
from spillover.control.requests import dry_run as forecasting
from spillover.control.requests.acting import Acting
from spillover.control.requests.changing import Changing
from spillover.control.requests.checking import check_text
from spillover.control.requests.files import JobFiles
from spillover.control.requests.limits import Gauge
from spillover.control.requests.lookup import Found, Lookup, PendingMember, id_of
from spillover.control.requests.notifications import NotificationRequests
from spillover.control.requests.policies import PolicyRequests
from spillover.control.requests.pools import change_pool, planned, shown_pools, swept
from spillover.control.requests.projects import OwnHistory, budgets_of, forms_of, jobs_of, pools_of
from spillover.control.requests.rerunning import Rerunning, without_folder
from spillover.control.requests.reservations import reservation_views
from spillover.control.requests.reserving import Reserving
from spillover.control.requests.rights import AccessRules, Rights
from spillover.control.requests.secrets import SecretRequests
from spillover.control.requests.sessions import Sessions
from spillover.control.requests.signing_in import SignIns
from spillover.control.requests.starts import LITTLE_PATIENCE, StartForecasts
from spillover.control.requests.submitting import Submitting
from spillover.control.requests.tokens import Tokens
from spillover.control.requests.unused import without_effect
from spillover.control.requests.waiting import EndsOfJobs
from spillover.control.secrets.vault import Vault
from spillover.control.views import jobs as views
from spillover.control.views.agents import agent_detail
from spillover.control.views.audit import audit_page
from spillover.control.views.changes import Watching
from spillover.control.views.clusters import agent_views, cluster_view, node_keys, node_views
from spillover.control.views.costs import budget_views, cost_report
from spillover.control.views.details import detail_of
from spillover.control.views.efficiency import efficiency_of
from spillover.control.views.history import history
from spillover.control.views.listing import list_jobs
from spillover.control.views.live import LiveViews, Summary
from spillover.control.views.machine_costs import machine_costs
from spillover.control.views.output import OutputReading
from spillover.control.views.overview import (
    Pace,
    Waits,
    clock_view,
    cost_an_hour,
    head_of_queue,
    longest_first,
    placed_jobs,
    server_view,
)
from spillover.control.views.past import past_jobs
from spillover.control.views.pools import pool_summaries
from spillover.control.views.queues import queue_views
from spillover.control.views.results import results_of, results_of_jobs
from spillover.control.views.usage import usage_report
from spillover.core.pool_proposals import PausePool, ResumePool
from spillover.core.records.jobs import Ended, Job
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.forms.jobs.reading import JobForm
from spillover.model.budget import CostBy, MachinesBy, UsageBy
from spillover.model.ids import ClusterName, JobId, is_whole_id
from spillover.model.reasons import Reason
from spillover.model.units import HOUR, format_time
from spillover.ports.archive import Archive, Finished
from spillover.ports.audit import Audit, AuditQuery
from spillover.ports.blobs import GIB, BlobError
from spillover.ports.callers import ADMIN, Caller
from spillover.ports.cluster import Agents
from spillover.ports.commands import (
    ALL_EVENTS,
    ClusterAdministration,
    CommandError,
    ErrorKind,
    EventFilter,
    JobChanges,
    JobQuery,
    LiveMessage,
    NewSignIn,
    OidcReturn,
    OidcStart,
    PolicyFrontier,
    Sender,
    Span,
)
from spillover.ports.journal import Journal
from spillover.ports.outbox import Outbox
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentDetail,
    AgentNames,
    AgentView,
    AuditPage,
    BudgetView,
    ChangesView,
    CheckRequest,
    CheckView,
    ClockView,
    ClusterAction,
    ClusterNames,
    ClusterRequest,
    ClusterView,
    ConfigOutcome,
    ConfigRequest,
    CostReport,
    EventView,
    FilesView,
    Forecasts,
    FrontierRequest,
    FrontierView,
    Ids,
    JobDetail,
    JobPage,
    JobView,
    MachineCosts,
    Me,
    NewToken,
    NodeView,
    NotificationAction,
    NotificationIds,
    NotificationPage,
    NotificationTest,
    Overview,
    PastJob,
    Patch,
    PlannedView,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    PoolPause,
    PoolView,
    QueueView,
    RekeyOutcome,
    Rerun,
    ReservationRequest,
    ReservationView,
    ResultPage,
    ResultsAsked,
    ResultsOfJobs,
    SecretRef,
    SecretRequest,
    SecretView,
    Series,
    ServerView,
    SessionInput,
    SessionRequest,
    SessionTaken,
    SessionView,
    SetAsideView,
    SignInMethods,
    SignInRequest,
    SignInView,
    SweepRequest,
    SweepView,
    TokenRequest,
    TokenView,
    UsageReport,
    WhatIf,
    WhatIfView,
    WhyView,
)

MOST_ASIDE: Final = 100
"""Most entries of set-aside work in an overview."""
AGENTS: Final = 500
"""Agents to convert before other work runs."""


class Parts(Struct, frozen=True):
    """What commands need."""

    loop: Loop
    journal: Journal
    archive: Archive
    agents: Agents
    specs: Specs
    lookup: Lookup
    submitting: Submitting
    currency: str = "USD"
    tokens: Tokens | None = None
    """None if the server does not store tokens."""
    files: JobFiles | None = None
    """None if the server does not store files."""
    gauge: Gauge | None = None
    """None if nothing is limited."""
    drivers: Drivers = field(default_factory=Drivers)
    """External clusters."""
    clusters: ClusterAdministration | None = None
    """Adds, drains and removes clusters; None if the server cannot change them."""
    pools: PoolControls = field(default_factory=PoolControls)
    """Open pools of rented machines."""
    access: AccessRules = field(default_factory=AccessRules)
    """Who may change whose jobs."""
    audit: Audit | None = None
    """What people did; None if the server does not keep it."""
    vault: Vault | None = None
    """None if the server does not store secrets."""
    outbox: Outbox | None = None
    """Notifications to send; None if the server sends none."""
    settings: Settings = field(default_factory=Settings)
    """Who is told of what."""
    delivering: Delivering | None = None
    """What sends notifications; None if nothing does."""
    sign_ins: SignIns | None = None
    """None if nobody can sign in."""
    sampling: Sampling | None = None
    """The last hours; None if nothing is sampled."""
    frontier: PolicyFrontier | None = None
    """Other waits for the last jobs; None if the server cannot simulate them."""


class LiveCommands:
    """Implements `spillover.ports.commands`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = parts.loop
        self._lookup = parts.lookup
        self._reading = OutputReading(parts.loop, parts.lookup, parts.agents, parts.files, parts.drivers)
        self._policies = PolicyRequests(parts.loop)
        self._reserving = Reserving(parts.loop)
        self._pace = Pace(parts.loop)
        self._live = LiveViews(
            parts.loop,
            Summary(
                self._clusters,
                self._server,
                self._pace.ended,
                lambda engine, project: len(self._set_aside(engine, project)),
            ),
            Waits(parts.loop),
        )
        self._starts = StartForecasts(parts.loop)
        self._ends = EndsOfJobs(parts.loop)
        self._submitting = parts.submitting
        self._project: str | None = None
        """The only project that the caller may see; None means all."""
        self._caller = ADMIN
        self._rights = Rights(parts.access)
        self._sessions = Sessions(parts.agents, parts.drivers)

    def of(self, caller: Caller) -> Self:
        """Return the commands for a caller, who may be limited to a project."""
        if caller == self._caller:
            return self
        lookup = self._lookup.within(caller.project)
        limited = copy(self)
        limited._project = caller.project  # noqa: SLF001 - a copy of this object
        limited._caller = caller  # noqa: SLF001 - a copy of this object
        limited._rights = self._rights.of(caller)  # noqa: SLF001 - a copy of this object
        limited._lookup = lookup  # noqa: SLF001 - a copy of this object
        limited._reading = OutputReading(  # noqa: SLF001 - a copy of this object
            self._loop, lookup, self._parts.agents, self._parts.files, self._parts.drivers
        )
        limited._submitting = self._submitting.within(lookup)  # noqa: SLF001 - a copy of this object
        return limited

    # --- submitting and changing

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

    async def act_on_agents(self, action: AgentAction, who: str) -> AgentNames:
        """Drain, resume or forget agents."""
        return await act_on_agents(self._loop, action, who)

    async def add_cluster(self, request: ClusterRequest, who: str) -> ClusterView:
        """Add a cluster."""
        await self._administration.add(request, who)
        state = (await self._loop.read()).state
        return cluster_view(state, state.clusters[ClusterName(request.cluster["name"])])

    async def act_on_clusters(self, action: ClusterAction, who: str) -> ClusterNames:
        """Drain, resume or remove clusters."""
        return await self._administration.act(action, who)

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """Read the configuration again."""
        return await self._administration.configure(request, who)

    @property
    def _administration(self) -> ClusterAdministration:
        if self._parts.clusters is None:
            raise CommandError(ErrorKind.CONFLICT, "this server cannot change its clusters at runtime")
        return self._parts.clusters

    async def set_policy(self, patch: PolicyPatch, who: str) -> PolicyOutcome:
        """Change the policies, or tell what that would change."""
        return await self._policies.change(patch, who)

    # --- reading

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
        view = views.why_view(
            engine, job, self._loop.now(), self._project, self._place_reason, self._problem, member
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
        return await counterfactual.changes_view(self._loop, job, why, self._project, self._parts.currency)

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

    async def reservations(self) -> list[ReservationView]:
        """Return the capacity that is reserved, in the order of its start."""
        return await reservation_views(self._loop, self._project)

    async def reserve(self, request: ReservationRequest, who: str) -> ReservationView:
        """Reserve nodes for a project or for maintenance, or tell which would be reserved."""
        return await self._reserving.reserve(request, who)

    async def unreserve(self, name: str, who: str) -> None:
        """Cancel an advance reservation."""
        await self._reserving.cancel(name, who, self._project)

    async def pools(self) -> list[PoolView]:
        """Return all pools with their machines and offers."""
        return pools_of(await shown_pools(self._loop), self._loop.state, self._project)

    async def pool_plan(self) -> list[PlannedView]:
        """Return what pools would order, drain and end now."""
        return await planned(self._loop)

    async def pause_pool(self, request: PoolPause, who: str) -> PoolView:
        """Order no more machines in a pool, or end all of them; return the pool."""
        return await change_pool(
            self._loop, PausePool(ClusterName(request.cluster), who, request.why, request.end)
        )

    async def resume_pool(self, cluster: str, who: str) -> PoolView:
        """Order machines in a pool again; return the pool."""
        return await change_pool(self._loop, ResumePool(ClusterName(cluster), who))

    async def sweep_pools(self, request: SweepRequest) -> list[SweepView]:
        """Return what providers have that is ours and not wanted, and end it unless it is a dry run."""
        return await swept(self._loop, self._parts.pools, request)

    async def clusters(self) -> list[ClusterView]:
        """Return all clusters."""
        return self._clusters((await self._loop.read()).state)

    def _clusters(self, state: State) -> list[ClusterView]:
        return [cluster_view(state, spec, self._problem(spec.name)) for spec in state.facts.clusters]

    def _place_reason(self, job: Job) -> Reason | None:
        """Return why a placed job does not start or stop, or why nothing is known about it; None if all is well."""
        return self._parts.drivers.reason_of(job) or silence_of(self._loop, self._parts.agents, job)

    def _problem(self, cluster: str) -> str | None:
        """Return why a cluster cannot be opened, or why its driver failed; None if all is well."""
        administration = self._parts.clusters
        found = None if administration is None else administration.problem(cluster)
        return found or self._parts.drivers.problem(cluster) or self._parts.pools.problem(cluster)

    async def agent(self, name: str) -> AgentDetail:
        """Return one agent, by its name or as CLUSTER/NAME, with what runs there."""
        return agent_detail(
            self._loop, self._parts.agents, (await self._loop.read()).state, name, self._project
        )

    async def agents(self) -> list[AgentView]:
        """Return all agents."""
        shown: list[AgentView] = []
        async for keys in slices(list((await self._loop.read()).state.agents), AGENTS):
            state = (await self._loop.read()).state
            shown += agent_views(
                self._loop, self._parts.agents, state, [key for key in keys if key in state.agents]
            )
        return shown

    async def nodes(self, cluster: str) -> list[NodeView]:
        """Return the nodes of an external cluster, or of all of them."""
        keys = node_keys((await self._loop.read()).state, cluster)
        shown: list[NodeView] = []
        async for some in slices(keys, AGENTS):
            shown += node_views((await self._loop.read()).state, some)
        return shown

    async def overview(self, running: int, queued: int, agents: int) -> Overview:
        """Return a summary; its cost depends on what is shown and what runs, not on the length of the queue."""
        engine = await self._loop.read()
        state, reasons = (
            engine.state,
            views.Reasons(engine, self._project, self._place_reason, self._problem),
        )
        placed = jobs_of(placed_jobs(state), self._project)
        aside = self._set_aside(engine, self._project)
        return Overview(
            at=format_time(self._loop.now()),
            server=self._server(state),
            ended_a_minute=self._pace.ended(),
            cost_an_hour=views.money(cost_an_hour(state, placed)),
            clusters=self._clusters(state),
            agents=agent_views(self._loop, self._parts.agents, state, itertools.islice(state.agents, agents)),
            agents_in_all=len(state.agents),
            running=[views.job_view(engine, job, reasons) for job in longest_first(placed, running)],
            running_in_all=len(placed),
            queued=[
                views.job_view(engine, job, reasons) for job in head_of_queue(engine, queued, self._project)
            ],
            set_aside=aside[:MOST_ASIDE],
            set_aside_in_all=len(aside),
            pools=pool_summaries(state, self._loop.now()),
        )

    def live(self) -> AsyncIterator[LiveMessage]:
        """Stream what an open page shows."""
        return self._live.messages(self._project)

    async def series(self, since: int | None) -> Series:
        """Return the last hours as lines."""
        if self._parts.sampling is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server takes no samples")
        begin = self._loop.now() - HOUR if since is None else since
        return self._parts.sampling.series(begin, costs=self._project is None)

    def _set_aside(self, engine: Engine, project: str | None) -> list[SetAsideView]:
        """Return the work that is set aside; for a project, only that of its jobs."""
        found = views.set_aside_views(engine, self._loop.aside, self._loop.now(), self._loop.time.monotonic())
        jobs = engine.state.jobs
        return [
            each
            for each in found
            if project is None
            or ((job := jobs.get(JobId(each.subject))) is not None and job.kind.project == project)
        ]

    async def clock(self) -> ClockView:
        """Return whether the server follows the machine's clock."""
        return clock_view(self._loop)

    async def accept_clock(self, who: str) -> ClockView:
        """Follow the machine's clock although it jumped too far to be trusted."""
        view = clock_view(self._loop)
        if view.state != "held":
            raise CommandError(ErrorKind.CONFLICT, f"there is nothing to accept: {view.message}")
        await self._loop.accept_clock(who)
        return clock_view(self._loop)

    async def server(self) -> ServerView:
        """Return the server's own state."""
        return self._server((await self._loop.read()).state)

    def _server(self, state: State) -> ServerView:
        files = self._parts.files
        limits = (GIB, GIB) if files is None else (files.max_inputs, files.max_outputs)
        return server_view(self._loop, state, self._parts.currency, limits)

    def past(self, span: Span) -> AsyncIterator[PastJob]:
        """Stream ended jobs in the form that a backtest reads."""
        return past_jobs(self._loop, self._parts.archive, span, self._project)

    async def costs(self, by: CostBy, since: int | None) -> CostReport:
        """Return costs by project, user, cluster, day, week or month."""
        return await cost_report(
            self._loop, self._parts.archive, by, since, self._parts.currency, self._project
        )

    async def usage(self, by: Sequence[UsageBy], since: int | None) -> UsageReport:
        """Return what jobs used, in groups."""
        return await usage_report(
            self._loop, self._parts.archive, by, since, self._parts.currency, self._project
        )

    async def machine_costs(self, by: MachinesBy, since: int | None) -> MachineCosts:
        """Return costs of machines by pool, day, week or month."""
        if self._project is not None:
            told = f"your token is limited to project {self._project!r}, and machines are shared by all projects; use `spill cost`"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        state = (await self._loop.read()).state
        return machine_costs(state, by, since, self._loop.now(), self._parts.currency)

    async def budgets(self) -> list[BudgetView]:
        """Return all budgets in their current period."""
        state = (await self._loop.read()).state
        return budgets_of(budget_views(state, self._loop.now()), self._project)

    async def queues(self) -> list[QueueView]:
        """Return the named queues that the caller may use, in their order."""
        return queue_views((await self._loop.read()).state, self._project)

    async def policy(self) -> PolicyView:
        """Return the policies in use."""
        return await self._policies.show()

    async def frontier(self) -> FrontierView:
        """Return what other waits would have cost and saved."""
        return self._frontier.view()

    async def compute_frontier(self, request: FrontierRequest) -> FrontierView:
        """Begin to compute that again."""
        return self._frontier.start(request)

    @property
    def _frontier(self) -> PolicyFrontier:
        if self._project is not None:
            told = f"your token is limited to project {self._project!r}, and a frontier shows all projects; use `spill backtest`"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        if self._parts.frontier is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server cannot simulate its jobs")
        return self._parts.frontier

    async def policy_history(self) -> list[PolicyRecord]:
        """Return the last policy changes, newest first."""
        return await self._policies.history()

    async def create_token(self, request: TokenRequest, who: str) -> NewToken:
        """Create a token; return its secret, which cannot be read later."""
        return await self._tokens.create(request, who)

    async def tokens(self) -> list[TokenView]:
        """Return all tokens, newest first."""
        return await self._tokens.all()

    async def revoke_token(self, token: str, who: str) -> None:
        """Revoke a token."""
        await self._tokens.revoke(token, who)

    async def sign_in(self, request: SignInRequest, sender: Sender, who: str) -> NewSignIn:
        """Sign a person in; raise Stranger if its proof is not valid."""
        return await self._sign_ins.sign_in(request, sender, who)

    async def begin_oidc(self, url: str) -> OidcStart:
        """Begin to sign in at the provider; `url` is this server as the browser knows it."""
        return await self._sign_ins.begin_oidc(url)

    async def finish_oidc(self, back: OidcReturn, url: str, sender: Sender) -> NewSignIn:
        """Sign in a person who comes back from the provider; raise Stranger if that proves nothing."""
        return await self._sign_ins.finish_oidc(back, url, sender)

    async def sign_out(self, who: str) -> str:
        """End the sign-in of the caller; return its id."""
        return await self._sign_ins.sign_out(self._caller, who)

    async def sign_in_methods(self) -> SignInMethods:
        """Return how people can sign in."""
        return self._sign_ins.methods()

    async def sign_in_link(self, who: str) -> tuple[str, int]:
        """Return a code that signs its reader in as the caller, once, and when it ends in nanoseconds UTC."""
        return self._sign_ins.link(self._caller, who)

    async def me(self, who: str) -> Me:
        """Return who the caller is."""
        return self._sign_ins.me(self._caller, who)

    async def sign_ins(self) -> list[SignInView]:
        """Return the valid sign-ins of the caller, or for admins all, newest first."""
        return await self._sign_ins.all(self._caller)

    async def revoke_sign_in(self, sign_in: str, who: str) -> None:
        """End a sign-in."""
        await self._sign_ins.revoke(sign_in, self._caller, who)

    @property
    def _sign_ins(self) -> SignIns:
        if self._parts.sign_ins is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "nobody can sign in to this server")
        return self._parts.sign_ins

    @property
    def _tokens(self) -> Tokens:
        if self._parts.tokens is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server does not store tokens")
        return self._parts.tokens

    async def set_secret(self, request: SecretRequest, who: str) -> SecretView:
        """Set a secret."""
        return await self._secrets.set(request, who)

    async def secrets(self, project: str | None) -> list[SecretView]:
        """Return secrets without their values, by project and name; None for all projects."""
        return await self._secrets.list(project)

    async def remove_secret(self, ref: SecretRef, who: str) -> SecretRef:
        """Remove a secret."""
        return await self._secrets.remove(ref, who)

    async def rekey_secrets(self) -> RekeyOutcome:
        """Encrypt all secrets with the first key."""
        return await self._secrets.rekey()

    @property
    def _secrets(self) -> SecretRequests:
        if self._parts.vault is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server does not store secrets")
        return SecretRequests(self._loop, self._parts.vault, self._rights, self._project)

    async def notifications(self, failed: bool | None, limit: int, cursor: str | None) -> NotificationPage:
        """Return a page of notifications that were not sent, newest first."""
        return await self._notifications.page(failed, limit, cursor)

    async def act_on_notifications(self, action: NotificationAction) -> NotificationIds:
        """Send notifications again or drop them."""
        return await self._notifications.act(action)

    async def test_notification(self, request: NotificationTest, who: str) -> NotificationIds:
        """Send a notification to try whether it arrives."""
        return await self._notifications.test(request, who)

    @property
    def _notifications(self) -> NotificationRequests:
        parts = self._parts
        if parts.outbox is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server sends no notifications")
        return NotificationRequests(self._loop, parts.outbox, parts.settings, parts.delivering)

    def ready(self) -> str | None:
        """Return None if the server accepts work, else why it does not."""
        return self._loop.problem

    # --- helpers

    async def _view(self, found: Found) -> JobView:
        """Return a job as a list shows it; a pending member of an array looks like a job."""
        engine = await self._loop.read()
        reasons = views.Reasons(engine, self._project, self._place_reason, self._problem)
        match found:
            case Finished():
                return views.finished_view(found, engine.policies.chosen.unknown_runtime)
            case PendingMember():
                return views.pending_member(views.job_view(engine, found.array, reasons), found.id)
            case Job():
                return views.job_view(engine, found, reasons)
