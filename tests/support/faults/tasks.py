"""Simulates tasks on the machine of an agent: created, signalled and reaped in true time, without the agent."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from spillover.agent.leases.values import Exit, Task
from spillover.agent.tasks.process import ProcessEnded, Returned, Sight, Spawned
from spillover.core.events import Lease, Usage
from spillover.model.ids import JobId, split_member
from spillover.model.job import Shell
from tests.support.faults.hosts import MILLISECOND, Host, Universe
from tests.support.faults.plans import KILL_TIME

SIGTERM: Final = 15
SIGKILL: Final = 9


class Script(Struct, frozen=True):
    """What a task does; jobs carry it as JSON in place of a shell command."""

    runs: int
    """Runtime in nanoseconds."""
    failures: int = 0
    """Number of attempts that fail with an exit code."""
    stubborn: bool = False
    """Whether it ignores TERM."""
    tail: int = 0
    """Runtime in nanoseconds of every fourth array member; 0 means the same as the others."""
    preparing: float = 0.0
    """Seconds until a task of a gang is prepared."""
    unprepared: int = 0
    """Number of attempts in which the last task of a gang cannot be prepared."""
    restarts: int = 0
    """Number of runs of each odd task of a gang that fail before one succeeds, in each attempt."""

    def time(self, job: JobId) -> int:
        """Return how long a job runs."""
        member = split_member(job)
        return self.tail if self.tail and member is not None and member[1] % 4 == 0 else self.runs


class Execution(Struct, eq=False):
    """A task, from the order to start it until it is gone."""

    lease: Lease
    agent: str
    script: Script
    host: Host
    """The agent process that learns of its end."""
    seen: Callable[[Sequence[Sight]], None]
    ordered: int
    slot: int = -1
    """Tasks of the same slot and agent process run one after the other; -1 means no slot."""
    began: int | None = None
    """True time; None until a process exists."""
    over: int | None = None
    """True time; None until it is over."""
    code: int | None = None
    signal: int | None = None
    run: int = 0
    """How often it was started again in its place."""

    @property
    def alive(self) -> bool:
        """Whether a process exists."""
        return self.began is not None and self.over is None


class Machine:
    """The machine of an agent, with the tasks of all its processes."""

    def __init__(self, universe: Universe, name: str, dice: random.Random) -> None:
        self.name = name
        self.universe = universe
        self.executions: dict[Lease, Execution] = {}
        """Tasks that are not over."""
        self.made: Callable[[Execution], None] = lambda _: None
        """Called for every process that is created."""
        self.gone: Callable[[Execution], None] = lambda _: None
        """Called for every process that is gone."""
        self.prepared: Callable[[Lease], None] = lambda _: None
        """Called for every task of a gang that is prepared."""
        self._dice = dice

    def start(
        self, lease: Lease, task: Task, slot: int, host: Host, seen: Callable[[Sequence[Sight]], None]
    ) -> None:
        """Create a process soon, or when earlier ones in its slot are gone."""
        script = self.script_of(task)
        execution = Execution(lease, self.name, script, host, seen, self.universe.now, slot)
        execution.run = int(task.env.get("SPILL_RESTART", "0"))
        assert lease not in self.executions, f"{lease} is started twice by {self.name}"
        first = not self._slot(execution)
        self.executions[lease] = execution
        if first:
            self._make_soon(execution)

    @staticmethod
    def script_of(task: Task) -> Script:
        """Return what a task does."""
        assert isinstance(task.work, Shell)
        return msgspec.json.decode(task.work.run, type=Script)

    def recall(self, lease: Lease) -> None:
        """Return a task that still waits for others in its slot."""
        execution = self.executions.get(lease)
        if execution is None or self._slot(execution)[:1] in ([], [execution]):
            return
        execution.over = self.universe.now
        del self.executions[lease]
        self.universe.tell(f"{self.name}: {_name(lease)} is given back")
        self.gone(execution)
        self._tell(execution, Returned(lease))

    def _slot(self, execution: Execution) -> list[Execution]:
        """Return all tasks of its slot in order; none if it has no slot."""
        if execution.slot < 0:
            return []
        return [
            each
            for each in self.executions.values()
            if (each.slot, each.host) == (execution.slot, execution.host)
        ]

    def _make_soon(self, execution: Execution) -> None:
        self.universe.after(int(self._dice.random() * 8 * MILLISECOND), lambda: self._make(execution))

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Signal a task; if it has no process yet, never create one."""
        execution = self.executions.get(lease)
        if execution is None:
            return
        if execution.began is None:
            self._end(execution, None, None)
        elif kill:
            self.universe.after(self._moment(), lambda: self._end(execution, None, SIGKILL))
        elif not execution.script.stubborn:
            self.universe.after(self._moment(), lambda: self._end(execution, None, SIGTERM))

    def clear(self, leases: Iterable[Lease]) -> None:
        """Kill these tasks, soon."""
        for lease in leases:
            self.signal(lease, kill=True)

    def _moment(self) -> int:
        return int(self._dice.random() * KILL_TIME / 2)

    def _make(self, execution: Execution) -> None:
        if execution.over is not None or execution.began is not None:
            return
        execution.began = self.universe.now
        self.universe.tell(f"{self.name}: {_name(execution.lease)} runs")
        self.made(execution)
        script, lease = execution.script, execution.lease
        fails = lease.attempt <= script.failures or (lease.task % 2 and execution.run < script.restarts)
        code = 1 if fails else 0
        self.universe.after(
            execution.script.time(execution.lease.job), lambda: self._end(execution, code, None)
        )
        pid = 1000 + len(self.executions)
        self._tell(execution, Spawned(execution.lease, pid, 1, execution.host.monotonic()))

    def _end(self, execution: Execution, code: int | None, signal: int | None) -> None:
        if execution.over is not None:
            return
        began = execution.began
        execution.over, execution.code, execution.signal = self.universe.now, code, signal
        del self.executions[execution.lease]
        how = (
            "was never made" if began is None else f"exits {code}" if signal is None else f"dies by {signal}"
        )
        self.universe.tell(f"{self.name}: {_name(execution.lease)} {how}")
        self.gone(execution)
        usage = Usage(0 if began is None else self.universe.now - began)
        end = Exit(execution.host.monotonic(), began is not None, code, signal, usage)
        self._tell(execution, ProcessEnded(execution.lease, end))
        if (behind := self._slot(execution)) and behind[0].began is None and not execution.host.dead:
            self._make_soon(behind[0])

    def _tell(self, execution: Execution, what: Sight) -> None:
        """Inform the agent process that started it, if it lives."""
        if not execution.host.dead:
            execution.host.call_soon(execution.seen, [what])


def _name(lease: Lease) -> str:
    rank = f" task {lease.task}" if lease.task else ""
    return f"{lease.job} attempt {lease.attempt} seq {lease.seq}{rank}"
