"""Warm workers: made when there is none for a kind of call, kept while they are of use, and let go.

A worker is a process of the nursery like any task, so it is isolated, limited and killed like one. It makes calls of one kind only:
of the same environment, work folder and resources, which are those of the process.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spillover.agent.process import Seen
from spillover.agent.runners.port import RunnerContext
from spillover.agent.runners.workers import WorkerConnection, WorkerProcess
from spillover.agent.values import Task
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import Argv

IDLE: Final = 120.0
"""Seconds that a worker without calls is kept."""
MOST_CALLS: Final = 50_000
"""Calls after which a worker is replaced, unless `--python-calls` says otherwise."""
MOST_GROWTH: Final = 512 << 20
"""Bytes by which a worker may have grown since its first call before it is replaced."""

_HOME: Final = str(Path(__file__).parents[3])
_RUN: Final = f"import sys; sys.path.append({_HOME!r}); from spillover.agent.runners.worker import main; sys.path.pop(); main()"
"""How an interpreter that knows nothing of our packages becomes a worker."""


class Pool:
    """The workers of an agent."""

    def __init__(
        self, context: RunnerContext, python: str, seen: Callable[[WorkerProcess, Seen], None]
    ) -> None:
        self._context = context
        self._python = python
        self._seen = seen
        """Told what is seen of the process of a worker."""
        self._most_calls = int(context.settings.get("python_calls") or MOST_CALLS)
        self._folder = context.folder / "python"
        self._secret = secrets.token_bytes(32)
        self._server: asyncio.Server | None = None
        self._workers: dict[int, WorkerProcess] = {}
        self._by_slot: dict[int, WorkerProcess] = {}
        self._idle: dict[int, WorkerProcess] = {}
        """Those without calls, the longest idle first."""
        self._numbers = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def all(self) -> list[WorkerProcess]:
        """Those that have a process, or wait for it."""
        return list(self._workers.values())

    async def open(
        self,
        results: Callable[[WorkerProcess, list[tuple[Any, ...]]], None],
        answers: Callable[[WorkerProcess, list[tuple[Any, ...]]], None],
    ) -> None:
        """Listen for workers; what they say is told to these."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink()
        listening = socket.socket(socket.AF_UNIX)
        at = os.open(self._folder, os.O_PATH)
        try:
            # The path of a socket may have 107 bytes only, and that of a folder of people's choice has more.
            listening.bind(f"/proc/self/fd/{at}/socket")
        finally:
            os.close(at)
        listening.setblocking(False)

        def connection() -> WorkerConnection:
            return WorkerConnection(self._secret, self._workers.get, results, answers)

        self._server = await asyncio.get_running_loop().create_unix_server(connection, sock=listening)

    def close(self) -> None:
        """Let all go, and hear of none."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for each in self._workers.values():
            self._context.signal(each.lease, True)
            each.calls.clear()
            each.clear()
        self._workers.clear()
        if self._server is not None:
            self._server.close()

    # --- who makes a call

    def take(self, task: Task, slot: int) -> WorkerProcess:
        """The worker of a slot, if it makes calls of this kind; else one without calls, or a new one."""
        kind = (task.workdir, task.need, tuple(task.env.items()))
        each = self._by_slot.get(slot) if slot >= 0 else None
        if each is None or each.ending or each.kind != kind:
            each = self._unused(kind, task)
            each.slot = slot
            if slot >= 0:
                self._by_slot[slot] = each
        self._idle.pop(each.number, None)
        return each

    def _unused(self, kind: object, task: Task) -> WorkerProcess:
        """A worker without calls, of those that are there or a new one."""
        for each in reversed(self._idle.values()):
            if each.kind == kind:
                return each
        most = max(1, self._context.capacity.cpu // 1000)
        while len(self._idle) >= most:
            self._retire(next(iter(self._idle.values())))
        return self._make(kind, task)

    def _make(self, kind: object, task: Task) -> WorkerProcess:
        """A new worker; what it is sent before its process has come is kept for it."""
        self._numbers += 1
        number = self._numbers
        lease = Lease(JobId(f"python-{os.getpid()}-{number}"), 1, number)
        each = self._workers[number] = WorkerProcess(number, kind, self._folder, lease)
        told = (number, self._folder, self._context.folder / "output", self._context.output_limit)
        words = (self._python, "-P", "-c", _RUN, *map(str, told))
        env = task.env | {"SPILL_WORKER_SECRET": self._secret.hex()}
        process = Task(Argv(words), task.need, env, task.workdir)
        self._context.launch(lease, process, lambda seen: self._seen(each, seen))
        return each

    # --- who makes none any more

    def rest(self, each: WorkerProcess) -> None:
        """A worker has nothing to do, and may have another slot."""
        self._leave_slot(each)
        grown = each.last_peak - each.first_peak > MOST_GROWTH
        if each.ending or grown or each.made >= self._most_calls:
            self._retire(each)
            return
        each.idle_since = time.monotonic()
        self._idle[each.number] = each
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE, self._sweep)

    def gone(self, each: WorkerProcess) -> bool:
        """The process of a worker is gone; False if that was known."""
        if self._workers.pop(each.number, None) is None:
            return False
        self._idle.pop(each.number, None)
        self._leave_slot(each)
        return True

    def _leave_slot(self, each: WorkerProcess) -> None:
        """The next calls of its slot go to another."""
        if self._by_slot.get(each.slot) is each:
            del self._by_slot[each.slot]

    def _retire(self, each: WorkerProcess) -> None:
        """Let a worker go that has nothing to do."""
        self._idle.pop(each.number, None)
        each.hang_up()

    def _sweep(self) -> None:
        """Let workers go that were idle for long."""
        now = time.monotonic()
        for each in [each for each in self._idle.values() if now - each.idle_since >= IDLE]:
            self._retire(each)
        self._sweeping = None
        if self._idle:
            soonest = next(iter(self._idle.values())).idle_since + IDLE - now
            self._sweeping = asyncio.get_running_loop().call_later(max(1.0, soonest), self._sweep)
