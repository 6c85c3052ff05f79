"""Tracks tasks of gangs that may start again in their place: one that failed keeps its capacity until the server answers.

The server alone knows how many restarts the whole gang has left, so it decides each one. A task that starts again has
the variables, the GPUs and the ports that it had, and what is left of its walltime.
"""

from msgspec import Struct
from msgspec.structs import replace

from spillover.agent.leases.running import RunningTask
from spillover.agent.leases.values import Exit, GangStart, Restart, Task
from spillover.core.events import Lease


class _Known(Struct):
    """A task that may start again."""

    task: Task
    """As it first started."""
    slot: int
    start: GangStart
    first: int | None = None
    """Monotonic time of its first start; None before that."""
    run: int = 0
    """How often it was started again."""
    used: int = 0
    """Nanoseconds from its first start to the start of the present run."""


class Restarts:
    """The tasks of one agent that may start again."""

    def __init__(self) -> None:
        self._known: dict[Lease, _Known] = {}
        self.waiting: dict[Lease, Task] = {}
        """Tasks that failed, and keep their capacity until the server has answered."""

    def begin(self, lease: Lease, task: Task, slot: int, start: GangStart) -> None:
        """Note a task that starts with its gang."""
        if task.restarts:
            self._known[lease] = _Known(task, slot, start)

    def started(self, lease: Lease, at: int) -> None:
        """Note the time of its first start."""
        if (known := self._known.get(lease)) is not None and known.first is None:
            known.first = at

    def run(self, lease: Lease) -> int:
        """Return how often a task was started again under its lease."""
        known = self._known.get(lease)
        return 0 if known is None else known.run

    def limited(self, lease: Lease, walltime: int) -> int:
        """Take a new walltime of a task, which its next run gets the rest of; return that of the present run."""
        known = self._known.get(lease)
        if known is None:
            return walltime
        known.task = replace(known.task, walltime=walltime)
        return max(1, walltime - known.used) if walltime else 0

    def wait(self, lease: Lease, run: RunningTask, end: Exit) -> bool:
        """Let a task that ended wait for the server, if it failed by itself; return whether it does."""
        failed = end.spawned and not end.lost and not end.unkept and (end.code != 0 or end.out_of_memory)
        if lease not in self._known or run.cause is not None or not failed:
            return False
        self.waiting[lease] = run.task
        return True

    def again(self, lease: Lease, now: int) -> Restart | None:
        """Return the instruction that starts a task again; None if it does not wait for that."""
        known = self._known.get(lease)
        if known is None or self.waiting.pop(lease, None) is None:
            return None
        known.run += 1
        task = replace(known.task, env={**known.task.env, "SPILL_RESTART": str(known.run)})
        known.used = now - (known.first or now)
        if task.walltime:
            task = replace(task, walltime=max(1, task.walltime - known.used))
        return Restart(lease, task, known.slot, known.start)

    def forget(self, lease: Lease) -> Task | None:
        """Forget a task that does not start again; return it if it has kept its capacity."""
        self._known.pop(lease, None)
        return self.waiting.pop(lease, None)
