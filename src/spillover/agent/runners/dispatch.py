"""Passes each task to the runner for its kind of work."""

import asyncio
from collections.abc import Callable, Sequence
from signal import Signals

from spillover.agent.leases.values import Exit, Task
from spillover.agent.nursery.clock import boottime
from spillover.agent.runners.port import (
    NotifyingRunner,
    PreparingRunner,
    Runner,
    RunnerContext,
    RunnerOffer,
    SharingRunner,
    Sight,
)
from spillover.agent.tasks.process import ProcessEnded
from spillover.core.events import Lease
from spillover.model.job import Argv, Shell


class Runners:
    """All runners. A command or shell line runs as a plain process, unless a runner claims its kind."""

    def __init__(
        self,
        context: RunnerContext,
        runners: Sequence[Runner],
        start: Callable[[Lease, Task, int], None],
        recall: Callable[[Lease], None],
    ) -> None:
        self._context = context
        self._start_process = start
        self._recall_process = recall
        self._runners = runners
        self._by_kind: dict[type, Runner] = {}
        for runner in runners:
            for kind in runner.kinds:
                self._by_kind.setdefault(kind, runner)

    async def open(self) -> RunnerOffer:
        """Open all runners; return what they offer together."""
        words: dict[str, None] = {}
        missing: dict[str, str] = {}
        for runner in self._runners:
            await runner.open()
            offer = runner.offer()
            words |= dict.fromkeys(offer.words)
            missing |= offer.missing
        return RunnerOffer(tuple(words), {word: why for word, why in missing.items() if word not in words})

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Run a task."""
        runner = self._by_kind.get(type(task.work))
        if runner is not None:
            runner.start(lease, task, slot)
        elif isinstance(task.work, Shell | Argv):
            self._start_process(lease, task, slot)
        else:
            why = f"this agent has no runner for work of kind {type(task.work).__name__}"
            end: Sight = ProcessEnded(lease, Exit(boottime(), spawned=False, message=why))
            asyncio.get_running_loop().call_soon(self._context.seen, [end])

    async def prepare(self, task: Task) -> str:
        """Get ready for a task of a gang; return why that fails, or an empty string."""
        runner = self._by_kind.get(type(task.work))
        return await runner.prepare(task) if isinstance(runner, PreparingRunner) else ""

    def share(self, cpus: str) -> None:
        """Tell runners which CPUs no task has for itself; empty is all."""
        for runner in self._runners:
            if isinstance(runner, SharingRunner):
                runner.share(cpus)

    def recall(self, lease: Lease, task: Task) -> None:
        """Take back a task that has not begun."""
        if (runner := self._by_kind.get(type(task.work))) is not None:
            runner.recall(lease)
        else:
            self._recall_process(lease)

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """Terminate or kill a task."""
        if (runner := self._by_kind.get(type(task.work))) is not None:
            runner.signal(lease, kill=kill)
        else:
            self._context.signal(lease, kill)

    def notify(self, lease: Lease, task: Task) -> None:
        """Send a task the signal that it wants before its walltime."""
        number = int(Signals[f"SIG{task.signal}"])
        runner = self._by_kind.get(type(task.work))
        if isinstance(runner, NotifyingRunner):
            runner.notify(lease, number)
        else:
            self._context.notify(lease, number)

    async def name_output(self, lease: Lease, task: Task) -> None:
        """Wait until the output of a task has its own name."""
        if (runner := self._by_kind.get(type(task.work))) is not None:
            await runner.name_output(lease)
        else:
            await self._context.name_output(lease)

    async def close(self) -> None:
        """Close all runners."""
        for runner in self._runners:
            await runner.close()
