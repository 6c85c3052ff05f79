"""Serves remote shells to the other tasks of a gang, until its first task is gone."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from spillover.agent.rsh.calling import NoShell, connect
from spillover.agent.rsh.frames import PASSED_ON, FrameKind, Unsigned, Wire
from spillover.agent.rsh.gang import OwnGang
from spillover.core.records.tasks import LEADER
from spillover.model.admission import SRUN_VARIABLE
from spillover.model.hosts import is_loopback

FIRST_MESSAGE: Final = 10.0
"""Seconds within which a caller must prove that it belongs to the gang."""
STARTED: Final = 1.0
"""Seconds after the first command in which the first task may still begin to listen."""
PIECE: Final = 1 << 16
SIGNALLED: Final = 128
FOLDER: Final = "SPILL_FOLDER"
"""Variable of commands: the folder in which their task began."""
OF_ITS_TASK: Final = (
    "PMI_",
    "PMIX_",
    "OMPI_COMM_WORLD_",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURMD_",
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
)
"""Beginnings of variables that tell a task its own rank. Whoever starts a command here gives it another one."""

_OF_SCRIPT: Final = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURMD_NODENAME")
"""Variables that scripts for Slurm have nevertheless, as Slurm itself gives them to scripts."""


class ShellService:
    """The remote shells of one task."""

    def __init__(self, gang: OwnGang, environment: Mapping[str, str]) -> None:
        self._gang = gang
        self.environment = {
            name: value for name, value in environment.items() if not name.startswith(OF_ITS_TASK)
        } | {FOLDER: str(Path.cwd())}
        """The environment of commands."""
        self._commands: dict[int, None] = {}
        """Process groups of commands that run."""
        self._callers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._called: float | None = None
        """When a command came first, on the clock of the loop: the first task had started by then."""

    async def open(self) -> None:
        """Listen for the other tasks; raises OSError."""
        own = self._gang.peers[self._gang.rank]
        # Others may reach this machine at an address that it does not have itself.
        host = own.host if is_loopback(f"{own.host}:{own.port}") else None
        self._server = await asyncio.start_server(self._accept, host, own.port)

    def close(self) -> None:
        """Stop listening, and hang up."""
        if self._server is not None:
            self._server.close()
        for caller in self._callers:
            caller.close()

    @property
    def callers(self) -> int:
        """How many callers it serves now."""
        return len(self._callers)

    def terminate(self) -> None:
        """Ask all commands to end."""
        for group in self._commands:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)

    async def wait_for_leader(self) -> None:
        """Return when the first task of the gang is gone, or cannot be reached."""
        with contextlib.suppress(OSError, EOFError, Unsigned, NoShell):
            wire = await connect(self._gang, self._gang.peers[LEADER], self._has_outlived_leader)
            try:
                await wire.send(FrameKind.WATCH)
                await wire.receive()  # it says nothing, so this ends when it is gone
            finally:
                wire.close()

    def _has_outlived_leader(self) -> bool:
        """Return whether the first task must have started, so that one who cannot reach it now came too late."""
        now = asyncio.get_running_loop().time()
        return self._called is not None and now - self._called > STARTED

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one caller in a task of our own: asyncio of Python 3.11 reports one of its own as failed if it is cancelled."""
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one caller."""
        self._callers.add(writer)
        with contextlib.suppress(OSError, EOFError, Unsigned, TimeoutError, ValueError):
            async with asyncio.timeout(FIRST_MESSAGE):
                wire = await Wire.agree(reader, writer, self._gang.token, calls=False)
                kind, data = await wire.receive()
            if kind is FrameKind.RUN:
                self._called = self._called or asyncio.get_running_loop().time()
                await self._run(wire, os.fsdecode(data))
            elif kind is FrameKind.WATCH:
                await reader.read()
        self._callers.discard(writer)
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
            env=self.environment,
            start_new_session=True,
        )
        out, err = cast("tuple[asyncio.StreamReader, asyncio.StreamReader]", (child.stdout, child.stderr))
        self._commands[child.pid] = None
        turn = asyncio.Lock()  # messages are numbered, so that one must be written after the other
        feeding = asyncio.create_task(_feed(wire, child))
        try:
            await asyncio.gather(
                _pass_on(wire, turn, FrameKind.OUT, out),
                _pass_on(wire, turn, FrameKind.ERR, err),
            )
            code = await child.wait()
            await wire.send(FrameKind.EXIT, str(_code_of(code)).encode())
        finally:
            feeding.cancel()
            del self._commands[child.pid]
            if child.returncode is None:  # the caller is gone, so nobody needs it
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()


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
            elif kind is FrameKind.SIGNAL and (number := int(data)) in PASSED_ON:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
    except (OSError, EOFError, Unsigned, ValueError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


async def _pass_on(wire: Wire, turn: asyncio.Lock, kind: FrameKind, stream: asyncio.StreamReader) -> None:
    """Pass one output stream of a command on."""
    while data := await stream.read(PIECE):
        async with turn:
            await wire.send(kind, data)


async def serve(gang: OwnGang, environment: Mapping[str, str], command: Sequence[str]) -> int:
    """Serve until the first task is gone. The first task runs the command meanwhile, and ends with it."""
    service = ShellService(gang, environment)
    await service.open()
    loop = asyncio.get_running_loop()
    try:
        if command and gang.rank == LEADER:
            # The agent signals all processes of a task, so the command gets it too.
            loop.add_signal_handler(signal.SIGTERM, service.terminate)
            own = {name: environment[name] for name in _OF_SCRIPT if name in environment}
            known = service.environment | own if SRUN_VARIABLE in environment else service.environment
            child = await asyncio.create_subprocess_exec(*command, env=known)
            return _code_of(await child.wait())
        waiting = asyncio.ensure_future(_for_ever() if gang.rank == LEADER else service.wait_for_leader())
        loop.add_signal_handler(signal.SIGTERM, _end, service, waiting)
        await asyncio.wait({waiting})
        return SIGNALLED + signal.SIGTERM if waiting.cancelled() else 0
    finally:
        service.close()


def _end(service: ShellService, waiting: "asyncio.Future[None]") -> None:
    """End a service that was told to: first what runs in it."""
    service.terminate()
    waiting.cancel()


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def _code_of(code: int) -> int:
    """Return an exit code as a shell shows it."""
    return code if code >= 0 else SIGNALLED - code
