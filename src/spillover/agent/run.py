"""Puts an agent together and lets it live until it is told to stop."""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover import __version__
from spillover.agent import convert
from spillover.agent.files import CACHE, Files
from spillover.agent.finding import Finder
from spillover.agent.link import Link
from spillover.agent.output import Key, Outputs
from spillover.agent.peers import Listening, Peers
from spillover.agent.process import OUTPUT_LIMIT, Ended, Processes, Seen, Spawned, end_earlier_life, stem_of
from spillover.agent.runners.dispatch import Runners
from spillover.agent.runners.loading import load as load_runners
from spillover.agent.runners.port import House, Offer, Returned, Sight
from spillover.agent.spool import Spool
from spillover.agent.staging import Actors, Staging
from spillover.agent.state import FAREWELL_GRACE, AgentState
from spillover.agent.transfers import ServerTransfers
from spillover.agent.values import (
    Exit,
    Fetch,
    Forget,
    HandOver,
    Instruction,
    Prefetch,
    Recall,
    Reconnect,
    Result,
    Signal,
    Start,
    Task,
)
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Verdict
from spillover.model.cluster import WITHOUT
from spillover.model.files import KEPT_STREAMS
from spillover.model.resources import Resources
from spillover.model.units import format_time
from spillover.wire import agents_pb2 as pb

PROTOCOL: Final = 1
FAREWELL: Final = 2.0
"""Seconds for telling the last results to the server."""
REAP_MARGIN: Final = 1.0
"""Seconds that killed tasks may take to be gone."""
FLUSH_AFTER: Final = 0.005
"""Seconds that what happened may wait to be put on disk, unless it is told before."""
READY_THREADS: Final = 64
"""Tasks that the nursery is ready for from the beginning; it gets ready for more when there are more."""
SWEEP: Final = 3600.0
"""Seconds between two looks for output that is too old."""


log = logging.getLogger("spillover.agent")


class Options(Struct, frozen=True):
    """How an agent was started."""

    folder: Path
    """The agent's own."""
    finder: Finder
    """Where its server is looked for."""
    name: str
    cluster: str
    capacity: Resources
    queue: int
    """Leases beyond those that run."""
    offers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    drain: float = 0.0
    """Seconds that tasks may go on when the agent is told to stop."""
    isolation: str = "auto"
    """What keeps tasks apart and within what they asked for; one of ISOLATIONS."""
    output_limit: int = OUTPUT_LIMIT
    """Bytes that are kept of each stream of a task."""
    cache: int = CACHE
    """Bytes of files that are kept for tasks that need them."""
    devices: tuple[str, ...] = ()
    """Names of its GPUs, as many as its capacity has."""
    settings: dict[str, str] = {}
    """For runners, by name."""
    peers: Listening = Listening()
    """Where other agents may ask for tasks that they took over from this one."""


class Taken(Exception):
    """Another agent lives in this folder."""


class Agent:
    """One agent: its state, its tasks, its spool and its link to the server."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = _lock(options.folder)
        self._spool = Spool(options.folder / "spool")
        self.log_retention = 0
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        """Set when it was told to stop once more."""
        self._idle = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._flushing = False
        self._births: dict[Lease, tuple[int, int]] = {}
        self._rebirth: asyncio.Task[None] | None = None
        self.state = AgentState(options.capacity, devices=options.devices)
        self.outputs = Outputs(options.folder / "output", self._held, self._name_output)
        self._processes = self._new_processes()
        self._launched: dict[Lease, Callable[[Seen], None]] = {}
        """Processes that are no tasks of the server's, and whoever wants to hear of them."""
        transfers = ServerTransfers()
        self._files = Files(options.folder / "files", transfers, options.cache)
        self._runners = self._new_runners()
        self._staging = self._new_staging()
        self._introduction = _introduction(options)
        self._peers = Peers(self._fetched, self._unfetched, transfers, self._files, options.peers)
        self._link = Link(self, self._introduction, options.finder, transfers=transfers, peers=self._peers)

    async def run(self) -> None:
        """Live until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        await self._recover()
        await self._processes.open()
        self._introduction.labels["isolation"] = self._processes.isolation.kind
        log.info("isolation of tasks: %s", self._processes.isolation)
        self._files.open()
        await asyncio.to_thread(self._staging.open)
        _offer(self._introduction, await self._runners.open())
        _describe(self._options)
        self._introduction.peer = await self._peers.open()
        link = asyncio.create_task(self._link.run())
        sweeper = asyncio.create_task(self._delete_old_output())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({link, stop}, return_when=asyncio.FIRST_COMPLETED)
            if link.done():
                link.result()  # only a mistake of ours ends it: show it
            await self._leave()
        finally:
            tasks = [task for task in (link, sweeper, stop, self._rebirth) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()
            await self._peers.close()
            await self._staging.close()
            await self._runners.close()
            self._files.close()
            await self._processes.close()
            self._spool.close()
            (self._options.folder / "agent.json").unlink(missing_ok=True)
            os.close(self._lock)

    async def _recover(self) -> None:
        """End what an earlier life left running, and remember what it did not get answered."""
        left = self._spool.left()
        pids = [(entry.pid, entry.birth) for entry in left]
        killed = await asyncio.to_thread(end_earlier_life, self._options.folder, pids)
        now, wall = time.monotonic_ns(), time.time_ns()
        for entry in left:
            message = "its agent died while it ran"
            usage = Usage(ran=max(0, wall - entry.wall))
            self._spool.keep(Result(entry.lease, Outcome.LOST, now, usage=usage, message=message), now, wall)
        self.flush()
        unanswered = self._spool.unanswered(now, wall)
        self.state.results |= {result.lease: result for result in unanswered}
        if unanswered or killed:
            log.info(
                "earlier life: %d processes killed, %d tasks lost, %d results to tell",
                killed,
                len(left),
                len(unanswered),
            )

    def _told_to_stop(self) -> None:
        """Once lets tasks end, within the time that they have for that; twice does not."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def _drain(self) -> None:
        """Take nothing more, give back what has not started, and let what runs end."""
        self.act(self.state.drain(time.monotonic_ns()))
        log.info("told to stop: %d tasks may end, for %gs", len(self.state.running), self._options.drain)
        waits = {asyncio.create_task(self.wait_stopped()), asyncio.create_task(self._hurry.wait())}
        try:
            await asyncio.wait(waits, timeout=self._options.drain, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _leave(self) -> None:
        """Stop all tasks, tell the server, and go."""
        if self._options.drain:
            await self._drain()
        log.info("told to stop: %d tasks are running", len(self.state.running))
        self.act(self.state.leave(time.monotonic_ns()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_GRACE / 1e9 + REAP_MARGIN):
                await self.wait_stopped()
        if self._link.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._link.drained()

    # --- instructions and what comes of them

    def act(self, instructions: list[Instruction]) -> Reconnect | None:
        """Carry out instructions; the one about the connection is handed back."""
        reconnect = None
        fetches: list[Fetch] = []
        for instruction in instructions:
            match instruction:
                case Start(lease, task, slot):
                    self._staging.start(lease, task, slot)
                case Prefetch(task):
                    self._staging.prefetch(task)
                case Recall(lease):
                    if (
                        run := self.state.running.get(lease)
                    ) is not None:  # a runner may tell of its end at once
                        self._runners.recall(lease, run.task)
                case Signal(lease, kill):
                    if (run := self.state.running.get(lease)) is not None:
                        self._staging.signal(lease, run.task, kill=kill)
                case Forget(lease, verdict):
                    self._spool.forget(lease)
                    self._flush_soon()
                    if verdict is Verdict.FENCED:
                        log.warning("the server does not want the result of %s", lease)
                case HandOver(lease, ticket):
                    self._peers.offer(lease, ticket)
                case Fetch():
                    fetches.append(instruction)
                case Reconnect():
                    reconnect = instruction
        if fetches:
            self._peers.fetch(fetches)
        if not self.state.running:
            self._idle.set()
        if self.state.news():
            self._link.ready()
        self._set_timer()
        return reconnect

    def _fetched(self, lease: Lease, task: Task) -> None:
        """A peer, or the server, told what a lease runs that was taken over."""
        self.act(self.state.fetched(time.monotonic_ns(), lease, task))

    def _unfetched(self, lease: Lease) -> None:
        """Nobody did."""
        self.act(self.state.unfetched(time.monotonic_ns(), lease))

    def _seen(self, seen: Sequence[Sight]) -> None:
        """Tasks began or ended."""
        now, wall = time.monotonic_ns(), time.time_ns()
        out: list[Instruction] = []
        back: list[Lease] = []
        for what in self._staging.sift(seen):
            if isinstance(what, Returned):
                back.append(what.lease)
            elif isinstance(what, Spawned):
                self._spool.started(what.lease, what.pid, what.birth, wall - (now - what.at))
                self._births[what.lease] = (what.pid, what.birth)
                out += self.state.started(now, what.lease, what.at)
            else:
                self._births.pop(what.lease, None)
                out += self._ended(now, wall, what.lease, what.end)
        if back:
            out += self.state.returned(now, back)
            for lease in back:
                if (result := self.state.results.get(lease)) is not None:
                    self._spool.keep(result, now, wall)
        self._flush_soon()
        self.act(out)

    def _ended(self, now: int, wall: int, lease: Lease, end: Exit) -> list[Instruction]:
        """One task is gone."""
        out = self.state.ended(now, lease, end)
        if (result := self.state.results.get(lease)) is not None:
            self._spool.keep(result, now, wall)
        self.outputs.ended(lease)
        return out

    def _nursery_died(self, unbegun: list[Lease]) -> None:
        """The process that waits for tasks is gone, against our will: nobody can see their ends any more."""
        log.error("the process that runs the tasks died; its tasks are lost")
        births, self._births = list(self._births.values()), {}
        running = list(self.state.running)
        back = [lease for lease in unbegun if lease not in self._launched]
        old, self._processes = self._processes, self._new_processes()
        self._launched.clear()
        self._runners.forget()
        self._staging.lost()
        now, wall = time.monotonic_ns(), time.time_ns()
        # Until the new nursery is there, what this starts is kept in the queue to it.
        self.act(self.state.lost_all(now, "the process that ran it died", back))
        for lease in running:
            if lease in self.state.results:
                self._spool.keep(self.state.results[lease], now, wall)
                self.outputs.ended(lease)
        self._flush_soon()
        self._rebirth = asyncio.create_task(self._reborn(old, births))

    async def _reborn(self, old: Processes, births: list[tuple[int, int]]) -> None:
        """End the tasks of a nursery that died, then start a new one."""
        await old.close()
        await asyncio.to_thread(end_earlier_life, self._options.folder, births)
        await self._processes.open()

    def _new_processes(self) -> Processes:
        """A nursery that is not yet started."""
        return Processes(
            self._options.folder,
            self._options.cluster,
            self._made,
            self._nursery_died,
            isolation=self._options.isolation,
            output_limit=self._options.output_limit,
            threads=max(1, min(READY_THREADS, self._options.capacity.cpu // 1000)),
        )

    def _new_runners(self) -> Runners:
        """Who runs what."""

        async def name_output(lease: Lease) -> None:
            await self._processes.name_output(lease)

        options = self._options
        house = House(
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
        return Runners(house, load_runners(house), self._start_process, self._recall_process)

    def _new_staging(self) -> Staging:
        """Who brings files to tasks, and away."""
        actors = Actors(
            start=self._runners.start,
            signal=lambda lease, task, kill: self._runners.signal(lease, task, kill=kill),
            seen=self._seen,
            moving=self.state.moving,
            wrote=self._wrote,
        )
        return Staging(self._options.folder / "work", self._files, actors)

    def _wrote(self, lease: Lease) -> Sequence[tuple[str, Path]]:
        """Files with output of a task that the server wants, each with where it is to be listed."""
        if not self.state.keep_output:
            return ()
        stem = stem_of(self._options.folder / "output", lease.job, lease.attempt, lease.task)
        files = zip(KEPT_STREAMS, (Path(f"{stem}.out"), Path(f"{stem}.err")), strict=True)
        return [(name, path) for name, path in files if path.exists()]

    def _start_process(self, lease: Lease, task: Task, slot: int) -> None:
        """Make a process of a task."""
        self._processes.start(lease, task, slot)

    def _recall_process(self, lease: Lease) -> None:
        """Have a task back whose process is not made yet."""
        self._processes.recall(lease)

    def _launch(self, lease: Lease, task: Task, seen: Callable[[Seen], None] | None) -> None:
        """Make a process for a runner."""
        if seen is not None:
            self._launched[lease] = seen
        self._processes.start(lease, task)

    def _made(self, seen: list[Sight]) -> None:
        """Processes were made or ended, of tasks or of runners that want to hear of theirs themselves."""
        if not self._launched:
            self._seen(seen)
            return
        now = time.monotonic_ns()
        own = [what for what in seen if what.lease not in self._launched]
        for what in seen:
            if (tell := self._launched.get(what.lease)) is None:
                continue
            if isinstance(what, Returned):
                message = "could not be started: the system allows no more threads"
                what = Ended(what.lease, Exit(now, spawned=False, message=message))  # noqa: PLW2901
            if not isinstance(what, Spawned):
                del self._launched[what.lease]
            tell(what)
        if own:
            self._seen(own)

    async def wait_stopped(self) -> None:
        """Return when no task runs."""
        while self.state.running:
            self._idle.clear()
            await self._idle.wait()

    def _held(self, key: Key) -> Lease | None:
        """The lease under which a task waits or runs here."""
        leases = (*self.state.running, *self.state.waiting)
        return next((lease for lease in leases if (lease.job, lease.attempt, lease.task) == key), None)

    async def _name_output(self, lease: Lease) -> None:
        """Have the output of a task under its name."""
        if (run := self.state.running.get(lease)) is not None:
            await self._runners.name_output(lease, run.task)

    # --- time and disk

    def _set_timer(self) -> None:
        """Be woken when something is due by itself."""
        wake = self.state.wake()
        if wake is None or (self._timer is not None and self._timer_at <= wake):
            return  # a timer that comes too early finds nothing to do, and sets the next
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at = wake
        self._timer = loop.call_later(max(0.0, (wake - time.monotonic_ns()) / 1e9), self._tick)

    def _tick(self) -> None:
        """Something may be due."""
        self._timer = None
        self.act(self.state.tick(time.monotonic_ns()))

    def _flush_soon(self) -> None:
        """Write once for all that happens within a moment; what is told is written before."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(FLUSH_AFTER, self.flush)

    def flush(self) -> None:
        """Put on disk what must be there before it is told."""
        self._flushing = False
        try:
            self._spool.flush()
        except OSError as error:
            # The results are in memory still and will be told; only a death of the agent would lose them.
            log.error("cannot keep results on disk: %s", error)  # noqa: TRY400 - one line, no traceback

    async def _delete_old_output(self) -> None:
        """Delete what is older than the server wants it kept."""
        while True:
            await asyncio.sleep(SWEEP)
            if self.log_retention:
                held = frozenset((lease.job, lease.attempt, lease.task) for lease in self.state.running)
                deleted = await asyncio.to_thread(self.outputs.delete_old, self.log_retention, held)
                log.info("deleted %d files of old output", deleted)


def _introduction(options: Options) -> pb.RegisterRequest:
    """The part of a registration that stays the same for life."""
    return pb.RegisterRequest(
        protocol=PROTOCOL,
        cluster=options.cluster,
        name=options.name,
        life=secrets.token_hex(8),
        capacity=convert.resources_out(options.capacity),
        offers=options.offers,
        labels=options.labels,
        queue=options.queue,
        version=__version__,
        pid=os.getpid(),
    )


def _offer(introduction: pb.RegisterRequest, offer: Offer) -> None:
    """Add what runners make possible, and why they do not."""
    introduction.offers.extend(word for word in offer.words if word not in introduction.offers)
    for word, why in offer.missing.items():
        introduction.labels[f"{WITHOUT}{word}"] = why[:200]


def _lock(folder: Path) -> int:
    """Take the folder for this process, for life."""
    (folder / "output").mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        os.close(lock)
        raise Taken(f"another agent (pid {holder}) uses {folder}; stop it or choose another --name") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _describe(options: Options) -> None:
    """Say who lives here, for whoever looks into the folder."""
    described = {
        "pid": os.getpid(),
        "name": options.name,
        "cluster": options.cluster,
        "capacity": {
            "cpu": options.capacity.cpu,
            "memory": options.capacity.memory,
            "gpu": options.capacity.gpu,
        },
        "started": format_time(time.time_ns()),
    }
    new = options.folder / "agent.json.new"
    new.write_bytes(msgspec.json.encode(described))
    new.replace(options.folder / "agent.json")
