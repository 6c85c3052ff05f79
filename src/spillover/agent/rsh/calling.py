"""Runs a command on another node of the gang, with our standard streams, and returns its exit code."""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from spillover.agent.rsh.frames import MOST, FrameKind, Unsigned, Wire
from spillover.agent.rsh.gang import OwnGang, ShellPeer

ANSWER: Final = 30.0
"""Seconds that a task may take to answer."""
TRIES: Final = 300
PAUSE: Final = 0.1
"""Seconds between tries to reach a task whose service may not listen yet: all tasks have only just started."""
PIECE: Final = 1 << 16
AHEAD: Final = 16
"""Pieces of standard input that may wait to be sent."""


class NoShell(Exception):
    """The other task cannot be reached, or does not accept us; the message says why."""


class Streams(NamedTuple):
    """Descriptors of standard streams."""

    given: int = 0
    out: int = 1
    err: int = 2


async def call(
    gang: OwnGang,
    peer: ShellPeer,
    line: str,
    streams: Streams = Streams(),  # noqa: B008 - a value that never changes
    signals: "asyncio.Queue[int] | None" = None,
) -> int:
    """Run a command line on another node, and send it the signals that come; raise NoShell."""
    wire: Wire | None = None
    beside: list[asyncio.Task[None]] = []
    try:
        wire = await connect(gang, peer)
        await wire.send(FrameKind.RUN, _checked(line))
        beside.append(asyncio.create_task(_pass_input_on(wire, streams.given)))
        if signals is not None:
            beside.append(asyncio.create_task(_pass_signals_on(wire, signals)))
        while True:
            kind, data = await wire.receive()
            match kind:
                case FrameKind.OUT:
                    _write(streams.out, data)
                case FrameKind.ERR:
                    _write(streams.err, data)
                case FrameKind.EXIT:
                    return int(data)
                case _:
                    pass
    except Unsigned as error:
        raise NoShell(f"{peer.node}: {error}") from None
    except (ConnectionError, EOFError):
        raise NoShell(f"the task on {peer.node} hung up; it has ended, or is of another attempt") from None
    except OSError as error:
        raise NoShell(f"the task on {peer.node} cannot be reached: {error.strerror or error}") from None
    finally:
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        if wire is not None:
            wire.close()


async def connect(gang: OwnGang, peer: ShellPeer, is_gone: Callable[[], bool] = bool) -> Wire:
    """Connect to a service that may be about to start, until it is known to be gone; raise NoShell, OSError or EOFError."""
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(ANSWER):
                reader, writer = await asyncio.open_connection(peer.host, peer.port)
                return await Wire.agree(reader, writer, gang.token, calls=True)
        except ConnectionRefusedError:
            if is_gone():
                break
            await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise NoShell(f"the task on {peer.node} does not answer at {peer.host}") from None
    raise NoShell(
        f"nothing serves remote shells on {peer.node}; its task must run `spill rsh --serve`, see `spill rsh --help`"
    )


def _checked(line: str) -> bytes:
    """Return a command line as bytes; raise NoShell if it is too long for one message."""
    data = os.fsencode(line)
    if len(data) > MOST:
        raise NoShell(f"the command has {len(data)} bytes; the maximum is {MOST}")
    return data


async def _pass_input_on(wire: Wire, given: int) -> None:
    """Pass our standard input on. A thread reads it, as it may be a file that a loop cannot wait for."""
    loop, pieces, ahead = asyncio.get_running_loop(), asyncio.Queue[bytes](), threading.Semaphore(AHEAD)

    def read() -> None:
        data = b"x"
        while data:
            ahead.acquire()
            try:
                data = os.read(given, PIECE)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, data)
            except RuntimeError:
                return  # the command has ended, and the loop with it

    threading.Thread(target=read, daemon=True).start()
    while True:
        data = await pieces.get()
        await wire.send(FrameKind.IN, data)
        ahead.release()
        if not data:
            return


async def _pass_signals_on(wire: Wire, signals: "asyncio.Queue[int]") -> None:
    """Send each signal to the command."""
    while True:
        await wire.send(FrameKind.SIGNAL, str(await signals.get()).encode())


def _write(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]
