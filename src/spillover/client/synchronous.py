"""The client for code that blocks."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from spillover.client import asks, transport
from spillover.client.asks import Ask
from spillover.client.blobs import Blob, Landing, Moving, Progress, Upload, batches, moving
from spillover.client.calling import ASK_AGAIN, Gathering, Options, Parcel, a_call, a_map
from spillover.client.calls import Call, Map, Reach
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


class Client:
    """A server, as Python sees it. Every method may raise SpillError; a job is an id, a unique prefix of one, or a unique name.

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

    @property
    def user(self) -> str:
        """Who asks."""
        return self._place.user

    def submit(self, jobs: Job | Iterable[Job] | None = None, /, **fields: Any) -> list[str]:
        """Submit jobs, all or none, and return their ids; or one by its fields: `submit(run="echo hi", cpu=2, walltime="10m")`."""
        return self._ask(asks.submit(self.pack(jobs, **fields)))

    def call(
        self, function: Callable[..., T], /, *args: Any, options: Options | None = None, **kwargs: Any
    ) -> Call[T]:
        """Call a function on some machine; `options` are fields of its job, such as `{"cpu": 2, "walltime": "10m"}`."""
        parcel = a_call(function, args, kwargs, options)
        return Call(self._reach(), Gathering(self._submit_parcel(parcel), None))

    def map(
        self,
        function: Callable[..., T],
        /,
        *items: Iterable[Any],
        options: Options | None = None,
        **kwargs: Any,
    ) -> Map[T]:
        """Call a function for each item, or with one of each of several iterables, as one array of jobs."""
        parcel, size = a_map(function, zip(*items, strict=False), kwargs, options)
        return Map(self._reach(), Gathering(self._submit_parcel(parcel) if parcel is not None else "", size))

    def call_of(self, job: str) -> Call[Any]:
        """The handle of a call that was submitted before, or of one of a map."""
        return Call(self._reach(), Gathering((self.job(job)).id, None))

    def map_of(self, job: str) -> Map[Any]:
        """The handle of a map that was submitted before."""
        found = self.job(job)
        if found.array is None:
            raise Refused(f"{found.id} is no array: use call_of", status=400, kind="invalid")
        return Map(self._reach(), Gathering(found.id, found.array.size))

    def _reach(self) -> Reach:
        """What handles of calls need."""
        return Reach(self._gather, self._value_of, self.cancel)

    def _gather(self, gathering: Gathering, seconds: float, first: int) -> list[int]:
        """Fetch results of calls that have ended, from an index on; waits for some seconds at the most if there is none."""
        return gathering.take(self._ask(gathering.ask(seconds, first)))

    def _value_of(self, result: ResultView) -> bytes | None:
        """What a call returned or raised, as it was pickled; None if that is nothing."""
        if result.value_digest is None:
            return result.value
        return b"".join(self.get_blob(result.value_digest))

    def _submit_parcel(self, parcel: Parcel) -> str:
        """Submit a job once the server has what it needs."""
        now = time.monotonic()
        unsure = [digest for digest in parcel.blobs if now - self._kept.get(digest, -ASK_AGAIN) >= ASK_AGAIN]
        for digest in self.missing(unsure) if unsure else ():
            self._ask(asks.put_blob(digest, Upload(parcel.blobs[digest])))
        self._kept.update(dict.fromkeys(unsure, now))
        (job,) = self._ask(asks.submit([parcel.doc]))
        return job

    def pack(
        self, jobs: Job | Iterable[Job] | None = None, /, *, progress: Moving | None = None, **fields: Any
    ) -> list[dict[str, Any]]:
        """Documents of jobs, to be submitted, whose inputs the server has; `progress` is told of what is uploaded."""
        docs = documents(jobs, fields)
        if not any(map(needs_packing, docs)):
            return docs
        most = (self.server()).max_inputs
        packed = pack(docs, most)
        missing = self.missing(packed.sources)
        told = moving(packed.bytes_of(missing), progress) if missing else None
        for digest in missing:
            try:
                self._ask(asks.put_blob(digest, Upload(packed.sources[digest], told)))
            except Refused as error:
                raise changed(packed.sources[digest], error) from None
        return packed.documents

    def files(self, job: str, attempt: int | None = None) -> FilesView:
        """The files that a job brought back in an attempt, the last that brought any if none is given."""
        return self._ask(asks.files(job, attempt))

    def fetch(
        self,
        job: str,
        folder: Path,
        *,
        attempt: int | None = None,
        force: bool = False,
        progress: Moving | None = None,
    ) -> list[Path]:
        """Write what a job brought back to a folder; returns the files that were not there. `force` writes over others."""
        view = self.files(job, attempt)
        todo = plan(view, folder, force=force)
        told = moving(todo.total, progress) if todo.wanted else None
        for file in todo.wanted:
            self.save_blob(file.digest, todo.path(file), told)
            landed(todo.path(file), file)
        return [todo.path(file) for file in todo.wanted]

    def forecast(self, jobs: Job | Iterable[Job] | None = None, /, **fields: Any) -> list[Forecast]:
        """Where and when jobs would start and what they would cost, without submitting them."""
        return self._ask(asks.forecast(documents(jobs, fields)))

    def jobs(
        self,
        *,
        state: str | None = None,
        project: str | None = None,
        user: str | None = None,
        name: str | None = None,
        since: str | datetime | None = None,
        members: bool = False,
        limit: int | None = None,
    ) -> Iterator[JobView]:
        """Jobs, newest first, fetched page by page as they are asked for."""
        cursor, left = None, limit
        while left is None or left > 0:
            size = min(left or asks.MOST_PAGE, asks.MOST_PAGE)
            page = self._ask(asks.page(state, project, user, name, since, members, size, cursor))
            yield from page.jobs
            cursor = page.next
            left = None if left is None else left - len(page.jobs)
            if cursor is None:
                return

    def job(self, job: str) -> JobDetail:
        """Everything that is known of a job."""
        return self._ask(asks.job(job))

    def why(self, job: str) -> WhyView:
        """Why a job is where it is, and what would change that."""
        return self._ask(asks.why(job))

    def cancel(self, *jobs: str) -> list[str]:
        """Stop jobs, or keep them from starting."""
        return self._ask(asks.act("cancel", jobs))

    def hold(self, *jobs: str) -> list[str]:
        """Keep queued jobs from starting until they are released."""
        return self._ask(asks.act("hold", jobs))

    def release(self, *jobs: str) -> list[str]:
        """Let held jobs go."""
        return self._ask(asks.act("release", jobs))

    def requeue(self, *jobs: str) -> list[str]:
        """Stop placed or running jobs and queue them again."""
        return self._ask(asks.act("requeue", jobs))

    def set_priority(self, job: str, priority: int) -> list[str]:
        """Change the priority of a job that has not been placed."""
        return self._ask(asks.set_priority(job, priority))

    def wait(self, *jobs: str, timeout: float | None = None) -> list[JobView]:
        """Wait until jobs have ended; raises WaitTimeout after `timeout` seconds."""
        flow = waiting(jobs, timeout, time.monotonic)
        attempts = Attempts(self._patience, time.monotonic)
        try:
            ask = next(flow)
            while True:
                view = self._ask(ask, attempts)
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
    ) -> Iterator[bytes]:
        """What a job wrote in an attempt, the newest if none is given; following, until that is over, or without one the job."""
        return self._stream(Output(job, follow=follow, stderr=stderr, attempt=attempt, task=task))

    def events(
        self, after: int | None = None, *, follow: bool = True, job: str | None = None
    ) -> Iterator[EventView]:
        """History after a revision; following, also what is to come, across restarts of the server."""
        if follow and after is None:
            after = self.server().revision
        yield from self._stream(History(after, follow=follow, job=job))

    def past(
        self,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        ended_since: str | datetime | None = None,
    ) -> Iterator[PastJob]:
        """Jobs that were submitted within a span and have ended, after a time if one is given, with what a simulation needs."""
        return self._stream(Past(since, until, ended_since))

    def clusters(self) -> list[ClusterView]:
        """All clusters."""
        return self._ask(asks.clusters())

    def agents(self) -> list[AgentView]:
        """All agents."""
        return self._ask(asks.agents())

    def drain(self, *agents: str) -> list[str]:
        """Give agents nothing more, until they are resumed; each is returned as CLUSTER/NAME."""
        return self._ask(asks.act_on_agents("drain", agents))

    def resume(self, *agents: str) -> list[str]:
        """Give agents work again that were drained."""
        return self._ask(asks.act_on_agents("resume", agents))

    def forget(self, *agents: str) -> list[str]:
        """Strike lost agents off the list."""
        return self._ask(asks.act_on_agents("forget", agents))

    def costs(
        self,
        by: Literal["project", "user", "cluster", "day", "week", "month"] = "project",
        since: str | datetime | None = None,
    ) -> CostReport:
        """What was spent by attempts that were over at or after a time, and on those under way."""
        return self._ask(asks.costs(by, since))

    def budgets(self) -> list[BudgetView]:
        """All budgets, in the period that is now."""
        return self._ask(asks.budgets())

    def server(self) -> ServerView:
        """The server itself."""
        return self._ask(asks.server())

    def overview(self, *, running: int = 50, queued: int = 50, agents: int = 1000) -> Overview:
        """Clusters, agents, what runs and the head of the queue, at one moment; at most so many of each."""
        return self._ask(asks.overview(running, queued, agents))

    def policy(self) -> PolicyView:
        """Which policies decide, since when, and what is wrong with them."""
        return self._ask(asks.policy())

    def set_policy(self, policy: str | None, *, dry_run: bool = False) -> PolicyOutcome:
        """Decide by other policies, as `wait=compute(0.1),order=priority`; None goes back to what spill.yaml says."""
        return self._ask(asks.set_policy(policy, dry_run=dry_run))

    def policy_history(self) -> list[PolicyRecord]:
        """The last changes of the policies, newest first."""
        return self._ask(asks.policy_history())

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Which blobs the server has not, each once."""
        return [digest for batch in batches(digests) for digest in self._ask(asks.missing(batch))]

    def put_blob(self, source: Source, progress: Progress | None = None) -> str:
        """Keep bytes, or those of a file, under their SHA-256, which is returned; what is there is not sent again."""
        digest = digest_of(source)
        if self.missing([digest]):
            self._ask(asks.put_blob(digest, Upload(source, progress)))
        return digest

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """The bytes of a SHA-256, piece by piece; raises at the end if they are others."""
        return self._stream(Blob(digest))

    def save_blob(self, digest: str, path: Path, progress: Progress | None = None) -> None:
        """Write the bytes of a SHA-256 to a file, which is there whole or not at all."""
        with Landing(path, progress) as file:
            for piece in self.get_blob(digest):
                file.write(piece)

    def agents_address(self) -> AgentsAddress:
        """Where agents find their service, and which clusters they may join; for tokens of role agent or admin."""
        return self._ask(asks.agents_address())

    def create_token(
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
        return self._ask(asks.create_token(request))

    def tokens(self) -> list[TokenView]:
        """All tokens, the newest first, without their secrets."""
        return self._ask(asks.tokens())

    def revoke_token(self, token: str) -> str:
        """Let nobody in with a token any more, by its id, which is returned."""
        return self._ask(asks.revoke_token(token))

    def ready(self) -> str | None:
        """None when the server accepts work, else what is missing."""
        return self._ask(asks.ready())

    def close(self) -> None:
        """Close connections."""
        if "_http" in self.__dict__:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _http(self) -> "httpx.Client":
        """The connections, once they are needed."""
        import httpx  # noqa: PLC0415 - heavy, and not every import of the client sends something

        return httpx.Client(**transport.settings(self._place))

    def _ask(self, ask: Ask[T], attempts: Attempts | None = None) -> T:
        """Send a request until it is answered or patience is over."""
        attempts = attempts or Attempts(self._patience, time.monotonic)
        while True:
            try:
                return self._once(ask)
            except SpillError as error:
                time.sleep(attempts.after(error, repeatable=ask.repeatable))
                self._place = self._place.again()

    def _once(self, ask: Ask[T]) -> T:
        """Send a request and read its answer."""
        import httpx  # noqa: PLC0415 - as above

        try:
            asked = transport.request(ask, self._place)
            if ask.upload is not None:
                asked["content"] = ask.upload.pieces()
            response = self._http.request(**asked)
        except httpx.TransportError as error:
            raise transport.failure(ask, self._place, error) from None
        return transport.answer(ask, self._place, response.status_code, response.content)

    def _stream(self, flow: Following[T]) -> Iterator[T]:
        """Read streams to their end, taking one up again where it breaks off."""
        attempts = Attempts(self._patience, time.monotonic)
        while True:
            try:
                if (look := flow.look()) is not None:
                    flow.looked(self._once(look))
                if flow.over:
                    return
                for chunk in self._chunks(flow.ask()):
                    attempts.succeeded(PERSIST)
                    yield from flow.take(chunk)
                flow.ended()
            except SpillError as error:
                flow.broke()
                time.sleep(attempts.after(error, repeatable=True))
                self._place = self._place.again()

    def _chunks(self, ask: Ask[bytes]) -> Iterator[bytes]:
        """The pieces of one answer; the first is empty and says that it has begun."""
        import httpx  # noqa: PLC0415 - as above

        try:
            with self._http.stream(**transport.request(ask, self._place)) as response:
                if response.status_code not in ask.good:
                    raise transport.refusal(ask, self._place, response.status_code, response.read())
                yield b""
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise transport.failure(ask, self._place, error) from None
