"""Runs a command on another node of the gang, with our standard streams, and returns its exit code."""

import asyncio
import os
import threading
from typing import Final, NamedTuple

from spillover.agent.rsh.frames import FrameKind, Unsigned, Wire
from spillover.agent.rsh.gang import OwnGang, ShellPeer

TRIES: Final = 100
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


async def call(gang: OwnGang, peer: ShellPeer, line: str, streams: Streams = Streams()) -> int:  # noqa: B008 - a value that never changes
    """Run a command line on another node; raise NoShell."""
    wire: Wire | None = None
    feeding: asyncio.Task[None] | None = None
    try:
        reader, writer = await _connect(peer)
        wire = await Wire.agree(reader, writer, gang.token, calls=True)
        await wire.send(FrameKind.RUN, line.encode())
        feeding = asyncio.create_task(_pass_input_on(wire, streams.given))
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
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        if wire is not None:
            await wire.close()


async def _connect(peer: ShellPeer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a service that may be about to start."""
    for _ in range(TRIES):
        try:
            return await asyncio.open_connection(peer.host, peer.port)
        except ConnectionRefusedError:
            await asyncio.sleep(PAUSE)
    raise NoShell(
        f"nothing serves remote shells on {peer.node}; its task must run `spill rsh --serve`, see `spill rsh --help`"
    )


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


def _write(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]
