"""Executors: the interface of `concurrent.futures` over the cluster, and the same for asyncio."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from concurrent import futures
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, Unpack

from spillover.client.calling import name_of
from spillover.forms.jobs.meaning import clean_name
from spillover.wire.jobfile import ResourcesDoc, SpecDoc

if TYPE_CHECKING:
    from spillover.client.asynchronous.calls import AsyncMap
    from spillover.client.asynchronous.client import AsyncClient
    from spillover.client.calling import CallOptions
    from spillover.client.handles import AsyncCall, Call
    from spillover.client.synchronous.calls import Map
    from spillover.client.synchronous.client import Client

T = TypeVar("T")
_FIELDS: Final = frozenset(
    {*SpecDoc.__struct_fields__, *ResourcesDoc.__struct_fields__, "name", "project", "labels"}
)
"""Fields that jobs of calls have."""
_CLOSED: Final = "cannot schedule new futures after shutdown"
MOST_IDS: Final = 10_000
"""Most jobs to cancel with one request."""


class Where(TypedDict, total=False):
    """The server of an executor, as the arguments of `Client`."""

    server: str | None
    token: str | None
    data: str | Path | None
    user: str | None
    patience: float
    ca: str | Path | None
    token_file: str | Path | None


class Executor(futures.Executor):
    """Calls functions on the cluster, for programs that use `concurrent.futures`.

    Each `submit` is one job, and each `map` one array. `options` are fields of all its jobs, as in `Client.call`. The
    server comes from a client, or from the arguments of one.
    """

    def __init__(
        self, client: "Client | None" = None, *, options: "CallOptions | None" = None, **where: Unpack[Where]
    ) -> None:
        from spillover.client.synchronous.client import Client  # noqa: PLC0415 - the other executor does not need it

        _check(client, options, where)
        self.client = Client(**where) if client is None else client
        """The client that it uses, for all other requests."""
        self._owns = client is None
        self._options = options
        self._lock = Lock()
        self._closed = False
        self._pending: set[Call[Any]] = set()
        self._maps: list[Map[Any]] = []
        """Maps that may not have ended."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Call[T]":
        """Call a function on some machine. It is submitted when this returns; a refusal is raised at once."""
        self._check_open()
        fn, kwargs = _bound(fn, kwargs)
        call = self.client.call(fn, *args, options=self._options, **kwargs)
        with self._lock:
            self._pending.add(call)
        call.add_done_callback(self._forget)
        return call

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Call a function for each item, as one array; return the values in order.

        With `chunksize`, each job makes so many calls, for short functions. If it is not read to its end, calls that
        have not ended are cancelled.
        """
        self._check_open()
        until = None if timeout is None else time.monotonic() + timeout
        function, items, options = _mapped(fn, iterables, chunksize, self._options)
        runs: Map[Any] = self.client.map(function, *items, options=options)
        with self._lock:
            self._maps.append(runs)
        return self._values(runs, until, chunked=chunksize > 1)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; with `wait`, return when all have ended. Without it, they go on, and so does the client.

        `cancel_futures` cancels calls that do not run yet.
        """
        with self._lock:
            self._closed = True
            pending, maps = list(self._pending), list(self._maps)
        if cancel_futures:
            self._cancel(pending, maps)
        if wait:
            futures.wait(pending)
            for runs in maps:
                for _ in runs.as_completed():
                    pass
            if self._owns:
                self.client.close()

    def _values(self, runs: "Map[Any]", until: float | None, *, chunked: bool) -> Generator[Any, None, None]:
        """Yield the values of a map."""
        over = False
        try:
            for index in range(len(runs)):
                left = None if until is None else max(0.0, until - time.monotonic())
                value = runs[index].result(left)
                if chunked:
                    yield from value
                else:
                    yield value
            over = True
        finally:
            if not over and len(runs):
                runs.cancel()
            with self._lock:
                if runs in self._maps:
                    self._maps.remove(runs)

    def _cancel(self, pending: "list[Call[Any]]", maps: "list[Map[Any]]") -> None:
        """Cancel calls that do not run."""
        begun = (
            {job.id for job in self.client.jobs(state="RUNNING", members=True)} if pending or maps else set()
        )
        ids = _unbegun([call.job for call in pending], [(runs.job, len(runs)) for runs in maps], begun)
        for at in range(0, len(ids), MOST_IDS):
            self.client.cancel(*ids[at : at + MOST_IDS])

    def _forget(self, call: "Call[Any]") -> None:
        with self._lock:
            self._pending.discard(call)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)


class AsyncExecutor:
    """Calls functions on the cluster, for asyncio: as `Executor`, with what it returns to be awaited."""

    def __init__(
        self,
        client: "AsyncClient | None" = None,
        *,
        options: "CallOptions | None" = None,
        **where: Unpack[Where],
    ) -> None:
        from spillover.client.asynchronous.client import AsyncClient  # noqa: PLC0415 - as above

        _check(client, options, where)
        self.client = AsyncClient(**where) if client is None else client
        """The client that it uses, for all other requests."""
        self._owns = client is None
        self._options = options
        self._closed = False
        self._pending: dict[asyncio.Task[None], AsyncCall[Any]] = {}
        self._maps: list[AsyncMap[Any]] = []
        """Maps that may not have ended."""

    async def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "AsyncCall[T]":
        """Call a function on some machine; await the returned call for its value."""
        self._check_open()
        fn, kwargs = _bound(fn, kwargs)
        call = await self.client.call(fn, *args, options=self._options, **kwargs)
        ending = asyncio.ensure_future(call.ended())
        self._pending[ending] = call
        ending.add_done_callback(self._forget)
        return call

    async def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,  # noqa: ASYNC109 - as that of the other executor
        chunksize: int = 1,
    ) -> AsyncGenerator[T, None]:
        """Call a function for each item, as one array, when the first value is asked for; yield the values in order.

        With `chunksize`, each job makes so many calls, for short functions. If it is not read to its end, calls that
        have not ended are cancelled.
        """
        self._check_open()
        until = None if timeout is None else time.monotonic() + timeout
        function, items, options = _mapped(fn, iterables, chunksize, self._options)
        runs: AsyncMap[Any] = await self.client.map(function, *items, options=options)
        self._maps.append(runs)
        over = False
        try:
            for index in range(len(runs)):
                left = None if until is None else max(0.0, until - time.monotonic())
                value = await runs[index].result(left)
                for each in value if chunksize > 1 else (value,):
                    yield each
            over = True
        finally:
            self._maps.remove(runs)
            if not over and len(runs):
                await runs.cancel()

    async def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; with `wait`, return when all have ended. Without it, they go on, and so does the client.

        `cancel_futures` cancels calls that do not run yet.
        """
        self._closed = True
        if cancel_futures and (self._pending or self._maps):
            begun = {job.id async for job in self.client.jobs(state="RUNNING", members=True)}
            calls = [call.job for call in self._pending.values()]
            ids = _unbegun(calls, [(runs.job, len(runs)) for runs in self._maps], begun)
            for at in range(0, len(ids), MOST_IDS):
                await self.client.cancel(*ids[at : at + MOST_IDS])
        if wait:
            await asyncio.gather(*self._pending, return_exceptions=True)
            for runs in list(self._maps):
                async for _ in runs.as_completed():
                    pass
        for ending in self._pending:
            ending.cancel()
        if wait and self._owns:
            await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    def _forget(self, ending: "asyncio.Task[None]") -> None:
        del self._pending[ending]
        if not ending.cancelled():
            ending.exception()  # whoever awaits the call is told

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)


def _check(client: object, options: "CallOptions | None", where: Where) -> None:
    """Refuse arguments that contradict each other."""
    if unknown := sorted(where.keys() - Where.__annotations__.keys()):
        raise TypeError(_unknown(unknown[0]))
    if client is not None and where:
        raise TypeError(f"give a client, or {', '.join(where)}, and not both")
    if options is not None and "key" in options:
        raise TypeError(
            "options of an executor are those of all its jobs, and `key` is of one; use client.call"
        )


def _unknown(name: str) -> str:
    """Return what to write in place of an argument that executors do not have."""
    if name == "max_workers":
        return (
            "an executor has no max_workers: the cluster says how many calls run at a time; leave it out, and "
            'limit a map with client.map(..., options={"at_a_time": 4})'
        )
    if name in _FIELDS:
        return f'{name} is a field of the jobs; write it in options, as in options={{"{name}": ...}}'
    return f"an executor has no {name}; it takes client or {', '.join(Where.__annotations__)}, and options"


def _bound(fn: Callable[..., T], kwargs: dict[str, Any]) -> tuple[Callable[..., T], dict[str, Any]]:
    """Keep an argument of the function that is called `options` apart from those of the job."""
    if "options" not in kwargs:
        return fn, kwargs
    rest = dict(kwargs)
    return partial(fn, options=rest.pop("options")), rest


def _mapped(
    fn: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    chunksize: int,
    options: "CallOptions | None",
) -> "tuple[Callable[..., Any], tuple[Iterable[Any], ...], CallOptions | None]":
    """Return what to map over what: calls of a function, or chunks of them."""
    if chunksize < 1:
        raise ValueError("chunksize must be >= 1.")
    if chunksize == 1:
        return fn, iterables, options
    named: Any = {"name": clean_name(name_of(fn)), **(options or {})}
    return _many(fn), (_chunks(iterables, chunksize),), named


def _many(fn: Callable[..., Any]) -> Callable[[list[tuple[Any, ...]]], list[Any]]:
    """Return a function that makes several calls. As it is a local one, it travels to where this package is missing."""

    def many(chunk: list[tuple[Any, ...]]) -> list[Any]:
        return [fn(*items) for items in chunk]

    return many


def _chunks(iterables: tuple[Iterable[Any], ...], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the arguments of so many calls at a time."""
    items = zip(*iterables, strict=False)
    while chunk := list(islice(items, size)):
        yield chunk


def _unbegun(calls: list[str], maps: list[tuple[str, int]], begun: set[str]) -> list[str]:
    """Return what to cancel: calls and members that do not run, and whole arrays of which none does."""
    ids = [job for job in calls if job not in begun]
    arrays = {job.partition(".")[0] for job in begun if "." in job}
    for job, size in maps:
        if job in arrays:
            ids += [each for index in range(size) if (each := f"{job}.{index}") not in begun]
        elif size:
            ids.append(job)
    return ids
