"""Runs a live session at the prompt: our terminal or our standard streams become those of a program beside or in a task."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli import codes
from spillover.cli.live.keys import Keys
from spillover.client.live import LiveSession
from spillover.wire.relay import Frame, FrameKind, resize
from spillover.wire.relay import signal as signal_of

if TYPE_CHECKING:
    from argparse import Namespace

    from spillover.client import AsyncClient

PIECE: Final = 16 << 10
STDIN, STDOUT, STDERR = 0, 1, 2
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class SessionEnd(NamedTuple):
    """How a session ended. All are None if the connection was lost."""

    code: int | None = None
    """Exit code of the program, as a shell would have it."""
    error: str | None = None
    """Why the session ended early."""
    detached: bool = False
    killed: int = 0
    """Number of a signal that ended us; 0 if none did."""


def live_client(args: "Namespace") -> "AsyncClient":
    """Open a client for the server given by options, environment or data folder."""
    from spillover.client import AsyncClient  # noqa: PLC0415 - heavy

    return AsyncClient(server=args.server, data=args.data, ca=args.ca, token_file=args.token_file)


def has_terminal() -> bool:
    """Return whether our standard input and output are a terminal."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


def terminal_size() -> tuple[int, int]:
    """Return rows and columns of our terminal."""
    columns, rows = shutil.get_terminal_size()
    with contextlib.suppress(OSError):
        columns, rows = os.get_terminal_size(STDOUT)
    return rows, columns


def shell_code(number: int) -> int:
    """Return the exit code of a shell for that of a process, which is negative for a signal."""
    return number if number >= 0 else codes.SIGNALLED - number


async def in_terminal(session: LiveSession) -> SessionEnd:
    """Connect our terminal until the program ends, or somebody detaches."""
    async with session:
        with _raw(STDIN):
            return await _Talk(session, Keys()).run()


async def with_streams(session: LiveSession, *, given: bool) -> SessionEnd:
    """Connect our standard streams until the program ends; without `given`, its standard input is empty."""
    async with session:
        return await _Talk(session, None, given=given).run()


@contextmanager
def _raw(file: int) -> Iterator[None]:
    """Pass all keys on as they are typed."""
    before = termios.tcgetattr(file)
    try:
        tty.setraw(file)
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


class _Talk:
    """What goes to and fro in one session."""

    def __init__(self, session: LiveSession, keys: Keys | None, *, given: bool = True) -> None:
        self._session = session
        self._keys = keys
        """Finds our own keys in a terminal; None without one."""
        self._given = given
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(8)
        self._stopped = asyncio.Event()
        self._killed = 0
        self._interrupts = 0
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> SessionEnd:
        """Talk until the session ends."""
        handlers = self._handlers()
        for number, handler in handlers.items():
            self._loop.add_signal_handler(number, handler)
        if self._keys is not None:
            self._resize()
        if self._given:
            threading.Thread(target=self._read, daemon=True).start()
        hearing = asyncio.create_task(self._hear())
        typing = asyncio.create_task(self._type())
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({hearing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                return hearing.result()
            return SessionEnd(detached=self._keys is not None and self._keys.detached, killed=self._killed)
        finally:
            for number in handlers:
                self._loop.remove_signal_handler(number)
            for task in (hearing, typing, stopped, *self._tasks):
                task.cancel()
            await asyncio.gather(hearing, typing, stopped, *self._tasks, return_exceptions=True)

    def _handlers(self) -> dict[int, Callable[[], None]]:
        """Return what to do at signals."""
        handlers: dict[int, Callable[[], None]] = {number: partial(self._stop, number) for number in _ENDING}
        if self._keys is not None:
            handlers[signal.SIGWINCH] = self._resize
        else:
            handlers[signal.SIGINT] = self._interrupt
        return handlers

    def _stop(self, number: int = 0) -> None:
        self._killed = number
        self._stopped.set()

    def _interrupt(self) -> None:
        """Pass Ctrl-C on; end at the second one."""
        self._interrupts += 1
        if self._interrupts > 1:
            self._stop(signal.SIGINT)
        else:
            self._soon(signal_of(signal.SIGINT))

    def _resize(self) -> None:
        self._soon(resize(*terminal_size()))

    def _soon(self, frame: Frame) -> None:
        task = asyncio.create_task(self._session.send(frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read(self) -> None:
        """Read standard input, in a thread: it may be a file, for which a loop cannot wait."""
        data = b"x"
        while data:
            self._room.acquire()
            try:
                data = os.read(STDIN, PIECE)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._typed.put_nowait, data)
            except RuntimeError:
                return  # the session has ended

    async def _type(self) -> None:
        """Send what is typed."""
        while self._given:
            data = await self._typed.get()
            self._room.release()
            if not data:
                break
            if self._keys is not None:
                data = self._keys.feed(data)
            if data:
                await self._session.send(Frame(FrameKind.DATA, data))
            if self._keys is not None and self._keys.detached:
                self._stop()
                return
        await self._session.send(Frame(FrameKind.END))

    async def _hear(self) -> SessionEnd:
        """Print what comes, to the end."""
        async with aclosing(self._session.frames()) as frames:
            async for frame in frames:
                match frame.kind:
                    case FrameKind.DATA:
                        _write(STDOUT, frame.data)
                    case FrameKind.ERRORS:
                        _write(STDERR, frame.data)
                    case FrameKind.EXIT:
                        return SessionEnd(code=shell_code(frame.number))
                    case FrameKind.ERROR:
                        return SessionEnd(error=frame.text)
                    case _:
                        pass
        return SessionEnd()


def _write(to: int, data: bytes) -> None:
    """Write all of it, without the buffers of Python."""
    left = memoryview(data)
    while left:
        left = left[os.write(to, left) :]


def flush() -> None:
    """Write what Python holds back, before bytes go around it."""
    sys.stdout.flush()
    sys.stderr.flush()
