"""Virtual hosts: event loops with their own clocks, which can be paused, continued and killed like processes.

One universe has the true time and runs everything in one thread and one order, so that the same seed gives the same
story.
"""

import asyncio
import contextlib
import heapq
import sys
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from spillover.model.units import SECOND
from tests.support.faults.standstill import Patience, Standstill

MILLISECOND: Final = SECOND // 1000
EPOCH: Final = 1_800_000_000 * SECOND
"""Wall-clock time at which every story begins."""
DYING: Final = 10_000
"""Turns within which a killed host must have dropped its work."""


class Universe:
    """True time, and the events scheduled on it."""

    def __init__(self, tell: bool = False) -> None:
        self.now = 0
        """Nanoseconds."""
        self.hosts: list[Host] = []
        self.mistakes: list[str] = []
        """Unexpected errors that ended a task of a host."""
        self.patience = Patience()
        self.told: list[tuple[int, str]] = []
        """What happened, if recorded."""
        self._tell = tell
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0

    def at(self, when: int, what: Callable[[], object]) -> None:
        """Schedule something at a time."""
        self._count += 1
        heapq.heappush(self._queue, (max(when, self.now), self._count, what))

    def after(self, span: int, what: Callable[[], object]) -> None:
        """Schedule something after a span."""
        self.at(self.now + span, what)

    def tell(self, what: str) -> None:
        """Record what happened."""
        if self._tell:
            self.told.append((self.now, what))

    def run(self, until: Callable[[], bool]) -> None:
        """Run events in order of time until the condition holds."""
        while not until():
            self.patience.ask()
            busy = [host for host in self.hosts if host.ready and not host.paused]
            if busy:
                for host in busy:
                    host.turn()
                continue
            times = [host.due() for host in self.hosts if not host.paused]
            times += [self._queue[0][0]] if self._queue else []
            self.now = max(self.now, min(times))
            while self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
            for host in self.hosts:
                if not host.paused:
                    host.ring()


FAR: Final = 1 << 62


class Host(asyncio.BaseEventLoop):
    """An event loop with its own clock rate."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _thread_id: int | None

    def __init__(self, universe: Universe, name: str, rate: float = 1.0) -> None:
        super().__init__()
        self.name = name
        self.universe = universe
        self.paused = False
        self.dead = False
        self._born = universe.now
        self._rate = rate
        self._ahead = 0
        """Nanoseconds that pass only for a dying host."""
        self._fuse: tuple[int, Callable[[], object]] | None = None
        self._tasks: weakref.WeakValueDictionary[int, asyncio.Task[Any]] = weakref.WeakValueDictionary()
        self._task_count = 0
        self.set_exception_handler(self._mistake)
        universe.hosts.append(self)

    # --- clocks

    def monotonic(self) -> int:
        """See Clock; begins at 0 with the host."""
        return int((self.universe.now - self._born) * self._rate) + self._ahead

    def wall(self) -> int:
        """See Clock."""
        return EPOCH + self.universe.now

    def time(self) -> float:
        """Return seconds, as timers count them."""
        return self.monotonic() / SECOND

    # --- lifecycle

    @property
    def ready(self) -> bool:
        """Whether it has work now."""
        return bool(self._ready)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> "asyncio.Task[Any]":
        """Create a task, and remember its order, because the set of asyncio has none."""
        task = super().create_task(coro, name=name, context=context)
        self._task_count += 1
        self._tasks[self._task_count] = task
        return task

    def _undone(self) -> "list[asyncio.Task[Any]]":
        return [task for _, task in sorted(self._tasks.items()) if not task.done()]

    def light(self, turns: int, burnt: Callable[[], object]) -> None:
        """Schedule something after this many turns, at any point of its work."""
        self._fuse = (turns, burnt)

    def turn(self) -> None:
        """Run what is ready now, but not what follows from it."""
        if self._fuse is not None and not self.dead:
            left, burnt = self._fuse
            self._fuse = (left - 1, burnt) if left > 0 else None
            if left <= 0:
                burnt()
                return
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, self._let_go)
        self._thread_id = 1
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
            self._thread_id = None
            sys.set_asyncgen_hooks(*before)

    def due(self) -> int:
        """Return the true time of its next timer; far away if there is none."""
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False  # type: ignore[attr-defined]
        if not self._scheduled:
            return FAR
        local = int(self._scheduled[0].when() * SECOND) - self._ahead
        return max(self._born + int(local / self._rate), self.universe.now) + 1

    def ring(self) -> None:
        """Make due timers ready."""
        now = self.time() + 1e-9
        while self._scheduled and (self._scheduled[0].cancelled() or self._scheduled[0].when() <= now):
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if not handle.cancelled():
                self._ready.append(handle)

    def kill(self) -> None:
        """End it at this point; nothing that it still does reaches others."""
        self.dead = True
        self.universe.hosts.remove(self)
        for task in self._undone():
            task.cancel()
        for _ in range(DYING):
            if not self._ready:
                if not self._undone():
                    break
                self._ahead += max(0, self.due() - self.universe.now)
                self.ring()
            # A task that waited for one that stood still may raise Standstill only now.
            with contextlib.suppress(Standstill):
                self.turn()
        assert not self._undone(), f"{self.name} does not die: {self._undone()}"
        self._ready.clear()
        self._scheduled.clear()
        self.close()

    def _let_go(self, generator: "AsyncGenerator[Any, Any]") -> None:
        """Close an abandoned generator."""
        if not self.dead:
            self.create_task(generator.aclose())

    def _mistake(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an error that nobody handles."""
        if not self.dead:
            self.universe.mistakes.append(
                f"{self.name}: {context.get('message')}: {context.get('exception')!r}"
            )

    # Replaces what the base does for a loop that waits for files.

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no files."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""

    def run_in_executor(self, _: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Run the function now, because there is only one thread."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            done.set_exception(error)
        return done
