"""All who run the tasks of an agent: nurseries that make processes, runners for other kinds of work, and who brings files around them."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from spillover.agent.files import Files
from spillover.agent.isolation import Isolation
from spillover.agent.nursery.clock import boottime
from spillover.agent.options import AgentOptions
from spillover.agent.process import DIED, ProcessEnded, Processes, Seen, Spawned, stem_of
from spillover.agent.runners.dispatch import Runners
from spillover.agent.runners.loading import load as load_runners
from spillover.agent.runners.port import Returned, RunnerContext, RunnerOffer, Sight
from spillover.agent.runtime import AgentRuntime
from spillover.agent.staging import Actors, Staging
from spillover.agent.values import Exit, Task
from spillover.core.events import Lease
from spillover.model.files import KEPT_STREAMS

READY_THREADS: Final = 64
"""Tasks that the nursery is ready for from the beginning; it gets ready for more when there are more."""


class TaskRunners:
    """Runs tasks for the agent's runtime, and tells it what becomes of them; see `runtime.TaskRunner`."""

    def __init__(self, options: AgentOptions, files: Files, runtime: AgentRuntime) -> None:
        self._options = options
        self._files = files
        self._runtime = runtime
        self._launched: dict[Lease, Callable[[Seen], None]] = {}
        """Processes that are no tasks of the server's, and whoever wants to hear of them."""
        self._processes = self._new_processes()
        self._runners = self._new_runners()
        self._staging = self._new_staging()

    async def open_processes(self) -> Isolation:
        """Be ready to make processes; what keeps them apart."""
        await self._processes.open()
        return self._processes.isolation

    async def open_runners(self) -> RunnerOffer:
        """Be ready for all other work; what it makes possible."""
        self._files.open()
        await asyncio.to_thread(self._staging.open)
        return await self._runners.open()

    async def close(self) -> None:
        """End all that is left."""
        await self._staging.close()
        await self._runners.close()
        self._files.close()
        await self._processes.close()

    # --- what the runtime asks

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """See TaskRunner."""
        self._staging.start(lease, task, slot)

    def prefetch(self, task: Task) -> None:
        """See TaskRunner."""
        self._staging.prefetch(task)

    def recall(self, lease: Lease, task: Task) -> None:
        """See TaskRunner."""
        self._runners.recall(lease, task)

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """See TaskRunner."""
        self._staging.signal(lease, task, kill=kill)

    async def name_output(self, lease: Lease, task: Task) -> None:
        """See TaskRunner."""
        await self._runners.name_output(lease, task)

    # --- what is seen

    def _seen(self, seen: Sequence[Sight]) -> None:
        """Tasks began or ended; of those with files the end is not told yet."""
        self._runtime.seen(self._staging.sift(seen))

    def _made(self, seen: list[Sight]) -> None:
        """Processes were made or ended, of tasks or of runners that want to hear of theirs themselves."""
        if not self._launched:
            self._seen(seen)
            return
        now = boottime()
        own = [what for what in seen if what.lease not in self._launched]
        for what in seen:
            if (tell := self._launched.get(what.lease)) is None:
                continue
            if isinstance(what, Returned):
                message = DIED if what.lost else "the system allows no more threads"
                what = ProcessEnded(what.lease, Exit(now, spawned=False, message=message, lost=what.lost))  # noqa: PLW2901
            if not isinstance(what, Spawned):
                del self._launched[what.lease]
            tell(what)
        if own:
            self._seen(own)

    def _launch(self, lease: Lease, task: Task, seen: Callable[[Seen], None] | None) -> None:
        """Make a process for a runner."""
        if seen is not None:
            self._launched[lease] = seen
        self._processes.start(lease, task)

    # --- who does what

    def _new_processes(self) -> Processes:
        """Who makes processes; not yet there."""
        options = self._options
        return Processes(
            options.folder,
            options.cluster,
            self._made,
            isolation=options.isolation,
            output_limit=options.output_limit,
            threads=max(1, min(READY_THREADS, options.capacity.cpu // 1000)),
        )

    def _new_runners(self) -> Runners:
        """Who runs what."""

        async def name_output(lease: Lease) -> None:
            await self._processes.name_output(lease)

        options = self._options
        context = RunnerContext(
            folder=options.folder,
            cluster=options.cluster,
            capacity=options.capacity,
            seen=self._seen,
            launch=self._launch,
            signal=lambda lease, kill: self._processes.signal(lease, kill=kill),
            name_output=name_output,
            files=self._files,
            output_limit=options.output_limit,
            settings=options.settings,
        )
        return Runners(context, load_runners(context), self._start_process, self._recall_process)

    def _start_process(self, lease: Lease, task: Task, slot: int) -> None:
        """Make a process of a task."""
        self._processes.start(lease, task, slot)

    def _recall_process(self, lease: Lease) -> None:
        """Have a task back whose process is not made yet."""
        self._processes.recall(lease)

    def _new_staging(self) -> Staging:
        """Who brings files to tasks, and away."""
        actors = Actors(
            start=self._runners.start,
            signal=lambda lease, task, kill: self._runners.signal(lease, task, kill=kill),
            seen=self._seen,
            moving=self._runtime.state.moving,
            wrote=self._wrote,
            exited=self._runtime.state.exited,
        )
        return Staging(self._options.folder / "work", self._files, actors)

    def _wrote(self, lease: Lease) -> Sequence[tuple[str, Path]]:
        """Files with output of a task that the server wants, each with where it is to be listed."""
        if not self._runtime.state.keep_output:
            return ()
        stem = stem_of(self._options.folder / "output", lease.job, lease.attempt, lease.task)
        files = zip(KEPT_STREAMS, (Path(f"{stem}.out"), Path(f"{stem}.err")), strict=True)
        return [(name, path) for name, path in files if path.exists()]
