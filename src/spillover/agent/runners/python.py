"""Calls Python functions in warm workers, so that a call needs no new interpreter.

A worker receives the calls of a slot in advance, so that short calls need no wake-up each.
"""

import asyncio
import contextlib
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from spillover.agent.files.cache import Unfetched
from spillover.agent.files.output import last_line
from spillover.agent.leases.values import Exit, Task
from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.procfs import birth_of
from spillover.agent.runners import frames
from spillover.agent.runners.bounding import Bounding
from spillover.agent.runners.contexts import Contexts
from spillover.agent.runners.port import Returned, RunnerContext, RunnerOffer, Sight
from spillover.agent.runners.warm import WarmWorkers
from spillover.agent.runners.workers import WorkerCall, WorkerProcess
from spillover.agent.tasks.process import ProcessEnded, Seen, Spawned, stem_of
from spillover.core.events import Lease, Usage
from spillover.model.job import PythonCall

ANNOUNCE: Final = 0.01
"""Seconds after which to check which call of a worker runs, to report its start."""
WATCH: Final = 0.05
WATCH_RUSH: Final = 0.005
"""Seconds between two checks of the output of running calls, normally and while one writes fast."""
RUSHING: Final = 4 << 20
"""Bytes between two checks above which a call counts as writing fast."""
ANSWER: Final = 20.0
"""Seconds that an interpreter may take to say its version."""
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)
NEW_CODE: Final = 1
"""Exit code of a call whose worker exited with 0 before the call returned."""

log = logging.getLogger("spillover.agent")


class PythonCalls:
    """The runner of Python calls."""

    kinds = (PythonCall,)

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        named = context.settings.get("python")
        self._python = (shutil.which(named) or named) if named else sys.executable
        self._version = ""
        """Such as 3.12; empty until it is known, or if the interpreter does not work."""
        self._output = context.folder / "output"
        self._stems = str(self._output)
        self._warm = WarmWorkers(context, self._python, self._process)
        self._contexts = Contexts(context.files)
        self._calls: dict[Lease, WorkerCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._bounding = Bounding(self._output, context.output_limit)

    # --- the port

    def offer(self) -> RunnerOffer:
        """Offer Python, if there is an interpreter, and its version, if it works."""
        if os.access(self._python, os.X_OK):
            return RunnerOffer(("python", f"python:{self._version}") if self._version else ("python",))
        return RunnerOffer(missing={"python": f"{self._python} cannot be run"})

    async def open(self) -> None:
        """Listen for workers, and find out the version of the interpreter."""
        self._version = await version_of(self._python)
        (self._output / "spool").mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._warm.open(self._results, self._answers)

    async def close(self) -> None:
        """End all workers."""
        for timer in (self._looking, self._watching):
            if timer is not None:
                timer.cancel()
        self._bounding.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._warm.close()
        self._calls.clear()
        await self._contexts.close()

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Make a call."""
        # The same as `stem_of`, which would cost as much as the rest of this method.
        stem = f"{self._stems}/{lease.job[:2]}/{lease.job}.{lease.attempt}.{lease.task}"
        call = self._calls[lease] = WorkerCall(lease, task, stem)
        known = self._contexts.get(task.work)
        if known is not None:
            call.context = known
            self._place(call, slot)
        else:
            waiting = asyncio.create_task(self._prepare(call, slot))
            self._tasks.add(waiting)
            waiting.add_done_callback(self._tasks.discard)

    def recall(self, lease: Lease) -> None:
        """Take back a call that has not begun."""
        call = self._calls.get(lease)
        if call is not None and call.worker is not None:
            call.worker.order(frames.DROP, [call.key])

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Stop a call: drop it if it has not begun, else end its worker."""
        call = self._calls.get(lease)
        if call is None:
            return
        call.stop = kill or bool(call.stop)
        each = call.worker
        if each is None:
            self._tell([self._never(call)])
        elif each.now()[0] != call.key:
            each.order(frames.DROP, [call.key])
        else:
            self._stop(each, call)

    def notify(self, lease: Lease, number: int) -> None:
        """Send a signal to the processes of a call, unless another call runs by then."""
        call = self._calls.get(lease)
        if call is not None and call.worker is not None:
            call.worker.order(frames.TELL, (call.key, number))

    async def name_output(self, lease: Lease) -> None:
        """Return once the output of a call has its own name."""
        call = self._calls.get(lease)
        if call is None or call.worker is None or not call.worker.pid:
            return
        named: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.worker.naming.setdefault(call.key, []).append(named)
        call.worker.order(frames.NAME, call.key)
        await named

    # --- sending calls to workers

    async def _prepare(self, call: WorkerCall, slot: int) -> None:
        """Fetch the files of a call, then make it."""
        python = call.task.work
        if not isinstance(python, PythonCall):
            raise TypeError(python)
        try:
            call.context = await self._contexts.fetch(python)
        except Unfetched as error:
            if call.lease in self._calls:
                self._tell([self._never(call, f"cannot fetch the function: {error}")])
            return
        if call.lease in self._calls:  # else it was stopped meanwhile
            self._place(call, slot)

    def _place(self, call: WorkerCall, slot: int) -> None:
        """Send a call to the worker of its slot."""
        self._warm.take(call.task, slot).send(call)
        if self._looking is None:
            self._look_later()

    def _stop(self, each: WorkerProcess, call: WorkerCall) -> None:
        """End the worker to stop its running call. The calls behind it come back."""
        each.ending = True
        each.order(frames.STOP, call.key)  # sends TERM, unless another call runs by then
        if call.stop:
            each.killed_for = call.lease
            self._context.signal(each.lease, True)

    # --- messages from workers

    def _results(self, each: WorkerProcess, records: list[tuple[Any, ...]]) -> None:
        """Process the results of calls."""
        sights: list[Sight] = []
        calls = each.calls
        for record in records:
            call = calls.pop(record[0], None)
            if call is None:
                continue  # a worker that died reported it twice
            each.made += 1
            each.last_peak = record[5]
            each.first_peak = each.first_peak or record[5]
            if record[8]:
                each.ending = True
                each.held = [record]
                calls[record[0]] = call
            elif record[7]:
                self._store_value(call, record)
            else:
                self._calls.pop(call.lease, None)
                sights.append(_ended(call, record))
        if not calls:
            self._warm.rest(each)
        if sights:
            self._context.seen(sights)
        if calls and self._looking is None:
            self._look_later()

    def _answers(self, each: WorkerProcess, answers: list[tuple[Any, ...]]) -> None:
        """Process the answers to orders. An order may have come too late."""
        sights: list[Sight] = []
        for kind, what in answers:
            if kind == frames.NAMED:
                each.answer_names(what)
                continue
            back = [call for key in what if (call := each.calls.pop(key, None)) is not None]
            sights += map(self._back, back)
        for call in list(each.calls.values()):
            if call.stop is not None and each.now()[0] == call.key and not each.ending:
                self._stop(each, call)  # it began before it could be dropped
        if not each.calls:
            self._warm.rest(each)
        self._tell(sights)

    def _process(self, each: WorkerProcess, seen: Seen) -> None:
        """Handle the end of a worker's process, and settle its calls."""
        if isinstance(seen, Spawned) or not self._warm.gone(each):
            return
        each.ending = True
        each.read_rest()
        current, began = each.now()
        held, each.held = each.held, []
        late = [(*record[:8], False) for record in (*each.unsent(), *held)]
        self._results(each, late)
        came = bool(each.pid)
        why = "" if came else self._why_not(each, seen.end)
        sights: list[Sight] = []
        for call in list(each.calls.values()):
            if call.key == current:
                sights.append(self._died(each, call, seen.end, began))
            elif not came and call.stop is None and not seen.end.lost:
                sights.append(self._never(call, why))
            else:
                sights.append(self._back(call))
        each.calls.clear()
        each.clear()
        self._clear_output(each, "")
        self._tell(sights)

    # --- other ends of calls

    def _back(self, call: WorkerCall) -> Sight:
        """Return the sight of an unstarted call that its worker dropped."""
        call.worker = None
        if call.stop is not None:
            return self._never(call)
        self._calls.pop(call.lease, None)
        return Returned(call.lease)

    def _never(self, call: WorkerCall, why: str = "") -> ProcessEnded:
        """Return the end of a call that never began, and never will."""
        self._calls.pop(call.lease, None)
        return ProcessEnded(call.lease, Exit(boottime(), spawned=False, message=why))

    def _died(self, each: WorkerProcess, call: WorkerCall, end: Exit, began: int) -> ProcessEnded:
        """Return the end of a call whose worker died."""
        self._calls.pop(call.lease, None)
        self._clear_output(each, call.stem)
        message = end.message
        # A call that was to be killed may have ended just before, and the next one begun. That one is not at fault.
        lost = end.lost or each.killed_for not in {None, call.lease}
        if lost and not end.lost:
            message = "its worker process was killed to free another call"
        elif not message and call.stop is None:
            how = f"with exit code {end.code}" if end.code is not None else f"of signal {end.signal}"
            message = f"its worker process ended {how} before the call returned"
            _note(call.stem, message)
        ran = max(0, end.ended - began)
        code = NEW_CODE if end.code == 0 else end.code
        usage = Usage(ran, min(end.usage.cpu, ran), end.usage.peak_memory)
        return ProcessEnded(
            call.lease, msgspec.structs.replace(end, code=code, usage=usage, message=message, lost=lost)
        )

    def _why_not(self, each: WorkerProcess, end: Exit) -> str:
        """Return why a worker did not connect."""
        path = Path(f"{stem_of(self._output, each.lease.job, 1, 0)}.err")
        said = last_line(path)
        with contextlib.suppress(OSError):
            path.unlink()
        if end.message.startswith("workdir "):  # a fault of the call's folder, and not of the interpreter
            return end.message
        reason = end.message or said or f"it ended with exit code {end.code}, signal {end.signal}"
        return f"{each.python} does not work: {reason}"

    def _store_value(self, call: WorkerCall, record: tuple[Any, ...]) -> None:
        """Upload a large value, then report the end."""

        async def bring() -> None:
            path = Path(record[7])
            try:
                digest = await self._context.files.upload(path)
            except Unfetched as error:
                why = f"cannot store the return value: {error}"
                end = msgspec.structs.replace(_ended(call, record).end, code=record[1] or 1, message=why)
            else:
                end = msgspec.structs.replace(_ended(call, record).end, value_digest=digest)
            await asyncio.to_thread(path.unlink, missing_ok=True)
            if self._calls.pop(call.lease, None) is not None:
                self._tell([ProcessEnded(call.lease, end)])

        call.worker = None
        bringing = asyncio.create_task(bring())
        self._tasks.add(bringing)
        bringing.add_done_callback(self._tasks.discard)

    def _clear_output(self, each: WorkerProcess, stem: str) -> None:
        """Give the spool files of a worker the name of its last call, or delete them if there is none."""
        for path in (self._output / "spool").glob(f"py{each.number}-*"):
            with contextlib.suppress(OSError):
                if stem and path.stat().st_size:
                    Path(stem).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path.replace(f"{stem}{path.suffix}")
                elif not stem:
                    path.unlink()

    def _tell(self, sights: list[Sight]) -> None:
        """Report after the current callback, because the caller is not done yet."""
        if sights:
            asyncio.get_running_loop().call_soon(self._context.seen, sights)

    # --- starts and running calls

    def _watch(self) -> None:
        """Limit the output of running calls, more often while one writes fast."""
        grown = self._bounding.look()
        pause = WATCH_RUSH if grown > RUSHING else WATCH
        loop = asyncio.get_running_loop()
        self._watching = loop.call_later(pause, self._watch) if self._bounding else None

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(ANNOUNCE, self._look)

    def _look(self) -> None:
        """Report calls that have run for a moment. For those that already ended, the report of the end suffices."""
        self._looking = None
        sights: list[Sight] = []
        again = False
        for each in self._warm.all():
            if not each.calls:
                continue
            key, began = each.now()
            call = each.calls.get(key)
            if call is None:
                again = True
            elif not call.told:
                if boottime() - began < ANNOUNCE * 5e8:
                    again = True
                    continue
                call.told = True
                self._bounding.begin(each, call)
                if self._watching is None:
                    self._watch()
                sights.append(Spawned(call.lease, each.pid, birth_of(each.pid), began))
                if next(iter(each.calls)) < key:
                    # Earlier calls are over, and their results would wait for the end of this one. The worker writes
                    # none while it runs.
                    records = each.unsent()
                    if each.now() == (key, began):
                        self._results(each, records)
        if again:
            self._look_later()
        if sights:
            self._context.seen(sights)


async def version_of(python: str) -> str:
    """Return the version of an interpreter, such as 3.12; empty if it does not work."""
    if python == sys.executable:
        return f"{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        asked = await asyncio.create_subprocess_exec(
            python,
            "-c",
            "import sys; print('%d.%d' % sys.version_info[:2])",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(ANSWER):
            said, _ = await asked.communicate()
    except TimeoutError:
        asked.kill()
        await asked.wait()
        return ""
    version = said.decode(errors="replace").strip()
    return version if asked.returncode == 0 and _VERSION.fullmatch(version) else ""


def _ended(call: WorkerCall, record: tuple[Any, ...]) -> ProcessEnded:
    """Return the end of a call from the record of its worker."""
    _, code, at, ran, cpu, peak, value, _, _ = record
    return ProcessEnded(call.lease, Exit(at, code=code, usage=Usage(ran, cpu, peak), value=value))


def _note(stem: str, message: str) -> None:
    """Append a message to the error output of a call."""
    with contextlib.suppress(OSError):
        Path(stem).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Path(f"{stem}.err").open("a") as file:
            file.write(f"spillover: {message}\n")
