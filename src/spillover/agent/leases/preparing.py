"""Tracks tasks of gangs from the moment they get capacity until they start: prepared, reported, started or discarded."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from spillover.agent.leases.gangs import gang_environment
from spillover.agent.leases.values import Discard, GangStart, Instruction, Prepare, Readiness, Task
from spillover.core.events import Lease


class PreparingTask(Struct):
    """A task of a gang that holds its capacity and waits for the others of the gang."""

    task: Task
    """With its GPUs."""
    slot: int
    ready: Readiness | None = None
    """None until the task is prepared."""


class GangTasks:
    """The tasks of gangs on one agent."""

    def __init__(self, reported: dict[Lease, Readiness]) -> None:
        self.preparing: dict[Lease, PreparingTask] = {}
        """Tasks that have capacity and wait until the whole gang is prepared."""
        self._ready: dict[Lease, Readiness] = {}
        """All prepared tasks, until they end."""
        self._reported = reported
        """Prepared tasks that the next report names."""
        self._discarded: list[Instruction] = []

    def add(self, lease: Lease, task: Task, slot: int) -> Prepare:
        """Begin to prepare a task."""
        self.preparing[lease] = PreparingTask(task, slot)
        return Prepare(lease, task)

    def prepared(self, lease: Lease, ready: Readiness) -> None:
        """Record that a task can start at once, if it is still wanted."""
        if (preparing := self.preparing.get(lease)) is not None:
            preparing.ready = self._ready[lease] = self._reported[lease] = ready

    def report_again(self) -> None:
        """Report all prepared tasks again: another server may have to give the word, and does not know of them."""
        self._reported |= self._ready

    def waiting_for(self, start: GangStart) -> list[Lease]:
        """Return the prepared tasks that this word starts."""
        return [
            lease
            for lease, preparing in self.preparing.items()
            if (lease.job, lease.attempt, lease.seq) == (start.job, start.attempt, start.seq)
            and preparing.ready is not None
            and lease.task < len(start.nodes)
        ]

    def start(
        self, start: GangStart, files: Mapping[Lease, Mapping[str, str]]
    ) -> Iterable[tuple[Lease, Task, int]]:
        """Remove the tasks that this word starts; return each with its environment, and its slot."""
        for lease in self.waiting_for(start):
            preparing = self.preparing.pop(lease)
            env = gang_environment(start, lease.task, preparing.task, files.get(lease, {}))
            yield lease, replace(preparing.task, env=env), preparing.slot

    def drop(self, lease: Lease) -> Task | None:
        """Remove a task that does not start; return it, or None if there is none."""
        preparing = self.preparing.pop(lease, None)
        if preparing is None:
            return None
        self.ended(lease)
        self._reported.pop(lease, None)
        self._discarded.append(Discard(lease))
        return preparing.task

    def ended(self, lease: Lease) -> None:
        """Forget a task that ended."""
        self._ready.pop(lease, None)

    def discarded(self) -> list[Instruction]:
        """Take the instructions to delete what was prepared for tasks that do not start."""
        if not self._discarded:  # as after almost every task
            return self._discarded
        discarded, self._discarded = self._discarded, []
        return discarded
