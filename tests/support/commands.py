"""An in-memory server side of the HTTP API: no scheduler, only what is needed to see requests arrive and answers leave.

Tests of the API, of the client and of the command line's output put it behind the real HTTP server.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Self

import msgspec

from spillover.forms.jobs import JobForm, to_doc
from spillover.model.ids import job_id
from spillover.model.units import format_time
from spillover.ports.archive import CostBy
from spillover.ports.callers import Caller
from spillover.ports.commands import CommandError, JobChanges, JobQuery, Kind, Span
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentNames,
    AgentView,
    BudgetView,
    ClockView,
    ClusterAction,
    ClusterNames,
    ClusterRequest,
    ClusterView,
    ConfigChange,
    ConfigOutcome,
    ConfigRequest,
    CostReport,
    CostView,
    EventView,
    FieldProblem,
    FilesView,
    FileView,
    Forecast,
    Forecasts,
    Ids,
    JobDetail,
    JobPage,
    JobView,
    NewToken,
    Overview,
    PastJob,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    ReasonView,
    ResultPage,
    ResultsAsked,
    ResultView,
    ServerView,
    TokenRequest,
    TokenView,
    WhyView,
)

_ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"})
_AT = "2027-01-31T18:00:00.000000Z"
FRESH = ReasonView("fresh", "was just submitted; the next cycle looks at it", never=False)


class FakeCommands:
    """Jobs that do what a test tells them to."""

    def __init__(self) -> None:
        self.all: dict[str, JobDetail] = {}
        """By id, oldest first."""
        self.keys: dict[tuple[str, str], str] = {}
        """Ids by idempotency key."""
        self.history: list[EventView] = []
        self.ended: list[PastJob] = []
        """What `past` answers."""
        self.written: dict[tuple[str, bool], bytes] = {}
        """Output by job and whether it is stderr."""
        self.brought: dict[str, list[FileView]] = {}
        """Files by job."""
        self.made: dict[str, TokenView] = {}
        """Tokens by id."""
        self.calls: list[str] = []
        """Who asked for what, in order."""
        self.time = ClockView(
            _AT, _AT, "followed", 0.0, 0, 0, "the server's time follows the machine's clock"
        )
        """What `clock` answers."""
        self.missing: str | None = None
        """What `ready` answers."""
        self.failures: list[Exception] = []
        """Raised by the next calls, one each."""
        self.changed = asyncio.Condition()
        self.asked = asyncio.Event()
        """Set by every call."""

    # What a test does

    async def end(self, ref: str, state: str = "SUCCEEDED", code: int | None = 0) -> None:
        """End a job."""
        job = self._find(ref)
        self.all[job.id] = msgspec.structs.replace(job, state=state, exit_code=code, finished_at=_AT)
        await self.happen("job_finished", job.id)

    async def write(self, ref: str, data: bytes, *, stderr: bool = False) -> None:
        """Let a job write something."""
        key = (self._find(ref).id, stderr)
        self.written[key] = self.written.get(key, b"") + data
        await self._wake()

    async def happen(self, kind: str, job: str | None = None) -> None:
        """Add to history."""
        self.history.append(EventView(len(self.history) + 1, _AT, kind, job, f"{kind} {job or ''}".strip()))
        await self._wake()

    async def until(self, call: str) -> None:
        """Wait until the server was asked for something."""
        async with asyncio.timeout(10):
            while call not in self.calls:
                self.asked.clear()
                await self.asked.wait()

    async def _wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    # What the API calls

    async def submit(self, jobs: Sequence[JobForm], user: str) -> tuple[str, ...]:
        """Take jobs; one whose key is known is the one that was taken before."""
        self._called(f"submit {len(jobs)} by {user}")
        ids: list[str] = []
        for form in jobs:
            known = self.keys.get((form.spec.project, form.key)) if form.key else None
            ids.append(known or await self._take(form, user))
        return tuple(ids)

    async def _take(self, form: JobForm, user: str) -> str:
        job = job_id(len(self.all) * 0x9E3779B97F4A7C15 % 2**60)
        spec = form.spec
        self.all[job] = JobDetail(
            id=job,
            name=spec.name,
            user=user,
            project=spec.project,
            queue=spec.queue,
            state="QUEUED",
            cluster=None,
            node=None,
            attempt=1,
            reason=FRESH,
            submitted_at=_AT,
            started_at=None,
            finished_at=None,
            exit_code=None,
            signal=None,
            cost=0.0,
            estimate_s=None,
            priority=spec.priority,
            spec=to_doc(form),
        )
        if form.key:
            self.keys[spec.project, form.key] = job
        await self.happen("job_submitted", job)
        return job

    async def forecast(self, jobs: Sequence[JobForm], user: str) -> Forecasts:
        """All would wait."""
        self._called(f"forecast {len(jobs)} by {user}")
        return Forecasts([Forecast(job.spec.name, None, None, None, FRESH, None, None, None) for job in jobs])

    async def jobs(self, query: JobQuery) -> JobPage:
        """Newest first; the cursor is how many came before."""
        self._called(f"jobs {query}")
        if query.cursor is not None and not query.cursor.isdecimal():
            raise CommandError(Kind.INVALID, "the cursor is not one of this server")
        found: list[JobView] = [
            job
            for job in reversed(self.all.values())
            if query.state in {None, job.state}
            and query.project in {None, job.project}
            and query.user in {None, job.user}
            and query.name in {None, job.name}
        ]
        start = min(int(query.cursor or "0"), len(found))
        end = start + query.limit
        return JobPage(found[start:end], str(end) if end < len(found) else None)

    async def job(self, ref: str) -> JobDetail:
        """One job."""
        self._called(f"job {ref}")
        return self._find(ref)

    async def why(self, ref: str) -> WhyView:
        """Always fresh."""
        self._called(f"why {ref}")
        job = self._find(ref)
        return WhyView(
            job.id, job.state, FRESH, f"{job.id} {FRESH.message}", _AT, 0.0, None, None, 0, None, None, []
        )

    async def act(self, action: Action, who: str) -> Ids:
        """Change states."""
        self._called(f"{action.act} by {who}")
        jobs = [self._find(ref) for ref in action.jobs]
        state = {"cancel": "CANCELLED", "hold": "HELD", "release": "QUEUED", "requeue": "QUEUED"}[action.act]
        for job in jobs:
            if job.state in _ENDED:
                raise CommandError(Kind.CONFLICT, f"{job.id} has ended")
        for job in jobs:
            self.all[job.id] = msgspec.structs.replace(job, state=state)
            await self.happen(f"job_{action.act}", job.id)
        return Ids([job.id for job in jobs])

    async def set_priority(self, ref: str, priority: int, who: str) -> Ids:
        """Change a priority."""
        self._called(f"set_priority {priority} by {who}")
        job = self._find(ref)
        self.all[job.id] = msgspec.structs.replace(job, priority=priority)
        return Ids([job.id])

    async def results(self, ref: str, asked: ResultsAsked) -> ResultPage:
        """Of a job that has ended, that it did."""
        self._called(f"results {ref}")
        job = self._find(ref)
        if job.state not in _ENDED:
            return ResultPage([])
        result = ResultView(job.id, job.state, job.exit_code, job.signal, job.reason, b"null", None)
        return ResultPage([result][: asked.limit])

    async def wait(self, ref: str, timeout: float) -> JobView:  # noqa: ASYNC109 - as the port has it
        """The job when it ended, or as it is."""
        self._called(f"wait {ref}")
        job = self._find(ref)
        try:
            async with asyncio.timeout(timeout), self.changed:
                await self.changed.wait_for(lambda: self.all[job.id].state in _ENDED)
        except TimeoutError:
            pass
        return self.all[job.id]

    async def output(
        self, ref: str, *, attempt: int | None, task: int, stderr: bool, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        """What a test let the job write."""
        self._called(f"output {ref} attempt={attempt} task={task} offset={offset}")
        return self._output(self._find(ref).id, stderr, offset, follow)

    async def _output(self, job: str, stderr: bool, offset: int, follow: bool) -> AsyncIterator[bytes]:
        while True:
            data = self.written.get((job, stderr), b"")[offset:]
            for start in range(0, len(data), 1024):
                yield data[start : start + 1024]
            offset += len(data)
            if not follow or (self.all[job].state in _ENDED and not data):
                return
            async with self.changed:
                while (
                    self.all[job].state not in _ENDED and len(self.written.get((job, stderr), b"")) <= offset
                ):
                    await self.changed.wait()

    async def files(self, ref: str, attempt: int | None) -> FilesView:
        """What a test let the job bring back."""
        self._called(f"files {ref} attempt={attempt}")
        job = self._find(ref)
        return FilesView(job.id, attempt or 1, [1], self.brought.get(job.id, []))

    async def events(self, after: int | None, follow: bool, job: str | None) -> AsyncIterator[EventView]:
        """What happened."""
        self._called(f"events after={after} follow={follow}")
        wanted = self._find(job).id if job else None
        seen = after if after is not None else len(self.history) if follow else 0
        while True:
            for event in self.history[seen:]:
                if wanted in {None, event.job}:
                    yield event
                seen = event.revision
            if not follow:
                return
            async with self.changed:
                while len(self.history) <= seen:
                    await self.changed.wait()

    async def watch(
        self, after: int | None, jobs: Sequence[str], project: str | None
    ) -> AsyncIterator[JobChanges]:
        """Nothing ever changes."""
        self._called(f"watch {after} {' '.join(jobs)} {project}")
        yield JobChanges(after or 0, [])

    async def past(self, span: Span) -> AsyncIterator[PastJob]:
        """Those that a test put there, whatever the span."""
        self._called(f"past {span.since} {span.until} {span.ended_since}")
        for job in self.ended:
            yield job

    async def clusters(self) -> list[ClusterView]:
        """One."""
        self._called("clusters")
        return [ClusterView("onprem", "agents", "owned", "READY", 1, {"cpu": 2.0}, {"cpu": 0.0}, 0, {})]

    async def agents(self) -> list[AgentView]:
        """One."""
        self._called("agents")
        return [AgentView("n1", "onprem", "ready", {"cpu": 2.0}, {"cpu": 0.0}, 0, 0, [], {}, _AT)]

    async def add_cluster(self, request: ClusterRequest, who: str) -> ClusterView:
        """It has a name, and is not there yet."""
        name = str(request.cluster.get("name", ""))
        self._called(f"{who}: add {name} {msgspec.json.encode(request.cluster).decode()}")
        if not name:
            raise CommandError(Kind.INVALID, "name: is missing", [FieldProblem("name", "is missing")])
        if name == "onprem":
            raise CommandError(Kind.CONFLICT, "there is a cluster 'onprem' already; remove it first")
        return ClusterView(name, "agents", "owned", "REQUESTED", 0, {}, {}, 0, {}, life="requested")

    async def act_on_clusters(self, action: ClusterAction, who: str) -> ClusterNames:
        """Its one cluster is configured."""
        self._called(f"{who}: {action.act} {' '.join(action.clusters)} {action.jobs}")
        for name in action.clusters:
            if name != "onprem":
                raise CommandError(Kind.UNKNOWN, f"there is no cluster {name!r} here; known: onprem")
        return ClusterNames(action.clusters)

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """One cluster more."""
        self._called(f"{who}: configure {request.dry_run} {request.jobs}")
        changes = [ConfigChange("cluster lab", "added", "of kind agents, owned")]
        return ConfigOutcome(changes, done=not request.dry_run)

    async def act_on_agents(self, action: AgentAction, who: str) -> AgentNames:
        """Its one agent is neither lost nor unknown."""
        self._called(f"{who}: {action.act} {' '.join(action.agents)}")
        for name in action.agents:
            if name not in {"n1", "onprem/n1"}:
                raise CommandError(Kind.UNKNOWN, f"there is no agent {name!r}; `spill agents` lists them")
        if action.act == "forget":
            raise CommandError(Kind.CONFLICT, "agent n1 is ready; only a lost one can be forgotten")
        return AgentNames(["onprem/n1"])

    async def server(self) -> ServerView:
        """Itself."""
        self._called("server")
        queued = sum(job.state == "QUEUED" for job in self.all.values())
        return ServerView("0", 1, True, True, None, "USD", len(self.history), queued, 0, {"order": "fifo"})

    async def overview(self, running: int, queued: int, agents: int) -> Overview:
        """Itself and its jobs."""
        self._called(f"overview {running} {queued} {agents}")
        waiting: list[JobView] = [job for job in self.all.values() if job.state == "QUEUED"]
        return Overview(
            at=format_time(0),
            server=await self.server(),
            ended_a_minute=0,
            cost_an_hour=0.0,
            clusters=await self.clusters(),
            agents=(await self.agents())[:agents],
            agents_in_all=1,
            running=[],
            running_in_all=0,
            queued=waiting[:queued],
        )

    async def costs(self, by: CostBy, since: int | None) -> CostReport:
        """One row."""
        self._called(f"costs by {by} since {since}")
        when = None if since is None else format_time(since)
        rows = [CostView("vision", 3, 12.5, 1.0, 2.0)]
        return CostReport(by, when, "USD", rows, CostView("total", 3, 12.5, 1.0, 2.0))

    async def budgets(self) -> list[BudgetView]:
        """One."""
        self._called("budgets")
        return [
            BudgetView("project", "vision", "month", "2027-01", _AT, 500.0, 12.5, 2.0, 485.5, 0.0),
        ]

    async def policy(self) -> PolicyView:
        """The default."""
        self._called("policy")
        return PolicyView("order=fifo", [], 1000, 3600.0, None, None, None, "order=fifo", differs=False)

    async def set_policy(self, patch: PolicyPatch, who: str) -> PolicyOutcome:
        """Nothing changes."""
        self._called(f"set policy {patch.policy} by {who}")
        return PolicyOutcome("order=fifo", patch.policy or "order=fifo", [], done=not patch.dry_run)

    async def policy_history(self) -> list[PolicyRecord]:
        """One change."""
        self._called("policy history")
        return [PolicyRecord(_AT, "ada", "set", "order=lifo", "order=fifo", ["order: lifo -> fifo"], None)]

    def of(self, caller: Caller) -> Self:
        """See Commands: whose jobs these are does not matter here."""
        del caller
        return self

    async def create_token(self, request: TokenRequest, who: str) -> NewToken:
        """See Commands."""
        self.calls.append(f"{who} create_token {request.role}")
        name = f"token{len(self.made)}"
        expires = None if request.expires_s is None else _AT
        self.made[name] = TokenView(
            id=name,
            role=request.role,
            state="valid",
            project=request.project,
            user=request.user,
            cluster=request.cluster,
            created_at=_AT,
            created_by=who,
            expires_at=expires,
            revoked_at=None,
            revoked_by=None,
            used_at=None,
            note=request.note,
        )
        return NewToken(name, f"spt_{name}_secret", expires)

    async def tokens(self) -> list[TokenView]:
        """See Commands."""
        return list(reversed(self.made.values()))

    async def revoke_token(self, token: str, who: str) -> None:
        """See Commands."""
        if token not in self.made:
            raise CommandError(Kind.UNKNOWN, f"there is no token {token}; `spill token list` has them all")
        gone = msgspec.structs.replace(self.made[token], state="revoked", revoked_at=_AT, revoked_by=who)
        self.made[token] = gone

    async def clock(self) -> ClockView:
        """As a test has it."""
        return self.time

    async def accept_clock(self, who: str) -> ClockView:
        """Follow it, if it was held back."""
        self._called(f"accept_clock by {who}")
        if self.time.state != "held":
            raise CommandError(Kind.CONFLICT, f"there is nothing to accept: {self.time.message}")
        self.time = msgspec.structs.replace(self.time, state="followed", now=self.time.wall, differs_s=0.0)
        return self.time

    def ready(self) -> str | None:
        """What a test set."""
        return self.missing

    def _called(self, what: str) -> None:
        """Note a call, and fail it if a test asked for that."""
        self.calls.append(what)
        self.asked.set()
        if self.failures:
            raise self.failures.pop(0)

    def _find(self, ref: str) -> JobDetail:
        """The job of an id, a unique prefix, or a unique name."""
        if ref in self.all:
            return self.all[ref]
        found = [job for job in self.all.values() if job.name == ref or job.id.startswith(ref)]
        if not found:
            raise CommandError(Kind.UNKNOWN, f"no job is called {ref}")
        if len(found) > 1:
            raise CommandError(Kind.AMBIGUOUS, f"{len(found)} jobs are meant by {ref}")
        return found[0]
