"""One run of an agent: what its state decides is carried out here, and what is seen of tasks is told to it and kept on disk.

Whoever runs tasks, speaks to the server and to other agents, and the clocks, are arguments. So stories of faults run the same agent
on machines that are simulated.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from spillover.agent.link import Link
from spillover.agent.nursery.clock import boottime
from spillover.agent.output import Key, Outputs
from spillover.agent.peers import Peers
from spillover.agent.process import ProcessEnded, Returned, Sight, Spawned
from spillover.agent.spool import Spool
from spillover.agent.state import FAREWELL_GRACE, AgentState
from spillover.agent.values import (
    Exit,
    Fetch,
    ForgetResult,
    HandOver,
    Instruction,
    Prefetch,
    Recall,
    Reconnect,
    Signal,
    StartTask,
    Task,
    TaskResult,
)
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Verdict

FAREWELL: Final = 2.0
"""Seconds for telling the last results to the server."""
REAP_MARGIN: Final = 1.0
"""Seconds that killed tasks may take to be gone."""
LONGEST_TIMER: Final = 5_000_000_000
"""Nanoseconds until it is looked anew at what is due: timers stand still while the machine is suspended, leases do not."""
FLUSH_AFTER: Final = 0.005
"""Seconds that what happened may wait to be put on disk, unless it is told before."""

log = logging.getLogger("spillover.agent")


class TaskRunner(Protocol):
    """Who runs tasks; what is seen of them is told to `AgentRuntime.seen`."""

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Run a task, after those that were started before it in its slot."""
        ...

    def prefetch(self, task: Task) -> None:
        """Have the inputs of a task here that waits."""
        ...

    def recall(self, lease: Lease, task: Task) -> None:
        """Have a task back that has not begun, if it is not too late."""
        ...

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """Terminate a task, or kill it; one that has not begun never will."""
        ...

    async def name_output(self, lease: Lease, task: Task) -> None:
        """Return once the output of a task can be found under its name."""
        ...


class Clocks(NamedTuple):
    """Nanoseconds of the machine that an agent runs on."""

    monotonic: Callable[[], int] = boottime
    wall: Callable[[], int] = time.time_ns


class AgentRuntime:
    """What an agent does from its start to its end; what the next one must know is in the spool."""

    def __init__(
        self,
        state: AgentState,
        spool: Spool,
        output: Path,
        clocks: Clocks = Clocks(),  # noqa: B008 - a value that never changes
    ) -> None:
        self.state = state
        self.outputs = Outputs(output, self._held, self._name_output)
        self.log_retention = 0
        self.server_time = (0, 0)
        """What time it is by the server, nanoseconds UTC, and when that was on the monotonic clock; 0 if it did not say."""
        self._spool = spool
        self._monotonic, self._wall = clocks
        self._runner: TaskRunner
        self._peers: Peers
        self._link: Link
        self._idle = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._flushing = False

    def begin(self, runner: TaskRunner, peers: Peers, link: Link) -> None:
        """Work with these, each of which was made to tell the runtime what it sees."""
        self._runner, self._peers, self._link = runner, peers, link

    def recover(self) -> tuple[int, int]:
        """Count what an earlier run left running, which is gone by now, as lost; how many those are, and how many results are untold."""
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
        """Carry out instructions; the one about the connection is handed back."""
        reconnect = None
        fetches: list[Fetch] = []
        running = self.state.running
        for instruction in instructions:
            match instruction:
                case StartTask(lease, task, slot):
                    self._runner.start(lease, task, slot)
                case Prefetch(task):
                    self._runner.prefetch(task)
                case Recall(lease):
                    if (run := running.get(lease)) is not None:  # a runner may tell of its end at once
                        self._runner.recall(lease, run.task)
                case Signal(lease, kill):
                    if (run := running.get(lease)) is not None:
                        self._runner.signal(lease, run.task, kill=kill)
                case ForgetResult(lease, verdict):
                    self._spool.forget(lease)
                    self._flush_soon()
                    if verdict is Verdict.FENCED:
                        log.warning("the server does not want the result of %s", lease)
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

    # --- what is seen

    def seen(self, seen: Sequence[Sight]) -> None:
        """Tasks began or ended, or are had back."""
        now, wall = self._monotonic(), self._wall()
        out: list[Instruction] = []
        # First what is had back: the room of what ended beside it is not for those that came later.
        if back := [what.lease for what in seen if isinstance(what, Returned)]:
            out += self.state.returned(now, back)
            self._keep(now, wall, back)
        for what in seen:
            if isinstance(what, Spawned):
                self._spool.started(what.lease, what.pid, what.birth, wall - (now - what.at))
                out += self.state.started(now, what.lease, what.at)
            elif isinstance(what, ProcessEnded):
                out += self._ended(now, wall, what.lease, what.end)
        self._flush_soon()
        self.act(out)

    def _ended(self, now: int, wall: int, lease: Lease, end: Exit) -> list[Instruction]:
        """One task is gone."""
        out = self.state.ended(now, lease, end)
        self._keep(now, wall, (lease,))
        self.outputs.ended(lease)
        return out

    def fetched(self, lease: Lease, task: Task) -> None:
        """A peer, or the server, told what a lease runs that was taken over."""
        self.act(self.state.fetched(self._monotonic(), lease, task))

    def unfetched(self, lease: Lease) -> None:
        """Nobody did."""
        self.act(self.state.unfetched(self._monotonic(), lease))

    def _keep(self, now: int, wall: int, leases: Iterable[Lease]) -> None:
        """Remember the results of these, of those that have one."""
        for lease in leases:
            if (result := self.state.results.get(lease)) is not None:
                self._spool.keep(result, now, wall)

    def surely_past(self) -> int:
        """A time that is past by our own clock and by the server's, either of which may be wrong; nanoseconds UTC."""
        wall, (told, at) = self._wall(), self.server_time
        return min(wall, told + self._monotonic() - at) if told else wall

    # --- the end

    async def drain(self, limit: float, hurry: asyncio.Event) -> None:
        """Take nothing more, give back what has not started, and let what runs end: for so many seconds, unless there is hurry."""
        self.act(self.state.drain(self._monotonic()))
        log.info("told to stop: %d tasks may end, for %gs", len(self.state.running), limit)
        waits = {asyncio.create_task(self.wait_stopped()), asyncio.create_task(hurry.wait())}
        try:
            await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def leave(self) -> None:
        """Stop all tasks, and tell the server."""
        log.info("told to stop: %d tasks are running", len(self.state.running))
        self.act(self.state.leave(self._monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_GRACE / 1e9 + REAP_MARGIN):
                await self.wait_stopped()
        if self._link.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._link.drained()

    def close(self) -> None:
        """Do nothing more by itself, and put the rest on disk."""
        if self._timer is not None:
            self._timer.cancel()
        self._spool.close()

    async def wait_stopped(self) -> None:
        """Return when no task runs."""
        while self.state.running:
            self._idle.clear()
            await self._idle.wait()

    # --- output

    def _held(self, key: Key) -> Lease | None:
        """The lease under which a task waits or runs here."""
        leases = (*self.state.running, *self.state.waiting)
        return next((lease for lease in leases if (lease.job, lease.attempt, lease.task) == key), None)

    async def _name_output(self, lease: Lease) -> None:
        """Have the output of a task under its name."""
        if (run := self.state.running.get(lease)) is not None:
            await self._runner.name_output(lease, run.task)

    # --- time and disk

    def _set_timer(self) -> None:
        """Be woken when something is due by itself."""
        wake = self.state.wake()
        if wake is None or (self._timer is not None and self._timer_at <= wake):
            return  # a timer that comes too early finds nothing to do, and sets the next
        if self._timer is not None:
            self._timer.cancel()
        now = self._monotonic()
        self._timer_at = min(wake, now + LONGEST_TIMER)
        pause = max(0.0, (self._timer_at - now) / 1e9)
        self._timer = asyncio.get_running_loop().call_later(pause, self._tick)

    def _tick(self) -> None:
        """Something may be due."""
        self._timer = None
        self.act(self.state.tick(self._monotonic()))

    def _flush_soon(self) -> None:
        """Write once for all that happens within a moment; what is told is written before."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(FLUSH_AFTER, self.flush)

    def flush(self) -> None:
        """Put on disk what must be there before it is told."""
        self._flushing = False
        try:
            self._spool.flush()
        except OSError as error:
            # The results are in memory still and will be told; only a death of the agent would lose them.
            log.error("cannot keep results on disk: %s", error)  # noqa: TRY400 - one line, no traceback
