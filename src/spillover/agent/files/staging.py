"""Moves the files of tasks: inputs into a folder before a task starts, outputs to the server after it ended.

A task with files starts under its lease like any other task, and the agent reports the start when its process exists.
The task holds its capacity while its inputs arrive, so that it can start as soon as they are complete. The agent
reports the end when the outputs are on the server. Inputs are copies from the agent's cache, or clones where the file
system supports them, because a task may change its files.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from spillover.agent.files.cache import Files, Unfetched
from spillover.agent.files.output import flattened
from spillover.agent.files.state_folders import STATE, StateFolders
from spillover.agent.files.task_folders import copy_file, find_outputs, remove_folder, size_of
from spillover.agent.leases.values import Exit, Task
from spillover.agent.nursery.clock import boottime
from spillover.agent.runners.port import Sight
from spillover.agent.tasks.environments import Environments, Unbuilt
from spillover.agent.tasks.outlasting import outlast
from spillover.agent.tasks.process import ProcessEnded, Spawned
from spillover.agent.tasks.secrets import NoSecrets, TaskSecrets
from spillover.core.events import Lease
from spillover.core.records.tasks import LEADER
from spillover.model.files import File, clash, wrong_path
from spillover.model.job import Argv, Shell
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND, format_duration
from spillover.ports.blobs import digest_of

AT_ONCE: Final = 8
"""Files of one task that move at the same time."""
AHEAD: Final = 4
"""Most waiting tasks whose inputs are fetched ahead."""
OUTPUTS_LIMIT: Final = 1 << 30
"""Most bytes of outputs if the server sets no limit."""
UPLOAD_SPARE: Final = 10 * MINUTE
"""Nanoseconds that an upload of outputs may take, beyond `lost_after` and the time at the rate below."""
UPLOAD_RATE: Final = 128 << 10
"""Bytes per second, the slowest upload that is still allowed."""
UNSAVED: Final = "its state was not saved"
NO_FILES: Final = Task(Argv(("",)), Resources())
"""Stands for a task with no files except its output streams."""
_encode = msgspec.json.Encoder().encode
log = logging.getLogger("spillover.agent")


class _Phase(Enum):
    """Progress of a task with files."""

    FETCHING = "fetching"
    READY = "ready"
    """Of a gang whose other tasks are not prepared yet."""
    RUNNING = "running"
    COLLECTING = "collecting"


class _Stage:
    """A task with files."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self.folder = folder
        self.phase = _Phase.FETCHING
        self.work: asyncio.Task[None] | None = None
        """Moves its files at present; None while the task runs."""
        self.stopped = False
        """Whether it was told to end, so that another attempt may follow even if it exits with 0."""
        self.environment: Mapping[str, str] = {}
        """Variables of its Python environment."""
        self.python = ""
        """The interpreter of that."""
        self.secrets: dict[str, str] = {}
        """Variables with its secrets, or with the paths of their files."""

    @property
    def given(self) -> Path:
        """Its copy of its standard input, outside of its folder."""
        return self.folder.with_name(f"{self.folder.name}.stdin")

    def placed(self) -> Task:
        """Return the task with the paths of what it got here."""
        task = self.task
        if task.has_folder:
            task = replace(task, workdir=str(self.folder))
        return task if task.stdin is None else replace(task, given=str(self.given))


async def _nothing_to_prepare(_: Task) -> str:
    return ""


class Actors(NamedTuple):
    """The callbacks of a stage."""

    start: Callable[[Lease, Task, int], None]
    """Runs a task whose inputs are complete."""
    signal: Callable[[Lease, Task, bool], None]
    """Terminates or kills a running task."""
    seen: Callable[[Sequence[Sight]], None]
    """Receives the end of a task when its files are uploaded."""
    moving: Callable[[Lease, bool], None]
    """Receives whether files of a task move, while it has no process."""
    wrote: Callable[[Lease], Sequence[tuple[str, Path]]] = lambda _: ()
    """Returns output streams that the server should keep, each with the path under which it is listed."""
    streams: Callable[[Lease, Task], Sequence[tuple[str, Path]]] = lambda _, __: ()
    """Returns the files below the folder of a task that its output goes to, each with the log that links to it."""
    exited: Callable[[Lease, Exit], None] = lambda _, __: None
    """Receives how the process of a task ended, before its files are uploaded."""
    prepare: Callable[[Task], Awaitable[str]] = _nothing_to_prepare
    """Gets ready for a task of a gang beyond its files; returns why that fails, or an empty string."""
    prepared: Callable[[Lease, str], None] = lambda _, __: None
    """Receives that a task of a gang is prepared, or why it cannot be."""


class Staging:
    """All tasks with files."""

    def __init__(
        self,
        folder: Path,
        files: Files,
        actors: Actors,
        states: StateFolders,
        environments: Environments,
        secrets: TaskSecrets,
    ) -> None:
        self._environments = environments
        self._secrets = secrets
        self._folder = folder
        self._states = states
        self._files = files
        self._actors = actors
        self._stages: dict[Lease, _Stage] = {}
        self._ahead: set[asyncio.Task[None]] = set()
        self._over: set[Lease] = set()
        """Tasks whose end is being reported, with nothing left to upload."""

    def open(self) -> None:
        """Delete what an earlier run left."""
        if self._folder.exists():
            remove_folder(self._folder)
        self._states.sweep()
        self._secrets.open()

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Run a task, immediately if it has no files."""
        if not task.has_files:
            self._actors.start(lease, task, slot)
            return
        stage = self._stages.get(lease)
        if stage is not None:  # prepared before, as a part of a gang
            stage.task = task
            self._begin(lease, stage, slot)
            return
        stage = self._new_stage(lease, task)
        self._move(lease, stage, self._bring(lease, stage, slot), _unstarted)

    def _begin(self, lease: Lease, stage: _Stage, slot: int) -> None:
        """Start a task whose files are there."""
        stage.phase, stage.work, task = _Phase.RUNNING, None, stage.placed()
        if task.environment is not None:
            task = replace(task, env={**task.env, **stage.environment}, python=stage.python)
        if task.keep_state:
            task = replace(task, env=task.env | {STATE: str(self._states.begin(lease))})
        if stage.secrets:
            task, stage.secrets = replace(task, env=task.env | stage.secrets), {}
        self._actors.start(lease, task, slot)

    def _new_stage(self, lease: Lease, task: Task) -> _Stage:
        """Return a stage with a folder of its own."""
        name = f"{lease.job}.{lease.attempt}.{lease.task}.{lease.seq}"
        stage = self._stages[lease] = _Stage(task, self._folder / name)
        return stage

    def prepare(self, lease: Lease, task: Task) -> None:
        """Fetch the inputs of a task of a gang and what else it needs; report when that is done. It starts later."""
        if not task.has_files:
            looking = asyncio.create_task(self._prepare_without_files(lease, task))
            self._ahead.add(looking)
            looking.add_done_callback(self._ahead.discard)
            return
        stage = self._new_stage(lease, task)
        stage.work = asyncio.create_task(self._prepare(lease, stage))

    async def _prepare_without_files(self, lease: Lease, task: Task) -> None:
        """Report whether a task without files can start. Its folder may be on a disk that is slow or does not answer."""
        if isinstance(task.work, Shell | Argv) and not await asyncio.to_thread(os.path.isdir, task.workdir):
            why = f"its working directory {task.workdir} does not exist, or the agent may not enter it"
        else:
            why = await self._prepare_work(lease, task)
        self._actors.prepared(lease, why)

    async def _prepare_work(self, lease: Lease, task: Task) -> str:
        """Get ready what runs the work of a task; return why that fails, or an empty string."""
        try:
            return await self._actors.prepare(task)
        except Exception as error:  # a bug of a runner must not keep the gang waiting
            log.exception("cannot prepare %s", lease.job)
            return f"cannot prepare it: {error}"

    def discard(self, lease: Lease) -> None:
        """Delete the files of a task that was prepared and does not start."""
        stage = self._stages.pop(lease, None)
        if stage is None:
            return
        self._leave(lease)
        if stage.work is not None:
            stage.work.cancel()
        self._clean(stage)

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """Terminate or kill a task. Outputs of a terminated task are still uploaded, those of a killed task are not."""
        stage = self._stages.get(lease)
        if stage is not None:
            stage.stopped = True
        if stage is None or stage.phase is _Phase.RUNNING:
            self._actors.signal(lease, task, kill)
        elif stage.work is not None and (kill or stage.phase is _Phase.FETCHING):
            stage.work.cancel()

    def hold_back_ends(self, seen: Sequence[Sight]) -> Sequence[Sight]:
        """Return what was seen, without the ends of tasks whose files must be uploaded first."""
        self._stage_writers(seen)
        if not self._stages or not any(what.lease in self._stages for what in seen):
            return seen
        rest: list[Sight] = []
        for what in seen:
            stage = self._stages.get(what.lease)
            if stage is None or isinstance(what, Spawned):
                rest.append(what)
            elif isinstance(what, ProcessEnded):
                stage.phase = _Phase.COLLECTING
                self._secrets.leave(what.lease)
                self._actors.exited(what.lease, what.end)
                late = partial(_late, stage.task, what.end)
                self._move(what.lease, stage, self._collect(what.lease, stage, what.end), late)
            else:
                # It may start again under the same lease before its folder is deleted.
                del self._stages[what.lease]
                self._states.not_begun(what.lease)
                self._leave(what.lease)
                aside = self._folder / secrets.token_hex(16)
                with contextlib.suppress(OSError):
                    stage.given.unlink(missing_ok=True)
                    stage.folder.rename(aside)
                stage.folder = aside
                self._clean(stage)
                rest.append(what)
        return rest

    def _stage_writers(self, seen: Sequence[Sight]) -> None:
        """Create stages for ended tasks whose output streams the server should keep."""
        for what in seen:
            if (
                isinstance(what, ProcessEnded)
                and what.lease.task == LEADER
                and what.lease not in self._stages
                and what.lease not in self._over
                and self._actors.wrote(what.lease)
            ):
                self._stages[what.lease] = _Stage(NO_FILES, self._folder / "none")

    def prefetch(self, task: Task) -> None:
        """Fetch the inputs of a waiting task, unless too many fetches are running."""
        if len(self._ahead) < AHEAD:
            ahead = asyncio.create_task(self._fetch_ahead(task))
            self._ahead.add(ahead)
            ahead.add_done_callback(self._ahead.discard)

    async def close(self) -> None:
        """Cancel all transfers."""
        work = [*self._ahead, *(stage.work for stage in self._stages.values() if stage.work is not None)]
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await asyncio.to_thread(self._secrets.close)

    def _move(
        self, lease: Lease, stage: _Stage, work: Coroutine[Any, Any, None], stopped: Callable[[], Exit]
    ) -> None:
        """Start to move files of a task."""

        def done(work: "asyncio.Task[None]") -> None:
            # A transfer that has begun ends its task itself, even when cancelled. This one was cancelled before it
            # began.
            if work.cancelled():
                self._end(lease, stage, stopped())

        self._actors.moving(lease, True)
        stage.work = asyncio.create_task(work)
        stage.work.add_done_callback(done)

    # --- inputs

    async def _prepare(self, lease: Lease, stage: _Stage) -> None:
        """Fetch the inputs of a task of a gang."""
        try:
            why = await self._bring_all(lease, stage)
        except Exception as error:  # a bug here must not keep the gang waiting
            log.exception("cannot fetch the inputs of %s", lease.job)
            why = f"cannot fetch its inputs: {error}"
        why = why or await self._prepare_work(lease, stage.task)
        stage.phase, stage.work = _Phase.READY, None
        if why:
            self.discard(lease)
        self._actors.prepared(lease, why)

    async def _bring(self, lease: Lease, stage: _Stage, slot: int) -> None:
        """Fetch the inputs of a task, then start it."""
        try:
            why = await self._bring_all(lease, stage)
        except asyncio.CancelledError:
            self._end(lease, stage, _unstarted())
            return
        except Exception as error:  # a bug here must not keep the agent from reporting the end
            log.exception("cannot fetch the inputs of %s", lease.job)
            why = f"cannot fetch its inputs: {error}"
        if not why:
            self._actors.moving(lease, False)
            self._begin(lease, stage, slot)
            return
        self._end(lease, stage, Exit(boottime(), spawned=False, message=why))

    async def _bring_all(self, lease: Lease, stage: _Stage) -> str:
        """Bring all that a task needs before it starts; return the problem, or an empty string."""
        why = await self._fetch(stage) or await self._states.bring(lease, stage.task)
        if why:
            return why
        try:
            if (asked := stage.task.environment) is not None:
                found = await self._environments.take(lease, asked)
                stage.environment, stage.python = found.variables(stage.task.env), found.python
            stage.secrets = await self._secrets.bring(lease, stage.task)  # last, so that they are current
        except (Unbuilt, NoSecrets) as error:
            return str(error)
        return ""

    async def _fetch(self, stage: _Stage) -> str:
        """Put all inputs into the folder; return the problem, or an empty string."""
        if not stage.task.has_folder and stage.task.stdin is None:
            return ""
        inputs = stage.task.inputs
        if (twice := clash(file.path for file in inputs)) is not None:
            return f"input {twice!r} is listed twice"
        try:
            await _whole(stage.folder.mkdir, mode=0o700, parents=True)
            gate = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for file in inputs:
                    if (wrong := wrong_path(file.path)) is not None:
                        raise Unfetched(f"input {file.path[:100]!r} {wrong}")
                    group.create_task(self._put(file, stage.folder / file.path, gate))
                if (stdin := stage.task.stdin) is not None:
                    group.create_task(self._put(stdin, stage.given, gate))
        except OSError as error:
            return f"cannot create its folder: {error.strerror or error}"
        except BaseExceptionGroup as errors:
            failed = errors.subgroup(Unfetched)
            if failed is None:
                raise _first(errors) from None
            return str(_first(failed))
        return ""

    async def _put(self, file: File, to: Path, gate: asyncio.Semaphore) -> None:
        """Put one input where the task expects it."""
        async with gate:
            try:
                async with self._files.held(file.digest) as path:
                    await _whole(copy_file, path, to, executable=file.executable)
            except Unfetched as error:
                raise Unfetched(f"input {file.path}: {error}") from None
            except OSError as error:
                raise Unfetched(f"input {file.path}: {error.strerror or error}") from None

    async def _fetch_ahead(self, task: Task) -> None:
        """Fetch the inputs of a waiting task into the cache."""
        for file in task.files:
            await self._files.prefetch(file.digest)

    # --- outputs

    async def _collect(self, lease: Lease, stage: _Stage, end: Exit) -> None:
        """Upload the outputs of a task and what it left for later attempts, then report its end."""
        streams = self._actors.wrote(lease)
        try:
            patterns = (*stage.task.outputs, *(escape(path) for path, _ in self._own_streams(lease, stage)))
            if lease.task == LEADER and end.spawned and not end.lost and (patterns or streams):
                end = await self._upload_all(stage, patterns, end, streams)
        except asyncio.CancelledError:
            self._end(lease, stage, _late(stage.task, end))
            return
        except Exception as error:  # a bug here must not keep the agent from reporting the end
            log.exception("cannot upload the outputs of %s", lease.job)
            end = _unkept(end, f"the upload failed: {error}")
        if stage.task.keep_state:
            end = await self._save(lease, stage, end)
        self._end(lease, stage, end)

    async def _save(self, lease: Lease, stage: _Stage, end: Exit) -> Exit:
        """Bring what a task left for later attempts to the server, if there may be one."""
        task = stage.task
        try:
            if end.code == 0 and not end.unkept and not stage.stopped:
                await self._states.drop(lease)
            elif end.spawned:
                patience = partial(upload_time, lost_after=task.lost_after)
                end = replace(end, saved=await self._states.save(lease, task, patience))
        except asyncio.CancelledError:
            return _told(end, f"{UNSAVED}: there was no time")
        except Unfetched as error:
            return _told(end, f"{UNSAVED}: {error}")
        except Exception as error:  # as above
            log.exception("cannot save the state of %s", lease.job)
            return _told(end, f"{UNSAVED}: {error}")
        return end

    async def _upload_all(
        self, stage: _Stage, patterns: Sequence[str], end: Exit, streams: Sequence[tuple[str, Path]]
    ) -> Exit:
        """Upload all outputs that fit, within a time limit; return the end of the task, with any problem."""
        task = stage.task
        limit = task.outputs_limit or OUTPUTS_LIMIT
        paths, problem = await asyncio.to_thread(find_outputs, stage.folder, patterns, limit)
        size = await asyncio.to_thread(
            size_of, [*(stage.folder / path for path in paths), *dict(streams).values()]
        )
        most = upload_time(size, task.lost_after)
        try:
            async with asyncio.timeout(most / SECOND):
                return await self._upload(stage, end, streams, paths, problem)
        except TimeoutError:
            if not patterns:
                return end  # the server only lacks the streams, and that is no failure
            return _unkept(end, f"the upload took longer than {format_duration(most)}")

    async def _upload(
        self,
        stage: _Stage,
        end: Exit,
        streams: Sequence[tuple[str, Path]],
        paths: Sequence[str],
        problem: str,
    ) -> Exit:
        """Upload these outputs and the list of them."""
        gate = asyncio.Semaphore(AT_ONCE)
        files = await asyncio.gather(*(self._take(stage.folder, path, gate) for path in paths))
        kept = [file for file in files if isinstance(file, File)]
        problem = problem or next((each for each in files if isinstance(each, str)), "")
        kept += [file for name, path in streams if (file := await self._keep(name, path)) is not None]
        if kept:
            try:
                end = replace(end, outputs=await self._files.upload(_encode(kept)))
            except Unfetched as error:
                problem = str(error)
        return _unkept(end, problem) if problem else end

    async def _take(self, folder: Path, path: str, gate: asyncio.Semaphore) -> File | str:
        """Upload one output; return the problem if that fails."""
        source = folder / path
        async with gate:
            try:
                found = await asyncio.to_thread(os.stat, source)
                digest = await asyncio.to_thread(digest_of, source)
                await self._files.upload(source, digest)
            except Unfetched as error:
                return f"{path}: {error}"
            except OSError as error:
                return f"{path}: {error.strerror or error}"
        return File(path, digest, found.st_size, bool(found.st_mode & stat.S_IXUSR))

    async def _keep(self, name: str, path: Path) -> File | None:
        """Upload an output stream without its holes; return None if that fails, which does not fail the task."""
        flat = path
        try:
            flat = await asyncio.to_thread(flattened, path)
            digest = await asyncio.to_thread(digest_of, flat)
            await self._files.upload(flat, digest)
            return File(name, digest, flat.stat().st_size, executable=False)
        except (Unfetched, OSError) as error:
            log.warning("the server did not store output %s: %s", path, error)
            return None
        finally:
            if flat != path:
                flat.unlink(missing_ok=True)

    def _end(self, lease: Lease, stage: _Stage, end: Exit) -> None:
        """Report the end of a task, and delete its folder."""
        del self._stages[lease]
        self._leave(lease)
        self._over.add(lease)
        self._clean(stage, self._own_streams(lease, stage))
        self._actors.seen([ProcessEnded(lease, end)])
        self._over.discard(lease)

    def _leave(self, lease: Lease) -> None:
        """Give back what a task got besides its folder."""
        self._states.leave(lease)
        self._environments.leave(lease)
        self._secrets.leave(lease)

    def _own_streams(self, lease: Lease, stage: _Stage) -> Sequence[tuple[str, Path]]:
        """Return the files in the folder of a task that its output goes to, each with the log that links to it."""
        return self._actors.streams(lease, stage.task) if stage.task.has_folder else ()

    def _clean(self, stage: _Stage, streams: Sequence[tuple[str, Path]] = ()) -> None:
        """Delete the folder of a task, once nothing writes to it any more, except what its logs are."""

        async def clean() -> None:
            if stage.work is not None and stage.work is not asyncio.current_task():
                await asyncio.wait({stage.work})
            await asyncio.to_thread(_remove, stage, streams)

        cleaning = asyncio.create_task(clean())
        self._ahead.add(cleaning)
        cleaning.add_done_callback(self._ahead.discard)


def _remove(stage: _Stage, streams: Sequence[tuple[str, Path]]) -> None:
    """Delete what a task got and wrote, except its logs: these take the places of the links to them."""
    for path, link in streams:
        file = stage.folder / path
        with contextlib.suppress(OSError):
            if link.is_symlink() and file.is_file() and not file.is_symlink():
                file.replace(link)
    if stage.task.stdin is not None:
        stage.given.unlink(missing_ok=True)
    remove_folder(stage.folder)


async def _whole(work: Callable[..., None], *args: Any, **more: Any) -> None:
    """Run work in a thread, and when cancelled wait for it to end."""
    # A thread cannot be cancelled. Left alone, it would create files after the folder was deleted.
    working = asyncio.create_task(asyncio.to_thread(work, *args, **more))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await outlast(working)
        raise


def _unstarted() -> Exit:
    """Return the end of a task that was stopped while its inputs were on their way."""
    return Exit(boottime(), spawned=False, message="stopped before it started")


def _late(task: Task, end: Exit) -> Exit:
    """Return the end of a task that was killed while its outputs were being uploaded."""
    if end.spawned and not end.lost and task.outputs:
        return _unkept(end, "there was no time to upload them")
    return end


def _unkept(end: Exit, problem: str) -> Exit:
    """Return the end of a task that lost outputs. Even with exit code 0 it counts as failed."""
    return replace(_told(end, problem), unkept=end.code == 0)


def _told(end: Exit, problem: str) -> Exit:
    """Return the end of a task with a problem in its message."""
    return replace(end, message=f"{end.message}; {problem}" if end.message else problem)


def upload_time(size: int, lost_after: int) -> int:
    """Return how long an upload may take, in nanoseconds, so that a stalled one does not hold its lease for ever."""
    return lost_after + UPLOAD_SPARE + size * SECOND // UPLOAD_RATE


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first single error of a group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
