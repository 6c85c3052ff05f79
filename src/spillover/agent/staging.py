"""Files around a task: its inputs are brought into a folder of its own before it starts, its outputs away when it has ended.

A task with files is started under its lease like any other, and the server hears of its start when its process is made. It holds its
room meanwhile, so that what it needs is here when it may run. Its end is told when what it made is on the server.

Inputs are copied from the agent's cache, as clones where the file system has those: a task may do to its files what it likes.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from spillover.agent.files import Files, Unfetched
from spillover.agent.nursery.clock import boottime
from spillover.agent.outlasting import outlast
from spillover.agent.output import flattened
from spillover.agent.process import ProcessEnded, Spawned
from spillover.agent.runners.port import Sight
from spillover.agent.values import Exit, Task
from spillover.core.events import Lease
from spillover.forms.matching import Folder
from spillover.model.files import KEPT_STREAMS, MOST_FILES, File, clash, wrong_path
from spillover.model.job import Argv
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND, format_duration, format_memory
from spillover.ports.blobs import digest_of

AT_ONCE: Final = 8
"""Files of one task that move at the same time."""
AHEAD: Final = 4
"""Tasks that wait and whose files are fetched."""
OUTPUTS_LIMIT: Final = 1 << 30
"""Bytes that outputs may have where the server says nothing."""
UPLOAD_SPARE: Final = 10 * MINUTE
"""Nanoseconds that outputs may take to be brought away, beyond `lost_after` and what they need at the rate below."""
UPLOAD_RATE: Final = 128 << 10
"""Bytes in a second: a connection that is slower than this does not count as one."""
NO_FILES: Final = Task(Argv(("",)), Resources())
"""Stands for a task that has no files but what it wrote."""
_FICLONE: Final = 0x40049409
_encode = msgspec.json.Encoder().encode
log = logging.getLogger("spillover.agent")


class _Phase(Enum):
    """How far a task with files is."""

    FETCHING = "fetching"
    RUNNING = "running"
    COLLECTING = "collecting"


class _Stage:
    """A task with files."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self.folder = folder
        self.phase = _Phase.FETCHING
        self.work: asyncio.Task[None] | None = None
        """What moves its files now; None while it runs."""


class Actors(NamedTuple):
    """Whom a stage has act."""

    start: Callable[[Lease, Task, int], None]
    """Runs a task whose files are here."""
    signal: Callable[[Lease, Task, bool], None]
    """Terminates a task that runs, or kills it."""
    seen: Callable[[Sequence[Sight]], None]
    """Told how a task ended, once its files are away."""
    moving: Callable[[Lease, bool], None]
    """Told while files of a task move and no process of it is there."""
    wrote: Callable[[Lease], Sequence[tuple[str, Path]]] = lambda _: ()
    """Files with output of a task that are to be kept by the server, each with the path under which it is listed."""
    exited: Callable[[Lease, Exit], None] = lambda _, __: None
    """Told how the process of a task ended, before its files are brought away."""


class Staging:
    """All tasks with files."""

    def __init__(self, folder: Path, files: Files, actors: Actors) -> None:
        self._folder = folder
        self._files = files
        self._actors = actors
        self._stages: dict[Lease, _Stage] = {}
        self._ahead: set[asyncio.Task[None]] = set()
        self._over: set[Lease] = set()
        """Tasks whose end is being told, with nothing more to bring away."""

    def open(self) -> None:
        """Delete what an earlier run left."""
        if self._folder.exists():
            _remove(self._folder)

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Run a task, at once if it has no files."""
        if not task.inputs and not task.outputs:
            self._actors.start(lease, task, slot)
            return
        name = f"{lease.job}.{lease.attempt}.{lease.task}.{lease.seq}"
        stage = self._stages[lease] = _Stage(task, self._folder / name)
        self._move(lease, stage, self._bring(lease, stage, slot), _unstarted)

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """Terminate a task, or kill it. What it made is still brought away when it is terminated, and not when it is killed."""
        stage = self._stages.get(lease)
        if stage is None or stage.phase is _Phase.RUNNING:
            self._actors.signal(lease, task, kill)
        elif stage.work is not None and (kill or stage.phase is _Phase.FETCHING):
            stage.work.cancel()

    def sift(self, seen: Sequence[Sight]) -> Sequence[Sight]:
        """What was seen, without ends of tasks that have yet to bring their files away."""
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
                self._actors.exited(what.lease, what.end)
                late = partial(_late, stage.task, what.end)
                self._move(what.lease, stage, self._collect(what.lease, stage, what.end), late)
            else:
                del self._stages[what.lease]
                stage.work = asyncio.create_task(asyncio.to_thread(_remove, stage.folder))
                rest.append(what)
        return rest

    def _stage_writers(self, seen: Sequence[Sight]) -> None:
        """Have the output of tasks that ended brought away, too, where it is to be kept."""
        for what in seen:
            if (
                isinstance(what, ProcessEnded)
                and what.lease not in self._stages
                and what.lease not in self._over
                and self._actors.wrote(what.lease)
            ):
                self._stages[what.lease] = _Stage(NO_FILES, self._folder / "none")

    def prefetch(self, task: Task) -> None:
        """Have the inputs of a task here that waits, if not too many do."""
        if len(self._ahead) < AHEAD:
            ahead = asyncio.create_task(self._fetch_ahead(task))
            self._ahead.add(ahead)
            ahead.add_done_callback(self._ahead.discard)

    async def close(self) -> None:
        """Stop all that moves."""
        work = [*self._ahead, *(stage.work for stage in self._stages.values() if stage.work is not None)]
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    def _move(
        self, lease: Lease, stage: _Stage, work: Coroutine[Any, Any, None], stopped: Callable[[], Exit]
    ) -> None:
        """Have files of a task moved."""

        def done(work: "asyncio.Task[None]") -> None:
            # Work that has begun ends its task itself, also when it is cancelled; of this not a line was run.
            if work.cancelled():
                self._end(lease, stage, stopped())

        self._actors.moving(lease, True)
        stage.work = asyncio.create_task(work)
        stage.work.add_done_callback(done)

    # --- there

    async def _bring(self, lease: Lease, stage: _Stage, slot: int) -> None:
        """Bring the inputs of a task, then start it."""
        try:
            why = await self._fetch(stage)
        except asyncio.CancelledError:
            self._end(lease, stage, _unstarted())
            return
        except Exception as error:  # a fault of ours must not keep the end of a task from being told
            log.exception("inputs of %s could not be brought", lease.job)
            why = f"its inputs could not be brought: {error}"
        if not why:
            stage.phase, stage.work = _Phase.RUNNING, None
            self._actors.moving(lease, False)
            self._actors.start(lease, replace(stage.task, workdir=str(stage.folder)), slot)
            return
        self._end(lease, stage, Exit(boottime(), spawned=False, message=why))

    async def _fetch(self, stage: _Stage) -> str:
        """Put all inputs into the folder; what is wrong, empty if nothing is."""
        inputs = stage.task.inputs
        if (twice := clash(file.path for file in inputs)) is not None:
            return f"input {twice!r} is there twice"
        try:
            await _whole(stage.folder.mkdir, mode=0o700, parents=True)
            gate = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for file in inputs:
                    group.create_task(self._put(file, stage.folder, gate))
        except OSError as error:
            return f"a folder to run in cannot be made: {error.strerror or error}"
        except BaseExceptionGroup as errors:
            failed = errors.subgroup(Unfetched)
            if failed is None:
                raise _first(errors) from None
            return str(_first(failed))
        return ""

    async def _put(self, file: File, folder: Path, gate: asyncio.Semaphore) -> None:
        """Put one input where the task wants it."""
        wrong = wrong_path(file.path)
        if wrong is not None:
            raise Unfetched(f"input {file.path[:100]!r} {wrong}")
        async with gate:
            try:
                async with self._files.held(file.digest) as path:
                    await _whole(_copy, path, folder / file.path, executable=file.executable)
            except Unfetched as error:
                raise Unfetched(f"input {file.path}: {error}") from None
            except OSError as error:
                raise Unfetched(f"input {file.path}: {error.strerror or error}") from None

    async def _fetch_ahead(self, task: Task) -> None:
        """Fetch what a task will need."""
        for file in task.inputs:
            await self._files.prefetch(file.digest)

    # --- and back

    async def _collect(self, lease: Lease, stage: _Stage, end: Exit) -> None:
        """Bring away what a task made, then tell its end."""
        streams = self._actors.wrote(lease)
        if end.spawned and not end.lost and (stage.task.outputs or streams):
            try:
                end = await self._bring_away(stage, end, streams)
            except asyncio.CancelledError:
                end = _late(stage.task, end)
            except Exception as error:  # a fault of ours must not keep the end of a task from being told
                log.exception("outputs of %s could not be brought away", lease.job)
                end = _unkept(end, f"they could not be brought away: {error}")
        self._end(lease, stage, end)

    async def _bring_away(self, stage: _Stage, end: Exit, streams: Sequence[tuple[str, Path]]) -> Exit:
        """Upload all outputs that fit, within their time; the end of the task, with what became of them."""
        task = stage.task
        limit = task.outputs_limit or OUTPUTS_LIMIT
        paths, problem = await asyncio.to_thread(_outputs, stage.folder, task.outputs, limit)
        size = await asyncio.to_thread(
            _size, [*(stage.folder / path for path in paths), *dict(streams).values()]
        )
        most = upload_time(size, task.lost_after)
        try:
            async with asyncio.timeout(most / SECOND):
                return await self._upload(stage, end, streams, paths, problem)
        except TimeoutError:
            if not task.outputs:
                return end  # only what it wrote is not kept by the server, which is no failure
            return _unkept(end, f"they could not be brought away within {format_duration(most)}")

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
        """Bring one output away; what is wrong, if that cannot be done."""
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
        """Bring the output of a task away as it can be read; without it the task has not failed."""
        flat = path
        try:
            flat = await asyncio.to_thread(flattened, path)
            digest = await asyncio.to_thread(digest_of, flat)
            await self._files.upload(flat, digest)
            return File(name, digest, flat.stat().st_size, executable=False)
        except (Unfetched, OSError) as error:
            log.warning("output %s is not kept by the server: %s", path, error)
            return None
        finally:
            if flat != path:
                flat.unlink(missing_ok=True)

    def _end(self, lease: Lease, stage: _Stage, end: Exit) -> None:
        """A task is over, with all its files."""
        del self._stages[lease]
        self._over.add(lease)
        cleaning = asyncio.create_task(asyncio.to_thread(_remove, stage.folder))
        self._ahead.add(cleaning)
        cleaning.add_done_callback(self._ahead.discard)
        self._actors.seen([ProcessEnded(lease, end)])
        self._over.discard(lease)


async def _whole(work: Callable[..., None], *args: Any, **more: Any) -> None:
    """Do something off the loop; who is cancelled meanwhile waits for it, as a thread cannot be, and would make things anew."""
    working = asyncio.create_task(asyncio.to_thread(work, *args, **more))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await outlast(working)
        raise


def _unstarted() -> Exit:
    """The end of a task that was stopped while its files were to come."""
    return Exit(boottime(), spawned=False, message="stopped before it started")


def _late(task: Task, end: Exit) -> Exit:
    """The end of a task that was killed while its files were to be brought away."""
    if end.spawned and not end.lost and task.outputs:
        return _unkept(end, "there was no time to bring them away")
    return end


def _unkept(end: Exit, problem: str) -> Exit:
    """The end of a task not all of whose outputs are kept: that of one which went well otherwise is no success."""
    said = f"{end.message}; {problem}" if end.message else problem
    return replace(end, message=said, unkept=end.code == 0)


def upload_time(size: int, lost_after: int) -> int:
    """Nanoseconds that outputs of so many bytes may take to be brought away: a stalled upload must not hold its lease for ever."""
    return lost_after + UPLOAD_SPARE + size * SECOND // UPLOAD_RATE


def _size(paths: Iterable[Path]) -> int:
    """Bytes of these files together, as far as they are there."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _outputs(folder: Path, patterns: Iterable[str], limit: int) -> tuple[list[str], str]:
    """Paths of all outputs that fit, in order, and what is wrong with the others."""
    problem = ""

    def odd(path: str, why: str) -> None:
        nonlocal problem
        problem = problem or f"{path!r} {why}"

    looking = Folder(folder, odd)
    found: set[str] = set()
    for path in (path for pattern in patterns for path in looking.files(pattern)):
        if path in KEPT_STREAMS:
            continue  # under which the server would take it for what the task wrote
        if path not in found and len(found) == MOST_FILES:
            problem = f"they are more than {MOST_FILES:,} files; pack them into one"
            break
        found.add(path)
    paths = sorted(found)
    fitting: list[str] = []
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            size = (folder / path).stat().st_size
            if total + size > limit:
                problem = (
                    f"{path} has {format_memory(size)}, with what goes before it {format_memory(total + size)}; "
                    f"the most is {format_memory(limit)} (files.max_outputs of the server)"
                )
                continue
            total += size
            fitting.append(path)
    return fitting, problem


def _copy(source: Path, target: Path, *, executable: bool) -> None:
    """Copy a file, without its bytes where the file system can share them."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with source.open("rb") as old, open(os.open(target, flags, 0o700 if executable else 0o600), "wb") as new:  # noqa: PTH123
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 1 << 20)


def _remove(folder: Path) -> None:
    """Delete a folder, whatever a task made of it.

    Folders within folders are moved up to this one before they are looked into: so there is no depth at which it ends, as there
    would be for a way down, and no path that is too long.
    """
    progress = True
    while progress:
        progress = False
        for entry in _entries(folder):
            if not _is_folder(entry):
                progress |= _try(os.unlink, entry)
                continue
            for inner in _entries(entry.path):
                if _is_folder(inner):
                    _open_up(inner.path)
                    _try(os.rename, inner, folder / secrets.token_hex(16))
                else:
                    _try(os.unlink, inner)
            progress |= _try(os.rmdir, entry)
    _try(os.rmdir, folder)


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """What a folder holds, also if a task closed it; nothing if it cannot be looked into."""
    _open_up(folder)
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _open_up(folder: Path | str) -> None:
    """Let us do with a folder what we like."""
    _try(os.chmod, folder, 0o700)


def _try(change: Callable[..., None], *what: Any) -> bool:
    """Whether the system let us."""
    try:
        change(*what)
    except OSError:
        return False
    return True


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of several errors that tells enough."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
