"""The client for asyncio."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from spillover.client import asks, transfers
from spillover.client.asks import ask
from spillover.client.asynchronous.calls import AsyncCall, AsyncMap
from spillover.client.asynchronous.sender import AsyncSender
from spillover.client.blobs import Blob, Moving, Progress
from spillover.client.calling import CallOptions, a_call, a_map, call_of, map_of, submitted
from spillover.client.documents import Job, documents
from spillover.client.flows import HistoryFlow, OutputFlow, Pages, Past, waiting
from spillover.model.budget import CostBy
from spillover.ports.blobs import Source
from spillover.wire import endpoints
from spillover.wire.api import (
    AgentsAddress,
    AgentView,
    BudgetView,
    ClockView,
    ClusterRequest,
    ClusterView,
    ConfigOutcome,
    ConfigRequest,
    CostReport,
    EventView,
    FilesView,
    Forecast,
    JobDetail,
    JobView,
    NewToken,
    Overview,
    PastJob,
    Patch,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    ServerView,
    TokenRef,
    TokenRequest,
    TokenView,
    WhatIf,
    WhatIfView,
    WhyView,
)
from spillover.wire.parameters import CostQuery, FilesQuery, OfJob, OverviewQuery

T = TypeVar("T")


class AsyncClient(AsyncSender):
    """A server, as Python sees it. Every method may raise SpillError; a job is an id, a unique prefix of one, or a unique name.

    Where the server is and who asks: the arguments, else SPILL_SERVER and SPILL_TOKEN or SPILL_TOKEN_FILE, else the data folder (`data`,
    SPILL_DATA or ./spill-data). `ca` is a file of the authority to trust where the server speaks TLS, else SPILL_CA. `patience` is how many
    seconds to go on asking a server that is away, where asking twice does no harm.
    """

    async def submit(self, jobs: Job | Iterable[Job] | None = None, /, **fields: Any) -> list[str]:
        """Submit jobs, all or none, and return their ids; or one by its fields: `submit(run="echo hi", cpu=2, walltime="10m")`."""
        return await self._ask(asks.submit(await self.pack(jobs, **fields)))

    async def call(
        self, function: Callable[..., T], /, *args: Any, options: CallOptions | None = None, **kwargs: Any
    ) -> AsyncCall[T]:
        """Call a function on some machine; `options` are fields of its job, such as `{"cpu": 2, "walltime": "10m"}`."""
        parcel = a_call(function, args, kwargs, options)
        return AsyncCall(self._run, await self._run(submitted(parcel, None, self._kept)))

    async def map(
        self,
        function: Callable[..., T],
        /,
        *items: Iterable[Any],
        options: CallOptions | None = None,
        **kwargs: Any,
    ) -> AsyncMap[T]:
        """Call a function for each item, or with one of each of several iterables, as one array of jobs."""
        parcel, size = a_map(function, zip(*items, strict=False), kwargs, options)
        return AsyncMap(self._run, await self._run(submitted(parcel, size, self._kept)))

    async def call_of(self, job: str) -> AsyncCall[Any]:
        """The handle of a call that was submitted before, or of one of a map."""
        return AsyncCall(self._run, await self._run(call_of(job)))

    async def map_of(self, job: str) -> AsyncMap[Any]:
        """The handle of a map that was submitted before."""
        return AsyncMap(self._run, await self._run(map_of(job)))

    async def pack(
        self, jobs: Job | Iterable[Job] | None = None, /, *, progress: Moving | None = None, **fields: Any
    ) -> list[dict[str, Any]]:
        """Documents of jobs, to be submitted, whose inputs the server has; `progress` is told of what is uploaded."""
        return await self._run(transfers.send_inputs(documents(jobs, fields), progress))

    async def files(self, job: str, attempt: int | None = None) -> FilesView:
        """The files that a job brought back in an attempt, the last that brought any if none is given."""
        return await self._ask(ask(endpoints.FILES, FilesQuery(job, attempt)))

    async def fetch(
        self,
        job: str,
        folder: Path,
        *,
        attempt: int | None = None,
        force: bool = False,
        progress: Moving | None = None,
    ) -> list[Path]:
        """Write what a job brought back to a folder; returns the files that were not there. `force` writes over others."""
        return await self._run(transfers.fetch(job, folder, attempt, progress, force=force))

    async def forecast(self, jobs: Job | Iterable[Job] | None = None, /, **fields: Any) -> list[Forecast]:
        """Where and when jobs would start and what they would cost, without submitting them."""
        return await self._ask(asks.forecast(documents(jobs, fields)))

    async def jobs(
        self,
        *,
        state: str | None = None,
        project: str | None = None,
        user: str | None = None,
        name: str | None = None,
        since: str | datetime | None = None,
        members: bool = False,
        limit: int | None = None,
    ) -> AsyncGenerator[JobView, None]:
        """Jobs, newest first, fetched page by page as they are asked for."""
        pages = Pages(partial(asks.page, state, project, user, name, since, members), limit)
        while (wanted := pages.ask()) is not None:
            for job in pages.take(await self._ask(wanted)):
                yield job

    async def job(self, job: str) -> JobDetail:
        """Everything that is known of a job."""
        return await self._ask(ask(endpoints.SHOW, OfJob(job)))

    async def why(self, job: str) -> WhyView:
        """Why a job is where it is, and what would change that."""
        return await self._ask(ask(endpoints.WHY, OfJob(job)))

    async def what_if(self, job: str, assumption: WhatIf) -> WhatIfView:
        """What would become of a job under an assumption; nothing of it is done."""
        return await self._ask(ask(endpoints.WHAT_IF, OfJob(job), assumption))

    async def cancel(self, *jobs: str) -> list[str]:
        """Stop jobs, or keep them from starting."""
        return await self._ask(asks.act("cancel", jobs))

    async def hold(self, *jobs: str) -> list[str]:
        """Keep queued jobs from starting until they are released."""
        return await self._ask(asks.act("hold", jobs))

    async def release(self, *jobs: str) -> list[str]:
        """Let held jobs go."""
        return await self._ask(asks.act("release", jobs))

    async def requeue(self, *jobs: str) -> list[str]:
        """Stop placed or running jobs and queue them again."""
        return await self._ask(asks.act("requeue", jobs))

    async def set_priority(self, job: str, priority: int) -> list[str]:
        """Change the priority of a job that has not been placed."""
        return (await self._ask(ask(endpoints.PATCH, OfJob(job), Patch(priority)))).jobs

    async def wait(self, *jobs: str, timeout: float | None = None) -> list[JobView]:  # noqa: ASYNC109 - an argument in both clients
        """Wait until jobs have ended; raises WaitTimeout after `timeout` seconds."""
        return await self._run(waiting(jobs, timeout, time.monotonic), self._attempts())

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        stderr: bool = False,
        attempt: int | None = None,
        task: int = 0,
    ) -> AsyncGenerator[bytes, None]:
        """What a job wrote in an attempt, the newest if none is given; following, until that is over, or without one the job."""
        return self._stream(OutputFlow(job, follow=follow, stderr=stderr, attempt=attempt, task=task))

    def events(
        self, after: int | None = None, *, follow: bool = True, job: str | None = None
    ) -> AsyncGenerator[EventView, None]:
        """History after a revision; following, also what is to come, across restarts of the server."""
        return self._stream(HistoryFlow(after, follow=follow, job=job))

    def past(
        self,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        ended_since: str | datetime | None = None,
    ) -> AsyncGenerator[PastJob, None]:
        """Jobs that were submitted within a span and have ended, after a time if one is given, with what a simulation needs."""
        return self._stream(Past(since, until, ended_since))

    async def clusters(self) -> list[ClusterView]:
        """All clusters."""
        return await self._ask(ask(endpoints.CLUSTERS))

    async def add_cluster(self, cluster: Mapping[str, Any], *, check: bool = True) -> ClusterView:
        """Add a cluster, written as an entry of `clusters` in spill.yaml; `check` refuses one that cannot be reached now."""
        return await self._ask(ask(endpoints.ADD_CLUSTER, body=ClusterRequest(dict(cluster), check)))

    async def drain_clusters(self, *clusters: str) -> list[str]:
        """Give clusters nothing more, until they are resumed; what runs there goes on."""
        return await self._ask(asks.act_on_clusters("drain", clusters))

    async def resume_clusters(self, *clusters: str) -> list[str]:
        """Give clusters work again that were drained, or were being removed."""
        return await self._ask(asks.act_on_clusters("resume", clusters))

    async def remove_clusters(
        self, *clusters: str, jobs: Literal["finish", "move", "cancel"] = "finish"
    ) -> list[str]:
        """Remove clusters once nothing is left there; `jobs` says what becomes of what runs there."""
        return await self._ask(asks.act_on_clusters("remove", clusters, jobs))

    async def apply_config(
        self, *, dry_run: bool = False, jobs: Literal["finish", "move", "cancel"] = "finish"
    ) -> ConfigOutcome:
        """Have the server read its configuration again; `jobs` is for clusters that it does not name any more."""
        return await self._ask(ask(endpoints.CONFIGURE, body=ConfigRequest(dry_run, jobs)))

    async def agents(self) -> list[AgentView]:
        """All agents."""
        return await self._ask(ask(endpoints.AGENTS))

    async def drain(self, *agents: str) -> list[str]:
        """Give agents nothing more, until they are resumed; each is returned as CLUSTER/NAME."""
        return await self._ask(asks.act_on_agents("drain", agents))

    async def resume(self, *agents: str) -> list[str]:
        """Give agents work again that were drained."""
        return await self._ask(asks.act_on_agents("resume", agents))

    async def forget(self, *agents: str) -> list[str]:
        """Strike lost agents off the list."""
        return await self._ask(asks.act_on_agents("forget", agents))

    async def costs(
        self,
        by: CostBy = "project",
        since: str | datetime | None = None,
    ) -> CostReport:
        """What was spent by attempts that were over at or after a time, and on those under way."""
        return await self._ask(ask(endpoints.COSTS, CostQuery(by, asks.moment(since))))

    async def budgets(self) -> list[BudgetView]:
        """All budgets, in the period that is now."""
        return await self._ask(ask(endpoints.BUDGETS))

    async def server(self) -> ServerView:
        """The server itself."""
        return await self._ask(ask(endpoints.SERVER))

    async def overview(self, *, running: int = 50, queued: int = 50, agents: int = 1000) -> Overview:
        """Clusters, agents, what runs and the head of the queue, at one moment; at most so many of each."""
        return await self._ask(ask(endpoints.OVERVIEW, OverviewQuery(running, queued, agents)))

    async def policy(self) -> PolicyView:
        """Which policies decide, since when, and what is wrong with them."""
        return await self._ask(ask(endpoints.POLICY))

    async def set_policy(self, policy: str | None, *, dry_run: bool = False) -> PolicyOutcome:
        """Decide by other policies, as `wait=compute(0.1),order=priority`; None goes back to what spill.yaml says."""
        return await self._ask(ask(endpoints.SET_POLICY, body=PolicyPatch(policy, dry_run)))

    async def policy_history(self) -> list[PolicyRecord]:
        """The last changes of the policies, newest first."""
        return await self._ask(ask(endpoints.POLICY_HISTORY))

    async def missing(self, digests: Iterable[str]) -> list[str]:
        """Which blobs the server has not, each once."""
        return await self._run(transfers.missing(digests))

    async def put_blob(self, source: Source, progress: Progress | None = None) -> str:
        """Keep bytes, or those of a file, under their SHA-256, which is returned; what is there is not sent again."""
        return await self._run(transfers.put_blob(source, progress))

    def get_blob(self, digest: str) -> AsyncGenerator[bytes, None]:
        """The bytes of a SHA-256, piece by piece; raises at the end if they are others."""
        return self._stream(Blob(digest))

    async def save_blob(self, digest: str, path: Path, progress: Progress | None = None) -> None:
        """Write the bytes of a SHA-256 to a file, which is there whole or not at all."""
        await self._run(transfers.save_blob(digest, path, progress))

    async def agents_address(self) -> AgentsAddress:
        """Where agents find their service, and which clusters they may join; for tokens of role agent or admin."""
        return await self._ask(ask(endpoints.AGENTS_ADDRESS))

    async def clock(self) -> ClockView:
        """What the server believes of the clock of its machine."""
        return await self._ask(ask(endpoints.CLOCK))

    async def accept_clock(self) -> ClockView:
        """Have the server follow the clock of its machine, which jumped too far to be believed. For admins."""
        return await self._ask(ask(endpoints.ACCEPT_CLOCK, repeatable=False))

    async def create_token(
        self,
        role: Literal["agent", "submit", "admin"],
        *,
        project: str | None = None,
        user: str | None = None,
        cluster: str | None = None,
        expires: float | None = None,
        note: str = "",
    ) -> NewToken:
        """Make a token, which may end after some seconds; its text is told this once. For admins, as the next two."""
        request = TokenRequest(role, project, user, cluster, expires, note)
        return await self._ask(ask(endpoints.CREATE_TOKEN, body=request, repeatable=False))

    async def tokens(self) -> list[TokenView]:
        """All tokens, the newest first, without their secrets."""
        return await self._ask(ask(endpoints.TOKENS))

    async def revoke_token(self, token: str) -> str:
        """Let nobody in with a token any more, by its id, which is returned."""
        return (await self._ask(ask(endpoints.REVOKE_TOKEN, body=TokenRef(token)))).id

    async def ready(self) -> str | None:
        """None when the server accepts work, else what is missing."""
        return await self._ask(asks.ready())
