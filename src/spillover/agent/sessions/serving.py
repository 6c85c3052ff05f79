"""Serves the live sessions that the server asks for, each in its own asyncio task, until their client or their task ends."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from spillover.agent.files.output import Key
from spillover.agent.leases.values import Task
from spillover.agent.sessions.commands import BesideTask
from spillover.agent.sessions.places import Entry, terminal_of
from spillover.agent.sessions.wire import SessionOver, SessionWire
from spillover.core.events import Lease
from spillover.ports.cluster import Exec
from spillover.wire import agents_pb2 as pb
from spillover.wire.relay import Frame, FrameKind, FrameReader, failed

STARTING: Final = 10.0
"""Seconds to wait for the process of a task that is starting, or for its terminal."""
LOOK: Final = 0.05
"""Seconds between two looks for it."""
LAST_WORDS: Final = 2.0
"""Seconds that a terminal has to tell its client how the task ended, and a program to read what a client left."""
CONNECT: Final = 10.0
"""Seconds to connect to a port."""
PIECE: Final = 64 << 10
LOOPBACK: Final = ("127.0.0.1", "::1")

log = logging.getLogger("spillover.agent")


class NoSession(Exception):
    """A session is not possible; the message says why."""


class Sessions:
    """All live sessions of an agent."""

    def __init__(
        self,
        folder: Path,
        held: Callable[[Key], tuple[Lease, Task] | None],
        entry: Callable[[Lease, Task], Entry | None],
    ) -> None:
        self._folder = folder
        """The agent's own."""
        self._held = held
        """Returns the lease under which a task runs here; None if it does not."""
        self._entry = entry
        """Returns how to enter a task; None while it has no process. Raises NoSession."""
        self._serving: dict[asyncio.Task[None], Key] = {}
        self._endings: dict[asyncio.Task[None], asyncio.Event] = {}
        self._by_id: dict[str, asyncio.Task[None]] = {}

    def request(self, ask: pb.RelayAsk, call: Callable[[], Any]) -> None:
        """Serve a session on a call to the server."""
        ending = asyncio.Event()
        key = (ask.job, ask.attempt, ask.task)
        serving = asyncio.create_task(self._serve(ask, call, ending))
        self._serving[serving], self._endings[serving] = key, ending  # type: ignore[assignment]  # checked when it is looked up
        self._by_id[ask.id] = serving
        serving.add_done_callback(lambda done: self._forget(done, ask.id))

    def _forget(self, serving: "asyncio.Task[None]", number: str) -> None:
        del self._serving[serving], self._endings[serving]
        self._by_id.pop(number, None)
        if not serving.cancelled() and (error := serving.exception()) is not None:
            log.error("a session failed", exc_info=error)

    def ended(self, lease: Lease) -> None:
        """End the sessions with a task that ended."""
        if self._serving:
            for serving, key in self._serving.items():
                if key == (lease.job, lease.attempt, lease.task):
                    self._endings[serving].set()

    def left(self, numbers: Iterable[str]) -> None:
        """End the sessions of clients that are gone.

        Most end by themselves, with all input. The end of a call lies behind its input, so one whose program does not
        read its input would not notice.
        """
        for number in numbers:
            if (serving := self._by_id.get(number)) is not None:
                asyncio.get_running_loop().call_later(LAST_WORDS, serving.cancel)

    async def reset(self) -> None:
        """End all sessions, because the connection to the server ended."""
        serving = list(self._serving)
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, ask: pb.RelayAsk, call: Callable[[], Any], ending: asyncio.Event) -> None:
        """Serve one session."""
        wire = SessionWire(call())
        try:
            with contextlib.suppress(SessionOver):
                await wire.begin(ask.id)
                try:
                    await self._until(ending, self._do(ask, wire))
                except NoSession as error:
                    await wire.send(failed(str(error)))
                await wire.finish()
        finally:
            await wire.close()

    @staticmethod
    async def _until(ending: asyncio.Event, work: Any) -> None:
        """Do the work of a session until its task ends, and a moment longer; raise NoSession then."""
        doing, over = asyncio.create_task(work), asyncio.create_task(ending.wait())
        try:
            await asyncio.wait({doing, over}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                await asyncio.wait({doing}, timeout=LAST_WORDS)
            if not doing.done():
                raise NoSession("the task has ended")
            doing.result()
        finally:
            for each in (doing, over):
                each.cancel()
            await asyncio.gather(doing, over, return_exceptions=True)

    async def _do(self, ask: pb.RelayAsk, wire: SessionWire) -> None:
        """Do the work of a session."""
        lease, task = await self._running(ask)
        match ask.WhichOneof("what"):
            case "exec":
                await self._exec(await self._way_in(lease, task), ask.exec, wire)
            case "attach":
                await self._attach(lease, task, wire)
            case "forward":
                await _forward(ask.forward, wire)
            case _:
                raise NoSession(
                    "this agent is of an earlier release and does not know such a session; upgrade it"
                )

    async def _running(self, ask: pb.RelayAsk) -> tuple[Lease, Task]:
        """Return the task that a session is for; wait for its lease, which may arrive later than the request."""
        for _ in range(int(STARTING / LOOK)):
            if (found := self._held((ask.job, ask.attempt, ask.task))) is not None:  # type: ignore[arg-type]  # any text finds nothing
                return found
            await asyncio.sleep(LOOK)
        raise NoSession("the task does not run here any more")

    async def _way_in(self, lease: Lease, task: Task) -> Entry:
        """Return how to enter a task, once it has a process."""
        for _ in range(int(STARTING / LOOK)):
            if (entry := self._entry(lease, task)) is not None:
                return entry
            await asyncio.sleep(LOOK)
        raise NoSession("the task has no process yet; try again")

    @staticmethod
    async def _exec(entry: Entry, asked: pb.Exec, wire: SessionWire) -> None:
        """Run a command beside a task."""
        if not asked.words:
            raise NoSession("there is no command")
        want = Exec(tuple(asked.words), asked.terminal, asked.rows, asked.columns, asked.term)
        try:
            beside = BesideTask(entry, want, wire)
        except (OSError, ValueError) as error:
            raise NoSession(f"cannot start the command: {error}") from None
        try:
            await beside.run()
        finally:
            await asyncio.shield(beside.close())

    # --- terminals

    def open(self) -> None:
        """Remove the terminals that an earlier run left."""
        folder = self._folder / "terminals"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.iterdir():
            left.unlink(missing_ok=True)

    async def _attach(self, lease: Lease, task: Task, wire: SessionWire) -> None:
        """Connect to the terminal of a task."""
        if not task.terminal:
            raise NoSession(
                "the job has no terminal; start one with `spill run --pty`, or run a command beside it with `spill exec`"
            )
        reader, writer = await self._terminal(lease)
        try:
            await _join(wire, reader, writer, framed=True)
        finally:
            writer.close()

    async def _terminal(self, lease: Lease) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the socket of a terminal; its path may be longer than a socket's name."""
        path = terminal_of(self._folder, lease)
        for _ in range(int(STARTING / LOOK)):
            at = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return await asyncio.open_unix_connection(f"/proc/self/fd/{at}/{path.name}")
            except OSError:
                await asyncio.sleep(LOOK)
            finally:
                os.close(at)
        raise NoSession("the terminal of the task does not answer")


async def _forward(port: int, wire: SessionWire) -> None:
    """Connect to a port of this machine."""
    why = ""
    for host in LOOPBACK:
        try:
            async with asyncio.timeout(CONNECT):
                reader, writer = await asyncio.open_connection(host, port)
            break
        except OSError as error:
            why = why or f"nothing listens on port {port} of the task's machine ({error.strerror or error})"
        except TimeoutError:
            why = f"port {port} of the task's machine does not answer"
    else:
        raise NoSession(why)
    try:
        await wire.send(Frame(FrameKind.READY))
        await _join(wire, reader, writer, framed=False)
    finally:
        writer.close()


async def _join(
    wire: SessionWire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, framed: bool
) -> None:
    """Pass bytes on in both directions until ours ends; `framed` bytes are frames already."""
    tasks = [
        asyncio.create_task(_outwards(wire, reader, framed=framed)),
        asyncio.create_task(_inwards(wire, writer, framed=framed)),
    ]
    try:
        # The other side may close its half first, and still read.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    except OSError as error:
        raise NoSession(f"the connection broke: {error.strerror or error}") from None
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _inwards(wire: SessionWire, writer: asyncio.StreamWriter, *, framed: bool) -> None:
    """Pass on what the client sends, until it is gone."""
    while True:
        for frame in await wire.receive():
            if framed:
                writer.write(frame.encoded())
            elif frame.kind is FrameKind.DATA:
                writer.write(frame.data)
            elif frame.kind is FrameKind.END and writer.can_write_eof():
                writer.write_eof()
        await writer.drain()


async def _outwards(wire: SessionWire, reader: asyncio.StreamReader, *, framed: bool) -> None:
    """Pass on what comes for the client, to its end."""
    frames = FrameReader()
    while data := await reader.read(PIECE):
        await wire.send(*(frames.feed(data) if framed else [Frame(FrameKind.DATA, data)]))
    if not framed:
        await wire.send(Frame(FrameKind.END))
