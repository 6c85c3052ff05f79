"""Keeps warm workers: starts one when none fits a call, keeps it while it is useful, and retires it.

A worker is a process of the nursery like any task, with the same isolation and limits. It makes calls of one kind only.
All of them share the environment, work folder and resources of the process.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]

from spillover.agent.leases.values import Task
from spillover.agent.runners.port import RunnerContext
from spillover.agent.runners.workers import WorkerConnection, WorkerProcess
from spillover.agent.tasks.process import Seen
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import Argv
from spillover.model.tracing import VARIABLE

IDLE: Final = 120.0
"""Seconds for which an idle worker is kept."""
MOST_CALLS: Final = 50_000
"""Number of calls after which a worker is replaced. `--python-calls` overrides it."""
MOST_GROWTH: Final = 512 << 20
"""Bytes by which a worker may grow after its first call before it is replaced."""

_HOME: Final = str(Path(__file__).parents[3])
_PICKLE: Final = str(Path(cloudpickle.__file__).parent)
"""Our own copy, for interpreters without one."""
_RUN: Final = f"import sys; sys.path.append({_HOME!r}); from spillover.agent.runners.worker import main; sys.path.pop(); main()"
"""Code with which an interpreter without our packages becomes a worker."""


class WarmWorkers:
    """The workers of an agent."""

    def __init__(
        self, context: RunnerContext, python: str, seen: Callable[[WorkerProcess, Seen], None]
    ) -> None:
        self._context = context
        self._python = python
        self._seen = seen
        """Receives the start and end of a worker's process."""
        self._most_calls = int(context.settings.get("python_calls") or MOST_CALLS)
        self._folder = context.folder / "python"
        self._secret = secrets.token_bytes(32)
        self._server: asyncio.Server | None = None
        self._workers: dict[int, WorkerProcess] = {}
        self._by_slot: dict[int, WorkerProcess] = {}
        self._idle: dict[int, WorkerProcess] = {}
        """Workers without calls, the longest idle first."""
        self._numbers = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def all(self) -> list[WorkerProcess]:
        """Return the workers that have a process, or wait for one."""
        return list(self._workers.values())

    async def open(
        self,
        results: Callable[[WorkerProcess, list[tuple[Any, ...]]], None],
        answers: Callable[[WorkerProcess, list[tuple[Any, ...]]], None],
    ) -> None:
        """Listen for workers; pass on their results and answers."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink()
        listening = socket.socket(socket.AF_UNIX)
        at = os.open(self._folder, os.O_PATH)
        try:
            # The path of a socket is limited to 107 bytes, and the path of the agent's folder may be longer.
            listening.bind(f"/proc/self/fd/{at}/socket")
        finally:
            os.close(at)
        listening.setblocking(False)

        def connection() -> WorkerConnection:
            return WorkerConnection(self._secret, self._workers.get, results, answers)

        self._server = await asyncio.get_running_loop().create_unix_server(connection, sock=listening)

    def close(self) -> None:
        """Kill all workers and stop listening."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for each in self._workers.values():
            self._context.signal(each.lease, True)
            each.calls.clear()
            each.clear()
        self._workers.clear()
        if self._server is not None:
            self._server.close()

    # --- assigning calls

    def take(self, task: Task, slot: int) -> WorkerProcess:
        """Return the worker of a slot if it makes calls of this kind, else an idle or new one."""
        kind = (task.python, task.workdir, task.need, task.cpus, tuple(_shared(task).items()))
        each = self._by_slot.get(slot) if slot >= 0 else None
        if each is None or each.ending or each.kind != kind:
            each = self._unused(kind, task)
            each.slot = slot
            if slot >= 0:
                self._by_slot[slot] = each
        self._idle.pop(each.number, None)
        return each

    def _unused(self, kind: object, task: Task) -> WorkerProcess:
        """Return an idle worker of this kind, or a new one."""
        for each in reversed(self._idle.values()):
            if each.kind == kind:
                return each
        most = max(1, self._context.capacity.cpu // 1000)
        while len(self._idle) >= most:
            self._retire(next(iter(self._idle.values())))
        return self._make(kind, task)

    def _make(self, kind: object, task: Task) -> WorkerProcess:
        """Start a worker. It buffers messages until its process connects."""
        self._numbers += 1
        number = self._numbers
        lease = Lease(JobId(f"python-{os.getpid()}-{number}"), 1, number)
        each = self._workers[number] = WorkerProcess(number, kind, self._folder, lease)
        # A folder of files is that of one call. Another one at the same path would not be that of this process.
        # Neither has any other call a right to secrets.
        each.once = bool(task.cpus or task.inputs or task.outputs or task.secrets)
        arguments = (number, self._folder, self._context.folder / "output", self._context.output_limit)
        each.python = task.python or self._python
        words = (each.python, "-P", "-c", _RUN, *map(str, arguments))
        env = _shared(task) | {"SPILL_WORKER_SECRET": self._secret.hex(), "SPILL_WORKER_PICKLE": _PICKLE}
        process = Task(
            Argv(words),
            task.need,
            env,
            task.workdir,
            cpus=task.cpus,
            binds_memory=task.binds_memory,
            secrets=task.secrets,
        )
        self._context.launch(lease, process, lambda seen: self._seen(each, seen))
        return each

    # --- retiring workers

    def rest(self, each: WorkerProcess) -> None:
        """Make a worker without calls idle, or retire it."""
        self._leave_slot(each)
        grown = each.last_peak - each.first_peak > MOST_GROWTH
        if each.ending or each.once or grown or each.made >= self._most_calls:
            self._retire(each)
            return
        each.idle_since = time.monotonic()
        self._idle[each.number] = each
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE, self._sweep)

    def gone(self, each: WorkerProcess) -> bool:
        """Remove a worker whose process ended; return False if it was removed before."""
        if self._workers.pop(each.number, None) is None:
            return False
        self._idle.pop(each.number, None)
        self._leave_slot(each)
        return True

    def _leave_slot(self, each: WorkerProcess) -> None:
        """Release the slot of a worker, so that its next calls go to another."""
        if self._by_slot.get(each.slot) is each:
            del self._by_slot[each.slot]

    def _retire(self, each: WorkerProcess) -> None:
        """Let an idle worker end."""
        self._idle.pop(each.number, None)
        each.close_connections()

    def _sweep(self) -> None:
        """Retire workers that were idle for too long."""
        now = time.monotonic()
        for each in [each for each in self._idle.values() if now - each.idle_since >= IDLE]:
            self._retire(each)
        self._sweeping = None
        if self._idle:
            soonest = next(iter(self._idle.values())).idle_since + IDLE - now
            self._sweeping = asyncio.get_running_loop().call_later(max(1.0, soonest), self._sweep)


def _shared(task: Task) -> dict[str, str]:
    """Return the environment that calls of one kind share: without the trace, which each attempt has for itself."""
    if VARIABLE not in task.env:
        return task.env
    return {name: value for name, value in task.env.items() if name != VARIABLE}
