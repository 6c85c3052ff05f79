# Generated from client/asynchronous/client.py by `make client`: change that one.
"""The client for code that blocks."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from spillover.client import asks, transfers
from spillover.client.asks import ask
from spillover.client.blobs import Blob, Moving, Progress
from spillover.client.calling import CallOptions, a_call, a_map, call_of, map_of, submitted
from spillover.client.documents import Job, change_of, documents
from spillover.client.executing import END, Executed, Executing
from spillover.client.flows import HistoryFlow, OutputFlow, Pages, Past, waiting
from spillover.client.handles import Call
from spillover.client.packing import InputSizes
from spillover.client.synchronous.calls import Map
from spillover.client.synchronous.sender import Sender
from spillover.model.budget import CostBy, MachinesBy, UsageBy
from spillover.ports.blobs import Source
from spillover.wire import endpoints
from spillover.wire.api import (
    AgentDetail,
    AgentsAddress,
    AgentView,
    AuditView,
    BudgetView,
    ChangesView,
    CheckRequest,
    CheckView,
    ClockView,
    ClusterRequest,
    ClusterView,
    ConfigOutcome,
    ConfigRequest,
    CostReport,
    EventView,
    FilesView,
    Forecast,
    FrontierRequest,
    FrontierView,
    JobDetail,
    JobView,
    MachineCosts,
    Me,
    NewToken,
    NodeView,
    NotificationAction,
    NotificationTest,
    NotificationView,
    Overview,
    PastJob,
    Patch,
    PlannedView,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    PoolPause,
    PoolRef,
    PoolView,
    QueueView,
    Rerun,
    ReservationRef,
    ReservationRequest,
    ReservationView,
    SecretRef,
    SecretRequest,
    SecretView,
    Series,
    ServerView,
    SessionRequest,
    SignInLink,
    SignInMethods,
    SignInOutcome,
    SignInRef,
    SignInRequest,
    SignInView,
    SweepRequest,
    SweepView,
    TokenRef,
    TokenRequest,
    TokenView,
    UsageReport,
    WhatIf,
    WhatIfView,
    WhyView,
)
from spillover.wire.parameters import (
    AgentQuery,
    AuditQuery,
    CostQuery,
    EventsQuery,
    FilesQuery,
    MachineCostQuery,
    NodesQuery,
    NotificationsQuery,
    OfJob,
    OverviewQuery,
    SecretsQuery,
    SeriesQuery,
    UsageQuery,
)

T = TypeVar("T")


class Client(Sender):
    """A connection to a server.

    Every method may raise SpillError. A job is given by its id, a unique prefix of the id, or a unique name.

    The server and the token come from the arguments, else from SPILL_SERVER and SPILL_TOKEN or SPILL_TOKEN_FILE, else
    from the data folder (`data`, SPILL_DATA or ./spill-data). `ca` is a file with the CA to trust for TLS, else
    SPILL_CA. `patience` is how many seconds to retry requests to an unreachable server, where a retry is safe.
    """

    def submit(self, jobs: Job | Iterable[Job] | None = None, /, **fields: Any) -> list[str]:
        """Submit jobs, all or none, and return their ids; or one by its fields: `submit(run="echo hi", cpu=2)`."""
        return self._ask(asks.submit(self.pack(jobs, **fields)))

    def call(
        self, function: Callable[..., T], /, *args: Any, options: CallOptions | None = None, **kwargs: Any
    ) -> Call[T]:
        """Call a function on some machine; `options` are fields of its job, such as `{"cpu": 2, "walltime": "10m"}`."""
        parcel = a_call(function, args, kwargs, options)
        return Call(self._behind, self._run(submitted(parcel, None, self._kept)))

    def map(
        self,
        function: Callable[..., T],
        /,
        *items: Iterable[Any],
        options: CallOptions | None = None,
        **kwargs: Any,
    ) -> Map[T]:
        """Call a function for each item, or for items of several iterables in parallel, as one array of jobs."""
        parcel, size = a_map(function, zip(*items, strict=False), kwargs, options)
        return Map(self._behind, self._run(submitted(parcel, size, self._kept)))

    def call_of(self, job: str) -> Call[Any]:
        """Return the handle of an earlier call, or of one call of a map."""
        return Call(self._behind, self._run(call_of(job)))

    def map_of(self, job: str) -> Map[Any]:
        """Return the handle of an earlier map."""
        return Map(self._behind, self._run(map_of(job)))

    def pack(
        self,
        jobs: Job | Iterable[Job] | None = None,
        /,
        *,
        progress: Moving | None = None,
        sizes: Callable[[InputSizes], object] | None = None,
        **fields: Any,
    ) -> list[dict[str, Any]]:
        """Upload the inputs of jobs and return documents to submit.

        `sizes` is called once, before the upload, and `progress` during it.
        """
        return self._run(transfers.send_inputs(documents(jobs, fields), progress, sizes))

    def files(self, job: str, attempt: int | None = None) -> FilesView:
        """Return the output files of an attempt; by default, of the last attempt that has any."""
        return self._ask(ask(endpoints.FILES, FilesQuery(job, attempt)))

    def fetch(
        self,
        job: str,
        folder: Path,
        *,
        attempt: int | None = None,
        force: bool = False,
        progress: Moving | None = None,
    ) -> list[Path]:
        """Write the output files of a job to a folder and return those that were new; `force` overwrites others."""
        return self._run(transfers.fetch(job, folder, attempt, progress, force=force))

    def forecast(self, jobs: Job | Iterable[Job] | None = None, /, **fields: Any) -> list[Forecast]:
        """Predict where and when jobs would start and what they would cost, without submitting them."""
        return self._ask(asks.forecast(documents(jobs, fields)))

    def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        project: str | None = None,
        user: str | None = None,
        name: str | None = None,
        since: str | datetime | None = None,
        members: bool = False,
        limit: int | None = None,
        starts: bool = False,
        queue: str | None = None,
    ) -> Iterator[JobView]:
        """Yield jobs in any of some states, newest first, fetching pages on demand; with `starts`, also when waiting ones will start."""
        wanted_jobs = asks.selected(
            state,
            since,
            project=project,
            user=user,
            name=name,
            members=members,
            starts=starts,
            queue=queue,
        )
        pages = Pages(partial(asks.page, wanted_jobs), lambda page: page.jobs, limit)
        while (wanted := pages.ask()) is not None:
            yield from pages.take(self._ask(wanted))

    def job(self, job: str) -> JobDetail:
        """Return all details of a job."""
        return self._ask(ask(endpoints.SHOW, OfJob(job)))

    def exec(self, job: str, command: Sequence[str], *, task: int = 0) -> Executed:
        """Run a command beside a task that runs, with empty standard input; return its exit code and what it printed."""
        asked = SessionRequest("exec", task, list(command))
        session = self._ask(ask(endpoints.OPEN_SESSION, OfJob(job), asked, repeatable=False))
        gathered = Executing()
        with closing(self._chunks(asks.session_output(session.id))) as chunks:
            self._ask(asks.session_input(session.id, 0, END))
            for chunk in chunks:
                gathered.take(chunk)
        return gathered.done()

    def why(self, job: str) -> WhyView:
        """Explain why a job is in its state, and what would change that."""
        return self._ask(ask(endpoints.WHY, OfJob(job)))

    def what_if(self, job: str, assumption: WhatIf) -> WhatIfView:
        """Explain what would happen to a job under an assumption, without changing anything."""
        return self._ask(ask(endpoints.WHAT_IF, OfJob(job), assumption))

    def changes(self, job: str) -> ChangesView:
        """Find the smallest changes that would let a waiting job start now, and what is ahead of it; change nothing."""
        return self._ask(ask(endpoints.CHANGES, OfJob(job), seconds=asks.BULK))

    def cancel(self, *jobs: str, states: str | Sequence[str] = (), dry_run: bool = False) -> list[str]:
        """Cancel jobs.

        With `states`, such as `"QUEUED,RUNNING"`, only what of them is in these states, also within arrays. With
        `dry_run` nothing changes. Returns what was or would be changed; with neither, all jobs.
        """
        return self._ask(asks.act("cancel", jobs, states, dry_run))

    def hold(self, *jobs: str, states: str | Sequence[str] = (), dry_run: bool = False) -> list[str]:
        """Hold queued jobs until they are released. `states` and `dry_run` as for `cancel`."""
        return self._ask(asks.act("hold", jobs, states, dry_run))

    def release(self, *jobs: str, states: str | Sequence[str] = (), dry_run: bool = False) -> list[str]:
        """Release held jobs. `states` and `dry_run` as for `cancel`."""
        return self._ask(asks.act("release", jobs, states, dry_run))

    def requeue(self, *jobs: str, states: str | Sequence[str] = (), dry_run: bool = False) -> list[str]:
        """Stop placed or running jobs and queue them again. `states` and `dry_run` as for `cancel`."""
        return self._ask(asks.act("requeue", jobs, states, dry_run))

    def rerun(
        self,
        *jobs: str,
        failed: bool = False,
        changes: Mapping[str, Any] | None = None,
        empty_state: bool = False,
    ) -> list[str]:
        """Submit jobs again and return the new ids; `failed` runs only the failed members of arrays.

        `changes` are fields of a job file that differ, such as `{"spec": {"walltime": "2h"}}`. A job with `keep_state`
        begins with the folder that it left, unless `empty_state` is true.
        """
        request = Rerun(list(jobs), failed, dict(changes or {}), empty_state)
        again = ask(endpoints.RERUN, body=request, repeatable=False, seconds=asks.BULK)
        return self._ask(asks.traced(again).giving(asks.submitted))

    def set_priority(self, job: str, priority: int) -> list[str]:
        """Change the priority of a job that has not been placed."""
        return self._ask(ask(endpoints.PATCH, OfJob(job), Patch(priority)).giving(asks.submitted))

    def change(self, job: str, /, **fields: Any) -> list[str]:
        """Change a job that waits, or the walltime of one that runs, as in `change("train", walltime="2h")`.

        Fields are those of `submit`: `name`, `walltime`, `cpu`, `memory`, `gpu`, `estimate`, `deadline`, `queue`,
        `after`, `priority`. None removes a limit. `throttle` is the most members of an array at a time, 0 for all.
        """
        return self._ask(ask(endpoints.PATCH, OfJob(job), change_of(fields)).giving(asks.submitted))

    def wait(self, *jobs: str, timeout: float | None = None) -> list[JobView]:
        """Wait until jobs have ended; raise WaitTimeout after `timeout` seconds."""
        return self._run(waiting(jobs, timeout, time.monotonic), self._attempts())

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        stderr: bool = False,
        attempt: int | None = None,
        task: int = 0,
    ) -> Iterator[bytes]:
        """Yield the output of an attempt; by default of the newest and, with `follow`, of later ones until the end."""
        return self._stream(OutputFlow(job, follow=follow, stderr=stderr, attempt=attempt, task=task))

    def events(
        self,
        after: int | None = None,
        *,
        follow: bool = True,
        job: str | None = None,
        user: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        cycles: bool = True,
    ) -> Iterator[EventView]:
        """Yield events after a revision; with `follow`, also new ones, across restarts of the server."""
        begin, end = asks.moment(since), asks.moment(until)
        return self._stream(HistoryFlow(EventsQuery(after, follow, job, user, begin, end, cycles)))

    def audit(
        self,
        *,
        user: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        type: str | None = None,  # noqa: A002 - the word of events
        job: str | None = None,
        project: str | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditView]:
        """Yield what people did, newest first, fetching pages on demand."""
        query = AuditQuery(user, asks.moment(since), asks.moment(until), type, job, project)
        pages = Pages(partial(asks.audit, query), lambda page: page.entries, limit)
        while (wanted := pages.ask()) is not None:
            yield from pages.take(self._ask(wanted))

    def past(
        self,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        ended_since: str | datetime | None = None,
    ) -> Iterator[PastJob]:
        """Yield finished jobs that were submitted in a time span, with the data that a simulation needs."""
        return self._stream(Past(since, until, ended_since))

    def clusters(self) -> list[ClusterView]:
        """Return all clusters."""
        return self._ask(ask(endpoints.CLUSTERS))

    def add_cluster(self, cluster: Mapping[str, Any], *, check: bool = True) -> ClusterView:
        """Add a cluster, as an entry of `clusters` in spill.yaml; `check` refuses one that is unreachable now."""
        return self._ask(ask(endpoints.ADD_CLUSTER, body=ClusterRequest(dict(cluster), check)))

    def drain_clusters(self, *clusters: str) -> list[str]:
        """Start no more jobs on clusters until they are resumed; running jobs continue."""
        return self._ask(asks.act_on_clusters("drain", clusters))

    def resume_clusters(self, *clusters: str) -> list[str]:
        """Start jobs on drained clusters again; also cancels a removal."""
        return self._ask(asks.act_on_clusters("resume", clusters))

    def remove_clusters(
        self, *clusters: str, jobs: Literal["finish", "move", "cancel"] = "finish"
    ) -> list[str]:
        """Remove clusters when no job is left there; `jobs` says what to do with jobs there."""
        return self._ask(asks.act_on_clusters("remove", clusters, jobs))

    def apply_config(
        self, *, dry_run: bool = False, jobs: Literal["finish", "move", "cancel"] = "finish"
    ) -> ConfigOutcome:
        """Reload the server's configuration; `jobs` applies to clusters that it no longer names."""
        return self._ask(ask(endpoints.CONFIGURE, body=ConfigRequest(dry_run, jobs)))

    def agents(self) -> list[AgentView]:
        """Return all agents."""
        return self._ask(ask(endpoints.AGENTS))

    def nodes(self, cluster: str = "") -> list[NodeView]:
        """Return the nodes of an external cluster, or of all of them, as last seen."""
        return self._ask(ask(endpoints.NODES, NodesQuery(cluster)))

    def agent(self, agent: str) -> AgentDetail:
        """Return an agent, by its name or as CLUSTER/NAME, with what runs there."""
        return self._ask(ask(endpoints.SHOW_AGENT, AgentQuery(agent)))

    def drain(self, *agents: str, reason: str = "") -> list[str]:
        """Start no more tasks on agents until they are resumed; returns each as CLUSTER/NAME."""
        return self._ask(asks.act_on_agents("drain", agents, reason))

    def resume(self, *agents: str) -> list[str]:
        """Start tasks on drained agents again."""
        return self._ask(asks.act_on_agents("resume", agents))

    def forget(self, *agents: str) -> list[str]:
        """Remove lost agents from the list."""
        return self._ask(asks.act_on_agents("forget", agents))

    def costs(
        self,
        by: CostBy = "project",
        since: str | datetime | None = None,
    ) -> CostReport:
        """Return the cost of attempts that ended at or after a time, and of running ones."""
        return self._ask(ask(endpoints.COSTS, CostQuery(by, asks.moment(since))))

    def usage(
        self,
        by: UsageBy | Sequence[UsageBy] = "project",
        since: str | datetime | None = None,
    ) -> UsageReport:
        """Return what jobs used in CPU, GPU and memory hours, in groups: attempts that run or ended since a time."""
        keys = by if isinstance(by, str) else ",".join(by)
        return self._ask(ask(endpoints.USAGE, UsageQuery(keys, asks.moment(since))))

    def machine_costs(
        self,
        by: MachinesBy = "pool",
        since: str | datetime | None = None,
    ) -> MachineCosts:
        """Return what rented machines cost that exist, or were gone on the day of a time or later, and for what."""
        return self._ask(ask(endpoints.MACHINE_COSTS, MachineCostQuery(by, asks.moment(since))))

    def budgets(self) -> list[BudgetView]:
        """Return all budgets in the current period."""
        return self._ask(ask(endpoints.BUDGETS))

    def check(self, text: str, *, name: str = "job.yaml", forecast: bool = False) -> CheckView:
        """Return what is wrong with the text of a job file or script, or the jobs in it; submit nothing.

        With `forecast`, the scheduler also says where and when they would start.
        """
        return self._ask(ask(endpoints.CHECK, body=CheckRequest(text, name, forecast)))

    def series(self, since: str | datetime | None = None) -> Series:
        """Return what clusters had and used, what waited and what rent cost since a time; by default the last hour."""
        return self._ask(ask(endpoints.SERIES, SeriesQuery(asks.moment(since))))

    def queues(self) -> list[QueueView]:
        """Return the named queues, with their limits and what is in them."""
        return self._ask(ask(endpoints.QUEUES))

    def server(self) -> ServerView:
        """Return the server's version, state and limits."""
        return self._ask(ask(endpoints.SERVER))

    def overview(self, *, running: int = 50, queued: int = 50, agents: int = 1000) -> Overview:
        """Return a snapshot of clusters, agents, running jobs and the head of the queue; at most so many of each."""
        return self._ask(ask(endpoints.OVERVIEW, OverviewQuery(running, queued, agents)))

    def policy(self) -> PolicyView:
        """Return the policies in effect, since when, and their errors."""
        return self._ask(ask(endpoints.POLICY))

    def set_policy(self, policy: str | None, *, dry_run: bool = False) -> PolicyOutcome:
        """Set policies, such as `wait=compute(0.1),order=priority`; None restores those of spill.yaml."""
        return self._ask(ask(endpoints.SET_POLICY, body=PolicyPatch(policy, dry_run)))

    def frontier(self) -> FrontierView:
        """Return what other waits would have cost and saved for the last jobs, as computed last."""
        return self._ask(ask(endpoints.FRONTIER))

    def compute_frontier(self, span_s: float = 604_800) -> FrontierView:
        """Begin to compute that frontier for the jobs submitted in so many seconds before now; for admins."""
        return self._ask(ask(endpoints.COMPUTE_FRONTIER, body=FrontierRequest(span_s), repeatable=False))

    def policy_history(self) -> list[PolicyRecord]:
        """Return the latest changes of the policies, newest first."""
        return self._ask(ask(endpoints.POLICY_HISTORY))

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the distinct blobs that the server does not have."""
        return self._run(transfers.missing(digests))

    def put_blob(self, source: Source, progress: Progress | None = None) -> str:
        """Upload bytes or a file under its SHA-256, unless the server has it, and return that."""
        return self._run(transfers.put_blob(source, progress))

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """Yield the content of a blob in pieces; raise at the end if it does not match its digest."""
        return self._stream(Blob(digest))

    def save_blob(self, digest: str, path: Path, progress: Progress | None = None) -> None:
        """Download a blob to a file, which appears only when it is complete."""
        self._run(transfers.save_blob(digest, path, progress))

    def agents_address(self) -> AgentsAddress:
        """Return the address for agents, and which clusters they may join; for tokens of role agent or admin."""
        return self._ask(ask(endpoints.AGENTS_ADDRESS))

    def reservations(self) -> list[ReservationView]:
        """Return the capacity that is reserved, in the order of its start."""
        return self._ask(ask(endpoints.RESERVATIONS))

    def reserve(
        self,
        start: str,
        length: str,
        *,
        nodes: int | None = None,
        names: Sequence[str] = (),
        all_nodes: bool = False,
        project: str | None = None,
        maintenance: bool = False,
        cluster: str | None = None,
        within: str | None = None,
        needs: Sequence[str] = (),
        name: str | None = None,
        ignore_jobs: bool = False,
        dry_run: bool = False,
    ) -> ReservationView:
        """Reserve nodes for a project or for maintenance; with `dry_run`, only tell which. For admins."""
        request = ReservationRequest(
            start,
            length,
            nodes,
            list(names),
            all_nodes,
            project,
            maintenance,
            cluster,
            within,
            list(needs),
            name,
            ignore_jobs,
            dry_run,
        )
        return self._ask(ask(endpoints.RESERVE, body=request, repeatable=dry_run))

    def unreserve(self, name: str) -> str:
        """Cancel an advance reservation by its name, and return the name. For admins."""
        return (self._ask(ask(endpoints.UNRESERVE, body=ReservationRef(name)))).name

    def pools(self) -> list[PoolView]:
        """Return all pools with their machines and offers."""
        return self._ask(ask(endpoints.POOLS))

    def pool_plan(self) -> list[PlannedView]:
        """Return what pools would order, drain and end now. For admins."""
        return self._ask(ask(endpoints.POOL_PLAN))

    def pause_pool(self, cluster: str, *, why: str = "", end: bool = False) -> PoolView:
        """Order no more machines in a pool; with `end`, end all of them. For admins."""
        return self._ask(ask(endpoints.PAUSE_POOL, body=PoolPause(cluster, why, end), repeatable=True))

    def resume_pool(self, cluster: str) -> PoolView:
        """Order machines in a pool again. For admins."""
        return self._ask(ask(endpoints.RESUME_POOL, body=PoolRef(cluster), repeatable=True))

    def sweep_pools(self, *clusters: str, dry_run: bool = False) -> list[SweepView]:
        """Return machines at providers that are ours and not wanted, and end them unless it is a dry run. For admins."""
        request = SweepRequest(list(clusters), dry_run)
        return self._ask(ask(endpoints.SWEEP_POOLS, body=request, repeatable=True, seconds=asks.BULK))

    def clock(self) -> ClockView:
        """Return whether the server trusts the clock of its machine."""
        return self._ask(ask(endpoints.CLOCK))

    def accept_clock(self) -> ClockView:
        """Make the server follow its machine's clock after a jump that it did not trust. For admins."""
        return self._ask(ask(endpoints.ACCEPT_CLOCK, repeatable=False))

    def create_token(
        self,
        role: Literal["agent", "read", "submit", "maintain", "admin"],
        *,
        project: str | None = None,
        user: str | None = None,
        cluster: str | None = None,
        expires: float | None = None,
        note: str = "",
    ) -> NewToken:
        """Create a token that may expire after some seconds; only this answer has its text. For admins."""
        request = TokenRequest(role, project, user, cluster, expires, note)
        return self._ask(ask(endpoints.CREATE_TOKEN, body=request, repeatable=False))

    def tokens(self) -> list[TokenView]:
        """Return all tokens, newest first, without their secrets. For admins."""
        return self._ask(ask(endpoints.TOKENS))

    def revoke_token(self, token: str) -> str:
        """Revoke a token by its id, and return the id. For admins."""
        return (self._ask(ask(endpoints.REVOKE_TOKEN, body=TokenRef(token)))).id

    def me(self) -> Me:
        """Return who the server takes this client for."""
        return self._ask(ask(endpoints.ME))

    def sign_in_methods(self) -> SignInMethods:
        """Return how people can sign in."""
        return self._ask(ask(endpoints.SIGN_IN_METHODS))

    def sign_in(
        self,
        *,
        token: str | None = None,
        code: str | None = None,
        id_token: str | None = None,
        access_token: str | None = None,
        user: str | None = None,
    ) -> SignInOutcome:
        """Sign in with one of three; with an `id_token`, the answer has a token for later requests."""
        request = SignInRequest(token, code, id_token, access_token, user)
        return self._ask(ask(endpoints.SIGN_IN, body=request, repeatable=False))

    def sign_out(self) -> str:
        """End the sign-in whose token this client uses, and return its id."""
        return (self._ask(ask(endpoints.SIGN_OUT, repeatable=False))).id

    def sign_in_link(self) -> SignInLink:
        """Make a link that signs its reader in as the user of this client, once, within a minute."""
        return self._ask(ask(endpoints.SIGN_IN_LINK, repeatable=False))

    def sign_ins(self) -> list[SignInView]:
        """Return one's valid sign-ins, newest first; for admins, those of everybody."""
        return self._ask(ask(endpoints.SIGN_INS))

    def revoke_sign_in(self, sign_in: str) -> str:
        """End a sign-in by its id, and return the id."""
        return (self._ask(ask(endpoints.REVOKE_SIGN_IN, body=SignInRef(sign_in)))).id

    def set_secret(
        self, name: str, value: str | bytes, *, project: str | None = None, users: Sequence[str] | None = None
    ) -> SecretView:
        """Set a secret of a project, which only jobs of some users may use if they are named. For maintainers."""
        data = value.encode() if isinstance(value, str) else value
        request = SecretRequest(name, project, None, data, None if users is None else list(users))
        return self._ask(ask(endpoints.SET_SECRET, body=request))

    def secrets(self, *, project: str | None = None) -> list[SecretView]:
        """Return the secrets, without their values."""
        return self._ask(ask(endpoints.SECRETS, SecretsQuery(project)))

    def remove_secret(self, name: str, *, project: str | None = None) -> SecretRef:
        """Remove a secret. For maintainers."""
        return self._ask(ask(endpoints.REMOVE_SECRET, body=SecretRef(name, project), repeatable=False))

    def rekey_secrets(self) -> int:
        """Encrypt all secrets with the first key of the key file, and return how many had another. For admins."""
        return (self._ask(ask(endpoints.REKEY_SECRETS))).secrets

    def ready(self) -> str | None:
        """Return None if the server accepts work, else why it does not."""
        return self._ask(asks.ready())

    def notifications(
        self, *, failed: bool | None = None, limit: int | None = None
    ) -> Iterator[NotificationView]:
        """Yield notifications that wait or failed, newest first, fetching pages on demand. For admins."""
        pages = Pages(
            partial(asks.notifications, NotificationsQuery(failed)), lambda page: page.notifications, limit
        )
        while (wanted := pages.ask()) is not None:
            yield from pages.take(self._ask(wanted))

    def retry_notifications(self, *ids: str, failed: bool = False) -> list[str]:
        """Send notifications again at once, by their ids or all failed ones; return their ids. For admins."""
        return self._on_notifications("retry", ids, failed=failed)

    def drop_notifications(self, *ids: str, failed: bool = False) -> list[str]:
        """Delete notifications that were not sent, by their ids or all failed ones; return their ids. For admins."""
        return self._on_notifications("drop", ids, failed=failed)

    def test_notification(self, to: str) -> str:
        """Send a notification to an address or a webhook, to try whether it arrives; return its id. For admins."""
        (identity,) = (
            self._ask(ask(endpoints.TEST_NOTIFICATION, body=NotificationTest(to), repeatable=False))
        ).ids
        return identity

    def _on_notifications(
        self, act: Literal["retry", "drop"], ids: Sequence[str], *, failed: bool
    ) -> list[str]:
        action = NotificationAction(act, list(ids), failed)
        asked = ask(endpoints.ACT_ON_NOTIFICATIONS, body=action, repeatable=act == "retry")
        return (self._ask(asked)).ids
