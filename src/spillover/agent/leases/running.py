"""Running tasks of an agent: what stops them, and when."""

from msgspec import Struct
from msgspec.structs import replace

from spillover.agent.leases.timers import Due, Timers
from spillover.agent.leases.values import Exit, Instruction, Notify, Signal, Task, TaskResult
from spillover.core.events import Lease
from spillover.core.proposals import Outcome
from spillover.model.bounds import plain


class RunningTask(Struct):
    """A lease with a process, or with one that is being created."""

    task: Task
    started: int | None = None
    """Monotonic time at which its process was created; None before that."""
    acknowledged: bool = False
    """Whether its start is durable on the server, so that it outlasts the short term."""
    cause: Outcome | None = None
    """Why it is being stopped; None if it is not."""
    stopped: int = 0
    """Monotonic time at which `cause` was set."""
    overdue: bool = False
    """Whether its walltime or deadline is the reason of the stop. These limit the process, not the transfer of files.
    """
    terminated: bool = False
    killed: bool = False
    why: str = ""
    """Message of the result; empty if the task ends by itself."""
    moving: bool = False
    """Whether its files are being fetched or uploaded, so that it has no process."""
    exited: bool = False
    """Whether its process has ended and its files are being uploaded."""
    noticed: int = -1
    """The walltime before which it got its signal; -1 before that."""

    def notice_at(self, started: int) -> int:
        """Return when it gets the signal before its walltime, if it started at `started`."""
        return started + max(0, self.task.walltime - self.task.signal_before)

    def is_noticed(self, now: int) -> bool:
        """Return whether the signal before its walltime is due, which it gets once for each walltime."""
        limit, started = self.task.walltime, self.started
        return (
            bool(limit) and started is not None and limit != self.noticed and self.notice_at(started) <= now
        )

    def is_over(self, now: int) -> bool:
        """Return whether its walltime has passed; timers of an earlier run or walltime say nothing."""
        return (
            bool(self.task.walltime) and self.started is not None and self.started + self.task.walltime <= now
        )

    def spare(self, end: Exit) -> None:
        """Cancel a stop for walltime or deadline if the process ended before it. Its exit then decides."""
        if self.overdue and end.spawned and end.ended <= self.stopped:
            self.cause, self.why, self.overdue = None, "", False
            self.terminated = self.killed = False

    def result(self, lease: Lease, end: Exit, number: int) -> TaskResult:
        """Return the result of the task, of which this was the run of that number."""
        return TaskResult(
            lease,
            self.cause or end.outcome,
            end.ended,
            end.code,
            end.signal,
            end.usage,
            plain(end.message) or self.why,
            end.value,
            end.value_digest,
            end.outputs,
            number,
            end.saved,
        )


class RunningTasks(dict[Lease, RunningTask]):
    """The running tasks by lease, with timers for the end of their walltime and of their grace."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers()

    def started(self, lease: Lease, at: int) -> None:
        """Record that the process of a task started."""
        run = self[lease]
        run.started = at
        self._set_timers(lease, run, at)

    def limit(self, lease: Lease, walltime: int) -> None:
        """Give a task another walltime, from its start; the server repeats this, and may say it after the end."""
        run = self.get(lease)
        if run is None or run.task.walltime == walltime:
            return
        run.task = replace(run.task, walltime=walltime)
        if run.started is not None:
            self._set_timers(lease, run, run.started)

    def _set_timers(self, lease: Lease, run: RunningTask, at: int) -> None:
        if run.task.walltime:
            self.timers.set(at + run.task.walltime, lease, Due.WALLTIME, self)
            if run.task.signal:
                self.timers.set(run.notice_at(at), lease, Due.NOTICE, self)

    def stop(
        self, now: int, lease: Lease, cause: Outcome, why: str, *, kill: bool, overdue: bool = False
    ) -> list[Instruction]:
        """Terminate or kill a running task. Its result names the first cause."""
        run = self[lease]
        if run.cause is None:
            run.cause, run.why, run.stopped = cause, why, now
            run.overdue = overdue
        elif not overdue:
            run.overdue = False  # the task itself must go, and not only its process
        if run.killed or (run.terminated and not kill):
            return []
        if kill or not run.task.grace:
            run.killed = True
            return [Signal(lease, kill=True)]
        run.terminated = True
        self.timers.set(now + run.task.grace, lease, Due.KILL, self)
        return [Signal(lease, kill=False)]

    def stop_all(self, now: int, why: str, *, most: int) -> list[Instruction]:
        """Terminate all tasks, and kill them after at most so many nanoseconds."""
        out: list[Instruction] = []
        for lease in self:
            out += self.stop(now, lease, Outcome.STOPPED, why, kill=False)
            self.timers.set(now + most, lease, Due.KILL, self)
        return out

    def tick(self, now: int) -> list[Instruction]:
        """Stop what has reached its walltime, and kill what has used up its grace."""
        out: list[Instruction] = []
        for lease, due in self.timers.ring(now):
            if (run := self.get(lease)) is None:
                continue
            if due is Due.KILL:
                if run.cause is not None:
                    out += self.stop(now, lease, Outcome.STOPPED, "", kill=True, overdue=run.overdue)
            elif due is Due.NOTICE:
                # A task that started again has the timer of its earlier run too.
                if run.cause is None and run.is_noticed(now):
                    run.noticed = run.task.walltime
                    out.append(Notify(lease))
            elif run.cause is None and not run.moving and run.is_over(now):
                out += self.stop(
                    now, lease, Outcome.WALLTIME, "reached its walltime", kill=False, overdue=True
                )
        return out
