"""The client for asyncio: method by method the same as `Client`."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from spillover.client import asks, transport
from spillover.client.asks import Ask
from spillover.client.async_calls import AsyncCall, AsyncMap, AsyncReach
from spillover.client.blobs import Blob, Landing, Moving, Progress, Upload, batches, moving
from spillover.client.calling import ASK_AGAIN, Gathering, Options, Parcel, a_call, a_map
from spillover.client.documents import Job, documents
from spillover.client.errors import Refused, SpillError
from spillover.client.fetching import landed, plan
from spillover.client.flows import PERSIST, Attempts, Following, History, Output, Past, waiting
from spillover.client.packing import changed, needs_packing, pack
from spillover.client.place import find
from spillover.ports.blobs import Source, digest_of
from spillover.wire.api import (
    AgentsAddress,
    AgentView,
    BudgetView,
    ClusterView,
    CostReport,
    EventView,
    FilesView,
    Forecast,
    JobDetail,
    JobView,
    NewToken,
    Overview,
    PastJob,
    PolicyOutcome,
    PolicyRecord,
    PolicyView,
    ResultView,
    ServerView,
    TokenRequest,
    TokenView,
    WhyView,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class AsyncClient:
    """A server, as asyncio sees it. Every method may raise SpillError; a job is an id, a unique prefix of one, or a unique name.

    Where the server is and who asks: the arguments, else SPILL_SERVER and SPILL_TOKEN or SPILL_TOKEN_FILE, else the data folder (`data`,
    SPILL_DATA or ./spill-data). `ca` is a file of the authority to trust where the server speaks TLS, else SPILL_CA. `patience` is how many
    seconds to go on asking a server that is away, where asking twice does no harm.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        data: str | Path | None = None,
        user: str | None = None,
        patience: float = 0.0,
        ca: str | Path | None = None,
        token_file: str | Path | None = None,
    ) -> None:
        self._place = find(server, token, data, user, ca, token_file)
        self._patience = patience
        self._kept: dict[str, float] = {}
        """Blobs that the server has, and when that was known."""

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._place.url

    async def submit(self, jobs: Job | Iterable[Job] | None = None, /, **fields: Any) -> list[str]:
        """Submit jobs, all or none, and return their ids; or one by its fields: `submit(run="echo hi", cpu=2, walltime="10m")`."""
        return await self._ask(asks.submit(await self.pack(jobs, **fields)))

    async def call(
        self, function: Callable[..., T], /, *args: Any, options: Options | None = None, **kwargs: Any
    ) -> AsyncCall[T]:
        """Call a function on some machine; `options` are fields of its job, such as `{"cpu": 2, "walltime": "10m"}`."""
        parcel = a_call(function, args, kwargs, options)
        return AsyncCall(self._reach(), Gathering(await self._submit_parcel(parcel), None))

    async def map(
        self,
        function: Callable[..., T],
        /,
        *items: Iterable[Any],
        options: Options | None = None,
        **kwargs: Any,
    ) -> AsyncMap[T]:
        """Call a function for each item, or with one of each of several iterables, as one array of jobs."""
        parcel, size = a_map(function, zip(*items, strict=False), kwargs, options)
        return AsyncMap(
            self._reach(), Gathering(await self._submit_parcel(parcel) if parcel is not None else "", size)
        )

    async def call_of(self, job: str) -> AsyncCall[Any]:
        """The handle of a call that was submitted before, or of one of a map."""
        return AsyncCall(self._reach(), Gathering((await self.job(job)).id, None))

    async def map_of(self, job: str) -> AsyncMap[Any]:
        """The handle of a map that was submitted before."""
        found = await self.job(job)
        if found.array is None:
            raise Refused(f"{found.id} is no array: use call_of", status=400, kind="invalid")
        return AsyncMap(self._reach(), Gathering(found.id, found.array.size))

    def _reach(self) -> AsyncReach:
        """What handles of calls need."""
        return AsyncReach(self._gather, self._value_of, self.cancel)

    async def _gather(self, gathering: Gathering, seconds: float, first: int) -> list[int]:
        """Fetch results of calls that have ended, from an index on; waits for some seconds at the most if there is none."""
        return gathering.take(await self._ask(gathering.ask(seconds, first)))

    async def _value_of(self, result: ResultView) -> bytes | None:
        """What a call returned or raised, as it was pickled; None if that is nothing."""
        if result.value_digest is None:
            return result.value
        return b"".join([piece async for piece in self.get_blob(result.value_digest)])

    async def _submit_parcel(self, parcel: Parcel) -> str:
        """Submit a job once the server has what it needs."""
        now = time.monotonic()
        unsure = [digest for digest in parcel.blobs if now - self._kept.get(digest, -ASK_AGAIN) >= ASK_AGAIN]
        for digest in await self.missing(unsure) if unsure else ():
            await self._ask(asks.put_blob(digest, Upload(parcel.blobs[digest])))
        self._kept.update(dict.fromkeys(unsure, now))
        (job,) = await self._ask(asks.submit([parcel.doc]))
        return job

    async def pack(
        self, jobs: Job | Iterable[Job] | None = None, /, *, progress: Moving | None = None, **fields: Any
    ) -> list[dict[str, Any]]:
        """Documents of jobs, to be submitted, whose inputs the server has; `progress` is told of what is uploaded."""
        docs = documents(jobs, fields)
        if not any(map(needs_packing, docs)):
            return docs
        most = (await self.server()).max_inputs
        packed = await asyncio.to_thread(pack, docs, most)
        missing = await self.missing(packed.sources)
        told = moving(packed.bytes_of(missing), progress) if missing else None
        for digest in missing:
            try:
                await self._ask(asks.put_blob(digest, Upload(packed.sources[digest], told)))
            except Refused as error:
                raise changed(packed.sources[digest], error) from None
        return packed.documents

    async def files(self, job: str, attempt: int | None = None) -> FilesView:
        """The files that a job brought back in an attempt, the last that brought any if none is given."""
        return await self._ask(asks.files(job, attempt))

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
        view = await self.files(job, attempt)
        todo = await asyncio.to_thread(partial(plan, view, folder, force=force))
        told = moving(todo.total, progress) if todo.wanted else None
        for file in todo.wanted:
            await self.save_blob(file.digest, todo.path(file), told)
            landed(todo.path(file), file)
        return [todo.path(file) for file in todo.wanted]

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
        cursor, left = None, limit
        while left is None or left > 0:
            size = min(left or asks.MOST_PAGE, asks.MOST_PAGE)
            page = await self._ask(asks.page(state, project, user, name, since, members, size, cursor))
            for job in page.jobs:
                yield job
            cursor = page.next
            left = None if left is None else left - len(page.jobs)
            if cursor is None:
                return

    async def job(self, job: str) -> JobDetail:
        """Everything that is known of a job."""
        return await self._ask(asks.job(job))

    async def why(self, job: str) -> WhyView:
        """Why a job is where it is, and what would change that."""
        return await self._ask(asks.why(job))

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
        return await self._ask(asks.set_priority(job, priority))

    async def wait(self, *jobs: str, timeout: float | None = None) -> list[JobView]:  # noqa: ASYNC109 - as `Client` has it
        """Wait until jobs have ended; raises WaitTimeout after `timeout` seconds."""
        flow = waiting(jobs, timeout, time.monotonic)
        attempts = Attempts(self._patience, time.monotonic)
        try:
            ask = next(flow)
            while True:
                view = await self._ask(ask, attempts)
                attempts.succeeded(PERSIST)
                ask = flow.send(view)
        except StopIteration as end:
            ended: list[JobView] = end.value
            return ended

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
        return self._stream(Output(job, follow=follow, stderr=stderr, attempt=attempt, task=task))

    async def events(
        self, after: int | None = None, *, follow: bool = True, job: str | None = None
    ) -> AsyncGenerator[EventView, None]:
        """History after a revision; following, also what is to come, across restarts of the server."""
        if follow and after is None:
            after = (await self.server()).revision
        async with aclosing(self._stream(History(after, follow=follow, job=job))) as stream:
            async for event in stream:
                yield event

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
        return await self._ask(asks.clusters())

    async def agents(self) -> list[AgentView]:
        """All agents."""
        return await self._ask(asks.agents())

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
        by: Literal["project", "user", "cluster", "day", "week", "month"] = "project",
        since: str | datetime | None = None,
    ) -> CostReport:
        """What was spent by attempts that were over at or after a time, and on those under way."""
        return await self._ask(asks.costs(by, since))

    async def budgets(self) -> list[BudgetView]:
        """All budgets, in the period that is now."""
        return await self._ask(asks.budgets())

    async def server(self) -> ServerView:
        """The server itself."""
        return await self._ask(asks.server())

    async def overview(self, *, running: int = 50, queued: int = 50, agents: int = 1000) -> Overview:
        """Clusters, agents, what runs and the head of the queue, at one moment; at most so many of each."""
        return await self._ask(asks.overview(running, queued, agents))

    async def policy(self) -> PolicyView:
        """Which policies decide, since when, and what is wrong with them."""
        return await self._ask(asks.policy())

    async def set_policy(self, policy: str | None, *, dry_run: bool = False) -> PolicyOutcome:
        """Decide by other policies, as `wait=compute(0.1),order=priority`; None goes back to what spill.yaml says."""
        return await self._ask(asks.set_policy(policy, dry_run=dry_run))

    async def policy_history(self) -> list[PolicyRecord]:
        """The last changes of the policies, newest first."""
        return await self._ask(asks.policy_history())

    async def missing(self, digests: Iterable[str]) -> list[str]:
        """Which blobs the server has not, each once."""
        return [digest for batch in batches(digests) for digest in await self._ask(asks.missing(batch))]

    async def put_blob(self, source: Source, progress: Progress | None = None) -> str:
        """Keep bytes, or those of a file, under their SHA-256, which is returned; what is there is not sent again."""
        digest = await asyncio.to_thread(digest_of, source)
        if await self.missing([digest]):
            await self._ask(asks.put_blob(digest, Upload(source, progress)))
        return digest

    def get_blob(self, digest: str) -> AsyncGenerator[bytes, None]:
        """The bytes of a SHA-256, piece by piece; raises at the end if they are others."""
        return self._stream(Blob(digest))

    async def save_blob(self, digest: str, path: Path, progress: Progress | None = None) -> None:
        """Write the bytes of a SHA-256 to a file, which is there whole or not at all."""
        with Landing(path, progress) as file:
            async with aclosing(self.get_blob(digest)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)

    async def agents_address(self) -> AgentsAddress:
        """Where agents find their service, and which clusters they may join; for tokens of role agent or admin."""
        return await self._ask(asks.agents_address())

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
        return await self._ask(asks.create_token(request))

    async def tokens(self) -> list[TokenView]:
        """All tokens, the newest first, without their secrets."""
        return await self._ask(asks.tokens())

    async def revoke_token(self, token: str) -> str:
        """Let nobody in with a token any more, by its id, which is returned."""
        return await self._ask(asks.revoke_token(token))

    async def ready(self) -> str | None:
        """None when the server accepts work, else what is missing."""
        return await self._ask(asks.ready())

    async def close(self) -> None:
        """Close connections."""
        if "_http" in self.__dict__:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @cached_property
    def _http(self) -> "httpx.AsyncClient":
        """The connections, once they are needed."""
        import httpx  # noqa: PLC0415 - heavy, and not every import of the client sends something

        return httpx.AsyncClient(**transport.settings(self._place))

    async def _ask(self, ask: Ask[T], attempts: Attempts | None = None) -> T:
        """Send a request until it is answered or patience is over."""
        attempts = attempts or Attempts(self._patience, time.monotonic)
        while True:
            try:
                return await self._once(ask)
            except SpillError as error:
                await asyncio.sleep(attempts.after(error, repeatable=ask.repeatable))
                self._place = self._place.again()

    async def _once(self, ask: Ask[T]) -> T:
        """Send a request and read its answer."""
        import httpx  # noqa: PLC0415 - as above

        try:
            asked = transport.request(ask, self._place)
            if ask.upload is not None:
                asked["content"] = ask.upload.apieces()
            response = await self._http.request(**asked)
        except httpx.TransportError as error:
            raise transport.failure(ask, self._place, error) from None
        return transport.answer(ask, self._place, response.status_code, response.content)

    async def _stream(self, flow: Following[T]) -> AsyncGenerator[T, None]:
        """Read streams to their end, taking one up again where it breaks off."""
        attempts = Attempts(self._patience, time.monotonic)
        while True:
            try:
                if (look := flow.look()) is not None:
                    flow.looked(await self._once(look))
                if flow.over:
                    return
                async with aclosing(self._chunks(flow.ask())) as chunks:
                    async for chunk in chunks:
                        attempts.succeeded(PERSIST)
                        for item in flow.take(chunk):
                            yield item
                flow.ended()
            except SpillError as error:
                flow.broke()
                await asyncio.sleep(attempts.after(error, repeatable=True))
                self._place = self._place.again()

    async def _chunks(self, ask: Ask[bytes]) -> AsyncGenerator[bytes, None]:
        """The pieces of one answer; the first is empty and says that it has begun."""
        import httpx  # noqa: PLC0415 - as above

        try:
            async with self._http.stream(**transport.request(ask, self._place)) as response:
                if response.status_code not in ask.good:
                    raise transport.refusal(ask, self._place, response.status_code, await response.aread())
                yield b""
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx.TransportError as error:
            raise transport.failure(ask, self._place, error) from None
