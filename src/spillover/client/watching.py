"""Waits for calls in the background, many with one request. Futures, callbacks and asyncio need that.

The blocking client does it in a thread of its own, which runs the same code.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spillover.client import asks
from spillover.client.errors import Refused, SpillError, Unavailable
from spillover.client.face import beside
from spillover.client.gathering import POLL, Gathering, Outcome

if TYPE_CHECKING:
    from spillover.client.face import Behind

Told: TypeAlias = Callable[[Outcome | SpillError], None]
"""Receives how a call ended, or why nobody knows."""
MOST_JOBS: Final = 10_000
"""Most jobs of one request."""
MOST_POLLS: Final = 8
"""Most requests at a time for single jobs. Those for few jobs are then joined into one."""
PAUSE: Final = 0.02
"""Seconds to collect more calls while others are waited for: each request has a fixed cost."""


class AsyncWatching:
    """Waits for calls within a running event loop."""

    def __init__(self, client: "Behind[AsyncWatching]") -> None:
        self._client = client
        self._waiting: dict[Gathering, dict[int, list[asyncio.Future[None]]]] = {}
        """What waits for the calls of a job, by index."""
        self._fresh: list[Gathering] = []
        """Single jobs that no request asks for yet."""
        self._starting: asyncio.TimerHandle | None = None
        self._polls: dict[asyncio.Task[None], list[Gathering]] = {}
        """Requests, and the jobs that each asks for."""

    async def ended(self, gathering: Gathering, index: int) -> None:
        """Return when a call has ended; its result is in the gathering then."""
        if index in gathering.results:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        by_index = self._waiting.get(gathering)
        if by_index is None:
            by_index = self._waiting[gathering] = {}
            self._begin(gathering)
        by_index.setdefault(index, []).append(future)
        try:
            await future
        finally:
            left = by_index.get(index, [])
            if future in left:
                left.remove(future)
            if not left:
                by_index.pop(index, None)
            if not by_index and self._waiting.get(gathering) is by_index:
                del self._waiting[gathering]

    def close(self) -> None:
        """Stop waiting."""
        if self._starting is not None:
            self._starting.cancel()
        for poll in self._polls:
            poll.cancel()
        self._fail(list(self._waiting), Unavailable("the client was closed before the call ended"))

    def _begin(self, gathering: Gathering) -> None:
        """Ask for the results of a job from now on."""
        if gathering.size is not None:
            self._poll([gathering], self._ask_for_members(gathering))
            return
        self._fresh.append(gathering)
        if self._starting is None:
            pause = PAUSE if self._polls else 0.0
            self._starting = asyncio.get_running_loop().call_later(pause, self._start)

    def _start(self) -> None:
        """Ask for all jobs that nobody asks for yet. Join the small requests if there are too many."""
        self._starting = None
        fresh, self._fresh = self._fresh, []
        singles = {poll: some for poll, some in self._polls.items() if some[0].size is None}
        if len(singles) >= MOST_POLLS:
            for poll, some in singles.items():
                if len(some) <= MOST_JOBS // 2:
                    poll.cancel()
                    del self._polls[poll]
                    fresh += some
        for at in range(0, len(fresh), MOST_JOBS):
            some = fresh[at : at + MOST_JOBS]
            self._poll(some, self._ask_for_jobs(some))

    def _poll(self, some: list[Gathering], asking: Coroutine[Any, Any, None]) -> None:
        """Start a request that is repeated until all its jobs have ended."""
        poll = asyncio.get_running_loop().create_task(asking)
        self._polls[poll] = some
        poll.add_done_callback(lambda poll: self._polls.pop(poll, None))

    async def _ask_for_jobs(self, some: list[Gathering]) -> None:
        """Ask for results of single jobs until all have ended."""
        attempts = self._client.attempts()
        while True:
            some[:] = [each for each in some if each in self._waiting]
            by_job: dict[str, list[Gathering]] = {}
            for each in some:
                by_job.setdefault(each.job, []).append(each)
            if not by_job:
                return
            try:
                page = await self._client.run(iter(asks.results_of_jobs(list(by_job), POLL)), attempts)
            except Refused as error:
                if len(by_job) == 1:
                    self._fail(some, error)
                else:  # one of them is at fault, and the others are not
                    for alike in by_job.values():
                        self._poll(alike, self._ask_for_jobs(alike))
                return
            except SpillError as error:
                self._fail(some, error)
                return
            for result in page.results:
                for each in by_job.get(result.id, ()):
                    each.results[0] = result
                    self._tell(each)

    async def _ask_for_members(self, gathering: Gathering) -> None:
        """Ask for results of an array until all members that somebody waits for have ended."""
        attempts = self._client.attempts()
        while by_index := self._waiting.get(gathering):
            try:
                await self._client.run(gathering.more(POLL, min(by_index)), attempts)
            except SpillError as error:
                self._fail([gathering], error)
                return
            self._tell(gathering)

    def _tell(self, gathering: Gathering) -> None:
        """Wake those who wait for calls that have ended."""
        by_index = self._waiting.get(gathering, {})
        for index in [each for each in by_index if each in gathering.results]:
            for future in by_index.pop(index):
                if not future.done():
                    future.set_result(None)
        if not by_index:
            self._waiting.pop(gathering, None)

    def _fail(self, some: list[Gathering], error: SpillError) -> None:
        """Tell those who wait that nobody can know."""
        for gathering in some:
            for futures in self._waiting.pop(gathering, {}).values():
                for future in futures:
                    if not future.done():
                        future.set_exception(error)


class Watching:
    """Waits for calls in a thread of its own, from the first on."""

    def __init__(self, client: "Behind[Watching]") -> None:
        self._face = client.face
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling = threading.local()
        """Whether a thread tells how a call ended, and so may run any code."""

    def watch(self, gathering: Gathering, index: int, told: Told) -> None:
        """Tell how a call ended, with its value; in the thread."""
        with self._lock:
            if self._thread is None:
                begun = threading.Event()
                self._thread = threading.Thread(
                    target=lambda: asyncio.run(self._work(begun)), name="spillover-calls", daemon=True
                )
                self._thread.start()
                begun.wait()
            loop = self._loop
            if loop is not None:
                loop.call_soon_threadsafe(self._begin, gathering, index, told)
                return
        told(Unavailable("the client was closed before the call ended"))

    def close(self) -> None:
        """Stop waiting; whoever waits is told so."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread = self._thread
        if loop is not None and self._stop is not None and thread is not None:
            loop.call_soon_threadsafe(self._stop.set)
            if not getattr(self._telling, "now", False):  # this thread is one that it waits for
                thread.join()

    async def _work(self, begun: threading.Event) -> None:
        """Wait for calls until the client is closed."""
        from spillover.client.asynchronous.sender import AsyncSender  # noqa: PLC0415 - only this thread needs it

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with beside(AsyncSender, self._face) as sender:
            self._client = client = sender._behind  # noqa: SLF001 - it is made for this
            begun.set()
            await self._stop.wait()
            client.watching.close()
            while self._tasks:
                await asyncio.wait(self._tasks)

    def _begin(self, gathering: Gathering, index: int, told: Told) -> None:
        task = asyncio.get_running_loop().create_task(self._watch(gathering, index, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, gathering: Gathering, index: int, told: Told) -> None:
        """Wait for one call, and bring its value."""
        outcome: Outcome | SpillError
        try:
            await self._client.watching.ended(gathering, index)
            outcome = await self._client.run(gathering.outcome(index, None), self._client.attempts())
        except SpillError as error:
            outcome = error
        with contextlib.suppress(RuntimeError):  # of an interpreter that ends
            # What is told may run code of the user, which must not hold up other calls.
            await asyncio.to_thread(self._tell, told, outcome)

    def _tell(self, told: Told, outcome: Outcome | SpillError) -> None:
        self._telling.now = True
        told(outcome)
