"""Combines what runs the tasks of an agent: nurseries, runners for other kinds of work, and staging of files."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from os.path import normpath
from pathlib import Path
from typing import Final

from spillover.agent.files.cache import Files
from spillover.agent.files.staging import Actors, Staging
from spillover.agent.files.state_folders import StateFolders
from spillover.agent.leases.values import Exit, GangStart, Readiness, Task
from spillover.agent.nursery.clock import boottime
from spillover.agent.options import AgentOptions
from spillover.agent.runners.dispatch import Runners
from spillover.agent.runners.loading import load as load_runners
from spillover.agent.runners.port import Returned, RunnerContext, RunnerOffer, Sight
from spillover.agent.runtime import AgentRuntime
from spillover.agent.sessions.places import Entry
from spillover.agent.sessions.serving import NoSession
from spillover.agent.tasks.checkpoints import SIGNALS, SignalFiles
from spillover.agent.tasks.environments import Environments
from spillover.agent.tasks.gangs import GangFiles
from spillover.agent.tasks.isolation import Isolation
from spillover.agent.tasks.process import DIED, ProcessEnded, Processes, Seen, Spawned, stem_of
from spillover.agent.tasks.secrets import SecretSource, TaskSecrets
from spillover.core.events import Lease
from spillover.core.records.tasks import LEADER
from spillover.model.files import KEPT_STREAMS
from spillover.model.job import Argv, Shell

READY_THREADS: Final = 64
"""Most tasks for which the nurseries prepare at the start. They add threads when needed."""


class TaskRunners:
    """Runs tasks for the agent's runtime, and reports to it; see `runtime.TaskRunner`."""

    def __init__(
        self, options: AgentOptions, files: Files, runtime: AgentRuntime, secrets: SecretSource
    ) -> None:
        self._options = options
        self._files = files
        self._runtime = runtime
        self._launched: dict[Lease, Callable[[Seen], None]] = {}
        """Processes that runners launched for themselves, with the receivers of their events."""
        self._gangs = GangFiles(options.folder / "gangs")
        self._signals = SignalFiles(options.folder / SIGNALS)
        self._secrets = TaskSecrets(options.folder, secrets)
        self._processes = self._new_processes()
        self._runners = self._new_runners()
        self._environments = Environments(
            options.folder,
            options.settings.get("python", ""),
            options.environments,
            options.environment_cache,
        )
        self._staging = self._new_staging()

    async def open_processes(self) -> Isolation:
        """Start the nurseries; return the isolation in use."""
        await self._processes.open()
        return self._processes.isolation

    async def open_runners(self) -> RunnerOffer:
        """Open all runners and the staging of files; return what the runners offer."""
        self._files.open()
        self._gangs.open()
        self._signals.open()
        await asyncio.to_thread(self._staging.open)
        runners, environments = await self._runners.open(), await self._environments.open()
        return RunnerOffer((*runners.words, *environments.words), {**runners.missing, **environments.missing})

    async def close(self) -> None:
        """End everything that is left."""
        await self._staging.close()
        await self._environments.close()
        await self._runners.close()
        self._files.close()
        await self._processes.close()

    # --- the port of the runtime

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """See TaskRunner."""
        self._staging.start(lease, task, slot)

    def prefetch(self, task: Task) -> None:
        """See TaskRunner."""
        self._staging.prefetch(task)

    def prepare(self, lease: Lease, task: Task) -> None:
        """See TaskRunner."""
        self._staging.prepare(lease, task)

    def discard(self, lease: Lease) -> None:
        """See TaskRunner."""
        self._staging.discard(lease)
        self._gangs.forget((lease,))

    def describe_gang(self, lease: Lease, start: GangStart) -> Mapping[str, str]:
        """See TaskRunner."""
        return self._gangs.write(lease, start)

    def recall(self, lease: Lease, task: Task) -> None:
        """See TaskRunner."""
        self._runners.recall(lease, task)

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """See TaskRunner."""
        self._staging.signal(lease, task, kill=kill)

    def notify(self, lease: Lease, task: Task) -> None:
        """See TaskRunner."""
        self._signals.tell(lease)
        self._runners.notify(lease, task)

    async def name_output(self, lease: Lease, task: Task) -> None:
        """See TaskRunner."""
        await self._runners.name_output(lease, task)

    def entry(self, lease: Lease, task: Task) -> Entry | None:
        """See TaskRunner."""
        if not isinstance(task.work, Shell | Argv):
            raise NoSession(
                "commands run beside `run` and `command` only, not in containers or beside Python calls"
            )
        return self._processes.entry(lease)

    # --- events of tasks

    def _prepared(self, lease: Lease, why: str) -> None:
        """Pass on that a task of a gang is prepared, with what the others need of it."""
        ready = Readiness()
        if not why:
            try:
                ready = self._gangs.readiness(leads=lease.task == LEADER)
            except OSError as error:
                why = f"there is no free port: {error.strerror or error}"
        if why:
            self._runtime.unprepared(lease, why)
        else:
            self._runtime.prepared(lease, ready)

    def _seen(self, seen: Sequence[Sight]) -> None:
        """Pass starts and ends of tasks on, without ends of tasks whose files must be uploaded first."""
        self._gangs.forget(what.lease for what in seen if not isinstance(what, Spawned))
        self._signals.forget(what.lease for what in seen if not isinstance(what, Spawned))
        self._runtime.seen(self._staging.hold_back_ends(seen))

    def _made(self, seen: list[Sight]) -> None:
        """Pass starts and ends of processes on, to the runner that launched them or as those of tasks."""
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
        """Start a process for a runner."""
        if seen is not None:
            self._launched[lease] = seen
        self._processes.start(lease, task, for_runner=True)

    def _share(self, cpus: str) -> None:
        """Pass on which CPUs no task has for itself."""
        self._runners.share(cpus)

    # --- construction

    def _new_processes(self) -> Processes:
        """Create the nurseries' owner, without starting it."""
        options = self._options
        return Processes(
            options.folder,
            options.cluster,
            self._made,
            isolation=options.isolation,
            output_limit=options.output_limit,
            threads=max(1, min(READY_THREADS, options.capacity.cpu // 1000)),
            shares=self._share,
            node=options.name,
            memory=self._secrets.folder,
        )

    def _new_runners(self) -> Runners:
        """Create the runners."""

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
            notify=self._processes.notify,
            name_output=name_output,
            files=self._files,
            output_limit=options.output_limit,
            settings=options.settings,
            node=options.name,
        )
        return Runners(context, load_runners(context), self._start_process, self._recall_process)

    def _start_process(self, lease: Lease, task: Task, slot: int) -> None:
        """Start a process for a task."""
        self._processes.start(lease, task, slot)

    def _recall_process(self, lease: Lease) -> None:
        """Take back a task whose process was not started yet."""
        self._processes.recall(lease)

    def _new_staging(self) -> Staging:
        """Create the staging of files."""
        actors = Actors(
            start=self._runners.start,
            signal=lambda lease, task, kill: self._runners.signal(lease, task, kill=kill),
            seen=self._seen,
            moving=self._runtime.state.moving,
            wrote=self._wrote,
            streams=self._streams,
            exited=self._runtime.state.exited,
            prepare=self._runners.prepare,
            prepared=self._prepared,
        )
        states = StateFolders(self._options.folder / "state", self._files)
        return Staging(
            self._options.folder / "work", self._files, actors, states, self._environments, self._secrets
        )

    def _streams(self, lease: Lease, task: Task) -> Sequence[tuple[str, Path]]:
        """Return the relative files that the output of a task goes to, each with the log that links to it."""
        stem = stem_of(self._options.folder / "output", lease.job, lease.attempt, lease.task)
        paths = zip(self._processes.streams(lease, task), (".out", ".err"), strict=True)
        return [
            (normpath(path), Path(f"{stem}{end}"))
            for path, end in paths
            if path and not Path(path).is_absolute()
        ]

    def _wrote(self, lease: Lease) -> Sequence[tuple[str, Path]]:
        """Return the output files of a task that the server wants, each with the path to list it under."""
        if not self._runtime.state.keep_output:
            return ()
        stem = stem_of(self._options.folder / "output", lease.job, lease.attempt, lease.task)
        files = zip(KEPT_STREAMS, (Path(f"{stem}.out"), Path(f"{stem}.err")), strict=True)
        return [(name, path) for name, path in files if path.exists()]
