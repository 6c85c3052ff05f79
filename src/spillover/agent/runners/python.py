"""Calls of Python functions in warm workers: no interpreter is started for a call.

A worker is a process of the nursery like any task, so it is isolated, limited and killed like one. It makes calls of one kind only:
of the same environment, work folder and resources, which are those of the process. Calls of one slot are handed to a worker ahead of
their turn, so that short ones cost no wake-up each.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from spillover.agent.files import Unfetched
from spillover.agent.nursery.procfs import birth_of
from spillover.agent.process import Ended, Seen, Spawned, stem_of
from spillover.agent.runners import frames
from spillover.agent.runners.bounding import Bounding
from spillover.agent.runners.port import House, Offer, Returned, Sight
from spillover.agent.runners.workers import Call, Connection, Worker
from spillover.agent.values import Exit, Task
from spillover.core.events import Lease, Usage
from spillover.model.ids import JobId
from spillover.model.job import Argv, PythonCall

ANNOUNCE: Final = 0.01
"""Seconds after which it is looked which call of a worker runs, to tell of its start."""
WATCH: Final = 0.05
WATCH_RUSH: Final = 0.005
"""Seconds between two looks at the output of calls that run, and while one writes fast."""
RUSHING: Final = 4 << 20
"""Bytes between two looks that are fast."""
IDLE: Final = 120.0
"""Seconds that a worker without calls is kept."""
MOST_CALLS: Final = 50_000
"""Calls after which a worker is replaced, unless `--python-calls` says otherwise."""
MOST_GROWTH: Final = 512 << 20
"""Bytes by which a worker may have grown since its first call before it is replaced."""
MOST_CONTEXTS: Final = 100
"""Kinds of calls whose files are held."""
NEW_CODE: Final = 1
"""Exit code of a call whose worker ended with 0 before the call returned."""

_HOME: Final = str(Path(__file__).parents[3])
_RUN: Final = f"import sys; sys.path.append({_HOME!r}); from spillover.agent.runners.worker import main; sys.path.pop(); main()"
"""How an interpreter that knows nothing of our packages becomes a worker."""

log = logging.getLogger("spillover.agent")


class PythonCalls:
    """The runner of Python calls."""

    kinds = (PythonCall,)

    def __init__(self, house: House) -> None:
        self._house = house
        named = house.settings.get("python")
        self._python = (shutil.which(named) or named) if named else sys.executable
        self._most_calls = int(house.settings.get("python_calls") or MOST_CALLS)
        self._folder = house.folder / "python"
        self._output = house.folder / "output"
        self._stems = str(self._output)
        self._secret = secrets.token_bytes(32)
        self._server: asyncio.Server | None = None
        self._workers: dict[int, Worker] = {}
        self._by_slot: dict[int, Worker] = {}
        self._idle: dict[int, Worker] = {}
        """Those without calls, the longest idle first."""
        self._calls: dict[Lease, Call] = {}
        self._contexts: dict[int, tuple[PythonCall, tuple[Any, ...], AsyncExitStack]] = {}
        """By the identity of the work, which is kept here with it, as are its files."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = 0
        self._looking: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._bounding = Bounding(self._output, house.output_limit)

    # --- what the agent asks

    def offer(self) -> Offer:
        """Python, if there is an interpreter."""
        if os.access(self._python, os.X_OK):
            return Offer(("python",))
        return Offer(missing={"python": f"{self._python} cannot be run"})

    async def open(self) -> None:
        """Listen for workers."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._output / "spool").mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink()
        listening = socket.socket(socket.AF_UNIX)
        at = os.open(self._folder, os.O_PATH)
        try:
            # The path of a socket may have 107 bytes only, and that of a folder of people's choice has more.
            listening.bind(f"/proc/self/fd/{at}/socket")
        finally:
            os.close(at)
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, sock=listening)

    async def close(self) -> None:
        """Let all workers go."""
        for timer in (self._looking, self._sweeping, self._watching):
            if timer is not None:
                timer.cancel()
        self._bounding.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in list(self._workers.values()):
            self._house.signal(each.lease, True)
            each.clear()
        for _, _, held in self._contexts.values():
            await held.aclose()
        self._contexts.clear()
        if self._server is not None:
            self._server.close()

    def forget(self) -> None:
        """All workers are gone, and nobody waits for their calls any more."""
        for each in self._workers.values():
            each.clear()
        self._workers.clear()
        self._by_slot.clear()
        self._idle.clear()
        self._calls.clear()

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Make a call."""
        # What `stem_of` says, which would cost as much as the rest of this.
        stem = f"{self._stems}/{lease.job[:2]}/{lease.job}.{lease.attempt}.{lease.task}"
        call = self._calls[lease] = Call(lease, task, stem)
        known = self._contexts.get(id(task.work))
        if known is not None:
            call.context = known[1]
            self._place(call, slot)
        else:
            waiting = asyncio.create_task(self._prepare(call, slot))
            self._tasks.add(waiting)
            waiting.add_done_callback(self._tasks.discard)

    def recall(self, lease: Lease) -> None:
        """Have a call back that has not begun."""
        call = self._calls.get(lease)
        if call is not None and call.worker is not None:
            call.worker.order(frames.DROP, [call.key])

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Stop a call: one that has not begun is taken back, for one that runs the worker has to go."""
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

    async def name_output(self, lease: Lease) -> None:
        """Return once what a call wrote can be found under its name."""
        call = self._calls.get(lease)
        if call is None or call.worker is None or not call.worker.pid:
            return
        named: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.worker.naming.setdefault(call.key, []).append(named)
        call.worker.order(frames.NAME, call.key)
        await named

    # --- calls go to workers

    async def _prepare(self, call: Call, slot: int) -> None:
        """Have the files of a call, and then make it."""
        python = call.task.work
        if not isinstance(python, PythonCall):
            raise TypeError(python)
        held = AsyncExitStack()
        try:
            paths = [
                str(await held.enter_async_context(self._house.files.held(digest))) if digest else ""
                for digest in (python.function, python.items)
            ]
        except Unfetched as error:
            await held.aclose()
            if call.lease in self._calls:
                self._tell([self._never(call, f"what it calls cannot be had: {error}")])
            return
        known = self._contexts.get(id(python))
        if known is None:
            args = msgspec.json.encode(python.args)
            context = (python.call, args, paths[0], python.arguments, paths[1], python.first)
            self._contexts[id(python)] = known = (python, context, held)
            while len(self._contexts) > MOST_CONTEXTS:
                await self._contexts.pop(next(iter(self._contexts)))[2].aclose()
        else:
            await held.aclose()
        call.context = known[1]
        if call.lease in self._calls:  # or it was stopped meanwhile
            self._place(call, slot)

    def _place(self, call: Call, slot: int) -> None:
        """Give a call to the worker of its slot."""
        task = call.task
        kind = (task.workdir, task.need, tuple(task.env.items()))
        each = self._by_slot.get(slot) if slot >= 0 else None
        if each is None or each.ending or each.kind != kind:
            each = self._worker_for(kind, task)
            each.slot = slot
            if slot >= 0:
                self._by_slot[slot] = each
        self._idle.pop(each.number, None)
        each.send(call)
        if self._looking is None:
            self._look_later()

    def _worker_for(self, kind: object, task: Task) -> Worker:
        """A worker without calls, of those that are there or a new one."""
        for each in reversed(self._idle.values()):
            if each.kind == kind:
                return each
        most = max(1, self._house.capacity.cpu // 1000)
        while len(self._idle) >= most:
            self._retire(next(iter(self._idle.values())))
        self._numbers += 1
        number = self._numbers
        lease = Lease(JobId(f"python-{os.getpid()}-{number}"), 1, number)
        each = self._workers[number] = Worker(number, kind, self._folder, lease)
        told = (number, self._folder, self._output, self._house.output_limit)
        words = (self._python, "-P", "-c", _RUN, *map(str, told))
        env = task.env | {"SPILL_WORKER_SECRET": self._secret.hex()}
        process = Task(Argv(words), task.need, env, task.workdir)
        self._house.launch(lease, process, lambda seen: self._process(each, seen))
        return each

    def _stop(self, each: Worker, call: Call) -> None:
        """End the worker for the sake of the call that it makes; those behind it come back."""
        each.ending = True
        each.order(frames.STOP, call.key)  # which terminates, unless another call runs by then
        if call.stop:
            each.killed_for = call.lease
            self._house.signal(each.lease, True)

    def _retire(self, each: Worker) -> None:
        """Let a worker go that has nothing to do."""
        self._idle.pop(each.number, None)
        each.hang_up()

    # --- workers speak

    def _connection(self) -> Connection:
        return Connection(self._secret, self._workers.get, self._results, self._answers)

    def _results(self, each: Worker, records: list[tuple[Any, ...]]) -> None:
        """Calls ended."""
        sights: list[Sight] = []
        calls = each.calls
        for record in records:
            call = calls.pop(record[0], None)
            if call is None:
                continue  # told twice, by a worker that died
            each.made += 1
            each.last_peak = record[5]
            each.first_peak = each.first_peak or record[5]
            if record[8]:
                each.ending = True
                each.held = [record]
                calls[record[0]] = call
            elif record[7]:
                self._bring_away(call, record)
            else:
                self._calls.pop(call.lease, None)
                sights.append(_ended(call, record))
        if not calls:
            self._rest(each)
        if sights:
            self._house.seen(sights)
        if calls and self._looking is None:
            self._look_later()

    def _rest(self, each: Worker) -> None:
        """A worker has nothing to do, and may have another slot."""
        if self._by_slot.get(each.slot) is each:
            del self._by_slot[each.slot]
        grown = each.last_peak - each.first_peak > MOST_GROWTH
        if each.ending or grown or each.made >= self._most_calls:
            self._retire(each)
            return
        each.idle_since = time.monotonic()
        self._idle[each.number] = each
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE, self._sweep)

    def _sweep(self) -> None:
        """Let workers go that were idle for long."""
        now = time.monotonic()
        for each in [each for each in self._idle.values() if now - each.idle_since >= IDLE]:
            self._retire(each)
        self._sweeping = None
        if self._idle:
            soonest = next(iter(self._idle.values())).idle_since + IDLE - now
            self._sweeping = asyncio.get_running_loop().call_later(max(1.0, soonest), self._sweep)

    def _answers(self, each: Worker, answers: list[tuple[Any, ...]]) -> None:
        """Orders were carried out, as far as it was not too late."""
        sights: list[Sight] = []
        for kind, what in answers:
            if kind == frames.NAMED:
                each.answer_names(what)
                continue
            back = [call for key in what if (call := each.calls.pop(key, None)) is not None]
            sights += map(self._back, back)
        for call in list(each.calls.values()):
            if call.stop is not None and each.now()[0] == call.key and not each.ending:
                self._stop(each, call)  # it began before it could be taken back
        if not each.calls:
            self._rest(each)
        self._tell(sights)

    def _process(self, each: Worker, seen: Seen) -> None:
        """The process of a worker was made, or is gone."""
        if isinstance(seen, Spawned) or each.number not in self._workers:
            return
        del self._workers[each.number]
        self._idle.pop(each.number, None)
        if self._by_slot.get(each.slot) is each:
            del self._by_slot[each.slot]
        each.ending = True
        current, began = each.now()
        held, each.held = each.held, []
        late = [(*record[:8], False) for record in (*each.unsent(), *held)]
        self._results(each, late)
        came = bool(each.pid)
        sights: list[Sight] = []
        for call in list(each.calls.values()):
            if call.key == current:
                sights.append(self._died(each, call, seen.end, began))
            elif not came and call.stop is None:
                sights.append(self._never(call, self._why_not(each, seen.end)))
            else:
                sights.append(self._back(call))
        each.calls.clear()
        each.clear()
        self._clear_output(each, "")
        self._tell(sights)

    # --- how calls end otherwise

    def _back(self, call: Call) -> Sight:
        """A call that has not begun is no more with its worker."""
        call.worker = None
        if call.stop is not None:
            return self._never(call)
        self._calls.pop(call.lease, None)
        return Returned(call.lease)

    def _never(self, call: Call, why: str = "") -> Ended:
        """A call that never began, and never will."""
        self._calls.pop(call.lease, None)
        return Ended(call.lease, Exit(time.monotonic_ns(), spawned=False, message=why))

    def _died(self, each: Worker, call: Call, end: Exit, began: int) -> Ended:
        """A call whose worker is gone."""
        self._calls.pop(call.lease, None)
        self._clear_output(each, call.stem)
        message = end.message
        # A call that was killed may have ended at that very moment, and the next one begun: that is not its fault.
        lost = each.killed_for not in {None, call.lease}
        if lost:
            message = "its worker process was killed for the sake of another call"
        elif not message and call.stop is None:
            how = f"with exit code {end.code}" if end.code is not None else f"of signal {end.signal}"
            message = f"its worker process ended {how} before the call returned"
            _note(call.stem, message)
        ran = max(0, end.ended - began)
        code = NEW_CODE if end.code == 0 else end.code
        usage = Usage(ran, min(end.usage.cpu, ran), end.usage.peak_memory)
        return Ended(
            call.lease, msgspec.structs.replace(end, code=code, usage=usage, message=message, lost=lost)
        )

    def _why_not(self, each: Worker, end: Exit) -> str:
        """Why a worker did not come."""
        lease = each.lease
        said = ""
        with contextlib.suppress(OSError):
            path = Path(f"{stem_of(self._output, lease.job, 1, 0)}.err")
            said = path.read_bytes()[-2000:].decode(errors="replace").strip().rpartition("\n")[2]
            path.unlink()
        if end.message.startswith("workdir "):  # the folder of the call, and no fault of the interpreter
            return end.message
        told = end.message or said or f"it ended with exit code {end.code}, signal {end.signal}"
        return f"{self._python} does not work: {told}"

    def _bring_away(self, call: Call, record: tuple[Any, ...]) -> None:
        """Bring a large value to the server, and tell of the end then."""

        async def bring() -> None:
            path = Path(record[7])
            try:
                digest = await self._house.files.upload(path)
            except Unfetched as error:
                why = f"what it returned cannot be kept: {error}"
                end = msgspec.structs.replace(_ended(call, record).end, code=record[1] or 1, message=why)
            else:
                end = msgspec.structs.replace(_ended(call, record).end, value_digest=digest)
            await asyncio.to_thread(path.unlink, missing_ok=True)
            if self._calls.pop(call.lease, None) is not None:
                self._tell([Ended(call.lease, end)])

        call.worker = None
        bringing = asyncio.create_task(bring())
        self._tasks.add(bringing)
        bringing.add_done_callback(self._tasks.discard)

    def _clear_output(self, each: Worker, stem: str) -> None:
        """Keep what the last call of a worker wrote, or else delete its spool files."""
        for path in (self._output / "spool").glob(f"py{each.number}-*"):
            with contextlib.suppress(OSError):
                if stem and path.stat().st_size:
                    Path(stem).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path.replace(f"{stem}{path.suffix}")
                elif not stem:
                    path.unlink()

    def _tell(self, sights: list[Sight]) -> None:
        """Tell what was seen once whoever asked is done."""
        if sights:
            asyncio.get_running_loop().call_soon(self._house.seen, sights)

    # --- starts

    def _watch(self) -> None:
        """Keep the output of running calls within its bound, more often while one writes fast."""
        grown = self._bounding.look()
        pause = WATCH_RUSH if grown > RUSHING else WATCH
        loop = asyncio.get_running_loop()
        self._watching = loop.call_later(pause, self._watch) if self._bounding else None

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(ANNOUNCE, self._look)

    def _look(self) -> None:
        """Tell of calls that run for a moment; of those that are over by then, their end says all."""
        self._looking = None
        sights: list[Sight] = []
        again = False
        for each in list(self._workers.values()):
            if not each.calls:
                continue
            key, began = each.now()
            call = each.calls.get(key)
            if call is None:
                again = True
            elif not call.told:
                if time.monotonic_ns() - began < ANNOUNCE * 5e8:
                    again = True
                    continue
                call.told = True
                self._bounding.begin(each, call)
                if self._watching is None:
                    self._watch()
                sights.append(Spawned(call.lease, each.pid, birth_of(each.pid), began))
                if next(iter(each.calls)) < key:
                    # Those before it are over, and their results would wait for its end. Nothing is written while it runs.
                    records = each.unsent()
                    if each.now() == (key, began):
                        self._results(each, records)
        if again:
            self._look_later()
        if sights:
            self._house.seen(sights)


def _ended(call: Call, record: tuple[Any, ...]) -> Ended:
    """The end of a call as its worker told it."""
    _, code, at, ran, cpu, peak, value, _, _ = record
    return Ended(call.lease, Exit(at, code=code, usage=Usage(ran, cpu, peak), value=value))


def _note(stem: str, message: str) -> None:
    """Say in the output of a call what became of it."""
    with contextlib.suppress(OSError):
        Path(stem).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Path(f"{stem}.err").open("a") as file:
            file.write(f"spillover: {message}\n")
