"""Serves remote shells to the other tasks of a gang, until the gang is over."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final, cast

from spillover.agent.rsh.frames import FrameKind, Unsigned, Wire
from spillover.agent.rsh.gang import OwnGang, ShellPeer

FIRST_MESSAGE: Final = 10.0
"""Seconds within which a caller must prove that it belongs to the gang."""
FAREWELL: Final = 2.0
"""Seconds to tell another task that the gang is over."""
PIECE: Final = 1 << 16
SIGNALLED: Final = 128
OF_ITS_TASK: Final = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "SLURM", "RANK", "LOCAL_RANK", "GROUP_RANK")
"""Beginnings of variables that tell a task its own rank. Whoever starts a command here gives it another one."""


class ShellService:
    """The remote shells of one task."""

    def __init__(self, gang: OwnGang, environment: Mapping[str, str]) -> None:
        self._gang = gang
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith(OF_ITS_TASK)
        }
        self._over = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen for the other tasks; raises OSError."""
        own = self._gang.peers[self._gang.rank]
        self._server = await asyncio.start_server(self._serve, own.host, own.port)

    async def wait_over(self) -> None:
        """Return when another task says that the gang is over."""
        await self._over.wait()

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one caller."""
        with contextlib.suppress(OSError, EOFError, Unsigned, TimeoutError, ValueError):
            async with asyncio.timeout(FIRST_MESSAGE):
                wire = await Wire.agree(reader, writer, self._gang.token, calls=False)
                kind, data = await wire.receive()
            if kind is FrameKind.RUN:
                await self._run(wire, data.decode())
            elif kind is FrameKind.OVER:
                self._over.set()
        writer.close()

    async def _run(self, wire: Wire, line: str) -> None:
        """Run a command line, and pass its streams and its exit code on."""
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            line,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        out, err = cast("tuple[asyncio.StreamReader, asyncio.StreamReader]", (child.stdout, child.stderr))
        turn = asyncio.Lock()  # messages are numbered, so that one must be written after the other
        feeding = asyncio.create_task(_feed(wire, child))
        try:
            await asyncio.gather(
                _pass_on(wire, turn, FrameKind.OUT, out),
                _pass_on(wire, turn, FrameKind.ERR, err),
            )
            code = await child.wait()
            await wire.send(FrameKind.EXIT, str(code if code >= 0 else SIGNALLED - code).encode())
        finally:
            feeding.cancel()
            with contextlib.suppress(ProcessLookupError):  # the caller is gone, so nobody needs it
                os.killpg(child.pid, signal.SIGKILL)


async def _feed(wire: Wire, child: asyncio.subprocess.Process) -> None:
    """Pass standard input to a command; end the command if its caller is gone."""
    to = cast("asyncio.StreamWriter", child.stdin)
    try:
        while True:
            kind, data = await wire.receive()
            if kind is FrameKind.IN and data:
                to.write(data)
                with contextlib.suppress(ConnectionError):  # the command reads no more
                    await to.drain()
            elif kind is FrameKind.IN:
                to.close()
    except (OSError, EOFError, Unsigned, ValueError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


async def _pass_on(wire: Wire, turn: asyncio.Lock, kind: FrameKind, stream: asyncio.StreamReader) -> None:
    """Pass one output stream of a command on."""
    while data := await stream.read(PIECE):
        async with turn:
            await wire.send(kind, data)


async def end_gang(gang: OwnGang) -> None:
    """Tell the services of all other tasks that the gang is over. Tasks that serve nothing are left alone."""
    await asyncio.gather(*[_tell_over(peer, gang) for peer in gang.peers if peer.rank != gang.rank])


async def _tell_over(peer: ShellPeer, gang: OwnGang) -> None:
    with contextlib.suppress(OSError, EOFError, TimeoutError):
        async with asyncio.timeout(FAREWELL):
            reader, writer = await asyncio.open_connection(peer.host, peer.port)
            wire = await Wire.agree(reader, writer, gang.token, calls=True)
            await wire.send(FrameKind.OVER)
            await reader.read()  # it hangs up when it has understood
            await wire.close()


async def lead(gang: OwnGang, command: Sequence[str]) -> int:
    """Run a command as the task that leads the gang; return its exit code. The gang ends with it."""
    child = await asyncio.create_subprocess_exec(*command)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, child.terminate)
    code = await child.wait()
    await end_gang(gang)
    return code if code >= 0 else SIGNALLED - code
