"""Runs a command beside a task for a client: passes its streams on, and ends it when the client is gone."""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
from typing import Final

from spillover.agent.nursery.procfs import all_processes
from spillover.agent.sessions.descriptors import Descriptor, exited
from spillover.agent.sessions.places import Entry, started
from spillover.agent.sessions.wire import SessionWire
from spillover.ports.cluster import Exec
from spillover.wire.relay import Frame, FrameKind, ended

GRACE: Final = 1.0
"""Seconds between HUP or TERM and KILL for a command whose client is gone."""
SIGNALS: Final = frozenset(range(1, 32))


class BesideTask:
    """A command beside a task."""

    def __init__(self, entry: Entry, asked: Exec, wire: SessionWire) -> None:
        """Start it; raises OSError."""
        self._wire = wire
        self._terminal = asked.terminal
        known = [str(entry.pid), str(entry.birth), "1" if asked.terminal else "0", asked.term]
        words = started("entering", [*known, *entry.groups, "--", *asked.command])
        ours, theirs = self._streams(asked)
        try:
            self._child = subprocess.Popen(
                words, stdin=theirs[0], stdout=theirs[1], stderr=theirs[2], start_new_session=True
            )
        except BaseException:
            for file in set(ours):
                os.close(file)
            raise
        finally:
            for file in set(theirs):
                os.close(file)
        self._input = Descriptor(ours[0])
        self._outputs = (
            [(self._input, FrameKind.DATA)]
            if asked.terminal
            else [(Descriptor(ours[1]), FrameKind.DATA), (Descriptor(ours[2]), FrameKind.ERRORS)]
        )

    @staticmethod
    def _streams(asked: Exec) -> tuple[tuple[int, ...], tuple[int, int, int]]:
        """Return our ends of the standard streams, and those of the command."""
        if asked.terminal:
            master, slave = os.openpty()
            _set_size(master, asked.rows, asked.columns)
            return (master,), (slave, slave, slave)
        given, out, err = os.pipe(), os.pipe(), os.pipe()
        return (given[1], out[0], err[0]), (given[0], out[1], err[1])

    async def run(self) -> None:
        """Pass everything on until the command has ended; raise SessionOver if the client is gone before."""
        printing = [asyncio.create_task(self._print(*each)) for each in self._outputs]
        typing = asyncio.create_task(self._type())
        ending = asyncio.create_task(exited(self._child.pid))
        try:
            await self._wire.send(Frame(FrameKind.READY))
            while not ending.done():
                waits = {ending, typing} if not typing.done() else {ending}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if typing.done():
                    typing.result()
            for output, _ in self._outputs:
                output.finish()
            await asyncio.gather(*printing)
            await self._wire.send(ended(self._code()))
        finally:
            for task in (*printing, typing, ending):
                task.cancel()
            await asyncio.gather(*printing, typing, ending, return_exceptions=True)

    async def close(self) -> None:
        """End what is left of it."""
        pid = self._child.pid
        if not self._has_ended():
            self._signal(signal.SIGHUP if self._terminal else signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await exited(pid)
        # It stays a zombie until `wait`, so that the id of its session cannot be reused.
        for member in _session(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        await asyncio.to_thread(self._child.wait)
        for file in {self._input, *(output for output, _ in self._outputs)}:
            file.close()

    async def _print(self, output: Descriptor, kind: FrameKind) -> None:
        """Pass output on."""
        while data := await output.read():
            await self._wire.send(Frame(kind, data))

    async def _type(self) -> None:
        """Obey the client; raise SessionOver when it is gone."""
        while True:
            for frame in await self._wire.receive():
                match frame.kind:
                    case FrameKind.DATA:
                        await self._input.write(frame.data)
                    case FrameKind.END if not self._terminal:
                        self._input.close()
                    case FrameKind.RESIZE if self._terminal:
                        _set_size(self._input.file, *frame.size)
                    case FrameKind.SIGNAL if frame.number in SIGNALS:
                        self._signal(frame.number)
                    case _:
                        pass

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _code(self) -> int:
        """Return the exit code of the command, negative for a signal, once it has ended. It stays a zombie."""
        found = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        if found is None:
            return 0
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _signal(self, number: int) -> None:
        """Signal the command, and what runs in the foreground of its terminal."""
        groups = {self._child.pid}
        if self._terminal:
            with contextlib.suppress(OSError):
                groups.add(os.tcgetpgrp(self._input.file))
        for group in groups - {0}:
            with contextlib.suppress(OSError):
                os.killpg(group, number)


def _set_size(file: int, rows: int, columns: int) -> None:
    """Set the size of a terminal, if it is known."""
    if rows and columns:
        with contextlib.suppress(OSError):
            fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _session(leader: int) -> list[int]:
    """Return the living members of a session, except for its leader's zombie."""
    found = []
    for pid in all_processes():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found
