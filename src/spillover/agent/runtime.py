"""Carries out what the agent's state decides, passes events of tasks to the state, and stores results on disk.

Task runners, connections and clocks are arguments. So tests of faults can run the same agent on simulated machines.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from spillover.agent.connection.link import Link
from spillover.agent.connection.peers import Peers
from spillover.agent.files.output import Key, Outputs
from spillover.agent.files.spool import Spool
from spillover.agent.leases.state import FAREWELL_GRACE, AgentState
from spillover.agent.leases.values import (
    Discard,
    Exit,
    Fetch,
    ForgetResult,
    GangStart,
    HandOver,
    Instruction,
    Notify,
    Prefetch,
    Prepare,
    Readiness,
    Recall,
    Reconnect,
    Restart,
    Signal,
    StartTask,
    Task,
    TaskResult,
)
from spillover.agent.nursery.clock import boottime
from spillover.agent.sessions.places import Entry
from spillover.agent.sessions.serving import Sessions
from spillover.agent.tasks.gpu_usage import GpuMeter
from spillover.agent.tasks.process import ProcessEnded, Returned, Sight, Spawned
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Verdict

FAREWELL: Final = 2.0
"""Seconds to report the last results to the server."""
REAP_MARGIN: Final = 1.0
"""Seconds that killed tasks may take to disappear."""
LONGEST_TIMER: Final = 5_000_000_000
"""Most nanoseconds until the next check of what is due. Timers stop while the machine is suspended, leases do not."""
FLUSH_AFTER: Final = 0.005
"""Most seconds before records are written to disk, unless they are reported earlier."""

log = logging.getLogger("spillover.agent")


class TaskRunner(Protocol):
    """Runs tasks, and reports to `AgentRuntime.seen`."""

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Run a task, after those started earlier in its slot."""
        ...

    def prefetch(self, task: Task) -> None:
        """Fetch the inputs of a waiting task."""
        ...

    def prepare(self, lease: Lease, task: Task) -> None:
        """Do everything that can be done before a task of a gang starts, and report `prepared` or `unprepared`."""
        ...

    def discard(self, lease: Lease) -> None:
        """Delete what was prepared for a task that does not start."""
        ...

    def describe_gang(self, lease: Lease, start: GangStart) -> Mapping[str, str]:
        """Write files about a gang for a task that is about to start; return variables with their paths.

        Raises OSError.
        """
        ...

    def recall(self, lease: Lease, task: Task) -> None:
        """Take back a task that has not begun, if it is not too late."""
        ...

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """Terminate or kill a task. One that has not begun never will."""
        ...

    def notify(self, lease: Lease, task: Task) -> None:
        """Send a task the signal before its walltime."""
        ...

    async def name_output(self, lease: Lease, task: Task) -> None:
        """Return once the output of a task has its own name."""
        ...

    def entry(self, lease: Lease, task: Task) -> Entry | None:
        """Return how a command can join a task; None while it has no process. Raises NoSession."""
        ...


class Clocks(NamedTuple):
    """The clocks of the agent's machine, in nanoseconds."""

    monotonic: Callable[[], int] = boottime
    wall: Callable[[], int] = time.time_ns


class AgentRuntime:
    """One run of an agent. The spool holds what the next run must know."""

    def __init__(
        self,
        state: AgentState,
        spool: Spool,
        output: Path,
        clocks: Clocks = Clocks(),  # noqa: B008 - a value that never changes
    ) -> None:
        self.state = state
        self.outputs = Outputs(output, self._held, self._name_output)
        self.sessions = Sessions(output.parent, self._runs, self._entry)
        self.log_retention = 0
        self.server_time = (0, 0)
        """The server's time in nanoseconds UTC, and the monotonic time at which it was received; 0 if unknown."""
        self._spool = spool
        self._gpus = GpuMeter(clocks.monotonic)
        self._monotonic, self._wall = clocks
        self._runner: TaskRunner
        self._peers: Peers
        self._link: Link
        self._idle = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._flushing = False

    def begin(self, runner: TaskRunner, peers: Peers, link: Link) -> None:
        """Set the parts that need the runtime in their own constructors."""
        self._runner, self._peers, self._link = runner, peers, link

    def recover(self) -> tuple[int, int]:
        """Record tasks of an earlier run as lost; return their number, and the number of unanswered results."""
        now, wall = self._monotonic(), self._wall()
        left = self._spool.left()
        for entry in left:
            usage = Usage(ran=max(0, wall - entry.wall))
            lost = TaskResult(
                entry.lease, Outcome.LOST, now, usage=usage, message="its agent died while it ran"
            )
            self._spool.keep(lost, now, wall)
        self.flush()
        unanswered = self._spool.unanswered(now, wall)
        self.state.results |= {result.lease: result for result in unanswered}
        return len(left), len(unanswered)

    # --- instructions

    def act(self, instructions: list[Instruction]) -> Reconnect | None:  # noqa: C901, PLR0912 - one case for each instruction
        """Carry out instructions, and return the one that ends the connection, if any."""
        reconnect = None
        fetches: list[Fetch] = []
        running = self.state.running
        if discarded := self.state.gangs.discarded():
            instructions = [*discarded, *instructions]
        for instruction in instructions:
            match instruction:
                case StartTask(lease, task, slot):
                    self._runner.start(lease, task, slot)
                case Restart():
                    self._restart(instruction)
                case Prefetch(task):
                    self._runner.prefetch(task)
                case Prepare(lease, task):
                    self._runner.prepare(lease, task)
                case Discard(lease):
                    self._runner.discard(lease)
                case Recall(lease):
                    if (run := running.get(lease)) is not None:  # a runner may report its end at once
                        self._runner.recall(lease, run.task)
                case Signal(lease, kill):
                    if (run := running.get(lease)) is not None:
                        self._runner.signal(lease, run.task, kill=kill)
                case Notify(lease):
                    if (run := running.get(lease)) is not None:
                        log.info("sending %s to %s before its walltime", run.task.signal, lease.job)
                        self._runner.notify(lease, run.task)
                case ForgetResult(lease, verdict):
                    self._spool.forget(lease)
                    self._flush_soon()
                    if verdict is Verdict.FENCED:
                        log.warning("the server rejected the result of %s", lease)
                case HandOver(lease, ticket):
                    self._peers.offer(lease, ticket)
                case Fetch():
                    fetches.append(instruction)
                case Reconnect():
                    reconnect = instruction
        if fetches:
            self._peers.fetch(fetches)
        if not self.state.running:
            self._idle.set()
        if self.state.news():
            self._link.ready()
        self._set_timer()
        return reconnect

    # --- gangs

    def _restart(self, again: Restart) -> None:
        """Start a task of a gang again."""
        try:
            self._runner.describe_gang(again.lease, again.start)
        except OSError as error:
            log.warning("cannot write the files about the gang of %s again: %s", again.lease, error)
        self._runner.start(again.lease, again.task, again.slot)

    def start_gangs(self, incarnation: int, epoch: int, starts: Sequence[GangStart]) -> Reconnect | None:
        """Start tasks of gangs that are prepared everywhere."""
        now, state = self._monotonic(), self.state
        ready: list[tuple[GangStart, dict[Lease, Mapping[str, str]]]] = []
        for start in starts:
            files: dict[Lease, Mapping[str, str]] = {}
            for lease in state.gangs.waiting_for(start):
                try:
                    files[lease] = self._runner.describe_gang(lease, start)
                except OSError as error:
                    why = f"cannot write the files about its gang: {error.strerror or error}"
                    self.unprepared(lease, why)
            ready.append((start, files))
        return self.act(state.start_gangs(now, incarnation, epoch, ready))

    def prepared(self, lease: Lease, ready: Readiness) -> None:
        """Process that a task of a gang can start at once."""
        self.act(self.state.prepared(self._monotonic(), lease, ready))

    def unprepared(self, lease: Lease, why: str) -> None:
        """Process that a task of a gang cannot be prepared."""
        now = self._monotonic()
        out = self.state.unprepared(now, lease, why)
        self._keep(now, self._wall(), (lease,))
        self._flush_soon()
        self.act(out)

    # --- events of tasks

    def seen(self, seen: Sequence[Sight]) -> None:
        """Process starts, ends and returns of tasks."""
        now, wall = self._monotonic(), self._wall()
        out: list[Instruction] = []
        # Returned tasks first. Otherwise later tasks would take the capacity that an end in the same batch frees.
        if back := [what.lease for what in seen if isinstance(what, Returned)]:
            out += self.state.returned(now, back)
            self._keep(now, wall, back)
        for what in seen:
            if isinstance(what, Spawned):
                self._spool.started(what.lease, what.pid, what.birth, wall - (now - what.at))
                out += self.state.started(now, what.lease, what.at)
                self._gpus.begin(what.lease, self.state.room.gpus(what.lease))
            elif isinstance(what, ProcessEnded):
                out += self._ended(now, wall, what.lease, what.end)
        self._flush_soon()
        self.act(out)

    def _ended(self, now: int, wall: int, lease: Lease, end: Exit) -> list[Instruction]:
        """Process the end of one task."""
        if (used := self._gpus.end(lease, end.usage)) is not end.usage:
            end = replace(end, usage=used)
        out = self.state.ended(now, lease, end)
        self._keep(now, wall, (lease,))
        self.outputs.ended(lease)
        self.sessions.ended(lease)
        return out

    def fetched(self, lease: Lease, task: Task) -> None:
        """Process a task that arrived for a lease that was taken over."""
        self.act(self.state.fetched(self._monotonic(), lease, task))

    def unfetched(self, lease: Lease) -> None:
        """Process the failure to fetch such a task."""
        self.act(self.state.unfetched(self._monotonic(), lease))

    def _keep(self, now: int, wall: int, leases: Iterable[Lease]) -> None:
        """Store the results of these leases, where there is one."""
        for lease in leases:
            if (result := self.state.results.get(lease)) is not None:
                self._spool.keep(result, now, wall)

    def surely_past(self) -> int:
        """Return a time in the past of both our clock and the server's, in nanoseconds UTC. Either may be wrong."""
        wall, (server, at) = self._wall(), self.server_time
        return min(wall, server + self._monotonic() - at) if server else wall

    # --- stopping

    async def drain(self, limit: float, hurry: asyncio.Event) -> None:
        """Take no more work, give back what has not started, and wait for tasks to end, up to a limit or `hurry`."""
        self.act(self.state.drain(self._monotonic()))
        log.info("stopping: %d tasks have %gs to end", len(self.state.running), limit)
        waits = {asyncio.create_task(self.wait_stopped()), asyncio.create_task(hurry.wait())}
        try:
            await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def interrupt(self, until: int) -> None:
        """Terminate all tasks, because the machine will be taken back at a time in nanoseconds UTC."""
        self.act(self.state.interrupt(self._monotonic(), until, until - self._wall()))

    async def leave(self) -> None:
        """Stop all tasks and report to the server."""
        log.info("stopping with %d running tasks", len(self.state.running))
        self.act(self.state.leave(self._monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_GRACE / 1e9 + REAP_MARGIN):
                await self.wait_stopped()
        if self._link.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._link.drained()
                    await self._link.sign_off()

    def close(self) -> None:
        """Cancel what is under way and write the rest to disk."""
        if self._timer is not None:
            self._timer.cancel()
        self._gpus.close()
        self._spool.close()

    async def wait_stopped(self) -> None:
        """Wait until no task runs."""
        while self.state.running:
            self._idle.clear()
            await self._idle.wait()

    # --- output

    def _held(self, key: Key) -> Lease | None:
        """Return the lease under which a task waits or runs here; None if there is none."""
        leases = (*self.state.running, *self.state.waiting, *self.state.preparing)
        return next((lease for lease in leases if (lease.job, lease.attempt, lease.task) == key), None)

    async def _name_output(self, lease: Lease) -> None:
        """Wait until the output of a task has its own name."""
        if (run := self.state.running.get(lease)) is not None:
            await self._runner.name_output(lease, run.task)

    # --- sessions

    def _runs(self, key: Key) -> tuple[Lease, Task] | None:
        """Return the lease and the task that run under a key; None if none does."""
        found = (
            (lease, run.task)
            for lease, run in self.state.running.items()
            if (lease.job, lease.attempt, lease.task) == key
        )
        return next(found, None)

    def _entry(self, lease: Lease, task: Task) -> Entry | None:
        """Return how a command can join a task; None while it has no process. Raises NoSession."""
        return self._runner.entry(lease, task)

    # --- time and disk

    def _set_timer(self) -> None:
        """Set a timer for the next time at which something is due."""
        wake = self.state.wake()
        if wake is None or (self._timer is not None and self._timer_at <= wake):
            return  # a timer that fires too early finds nothing to do, and sets the next
        if self._timer is not None:
            self._timer.cancel()
        now = self._monotonic()
        self._timer_at = min(wake, now + LONGEST_TIMER)
        pause = max(0.0, (self._timer_at - now) / 1e9)
        self._timer = asyncio.get_running_loop().call_later(pause, self._tick)

    def _tick(self) -> None:
        """Act on everything that is due."""
        self._timer = None
        self.act(self.state.tick(self._monotonic()))

    def _flush_soon(self) -> None:
        """Write once for everything that happens within a moment. Reports flush earlier."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(FLUSH_AFTER, self.flush)

    def flush(self) -> None:
        """Write to disk what must be there before it is reported."""
        self._flushing = False
        try:
            self._spool.flush()
        except OSError as error:
            # The results are still in memory and will be reported. Only a crash of the agent would lose them.
            log.error("cannot store results on disk: %s", error)  # noqa: TRY400 - one line, no traceback
