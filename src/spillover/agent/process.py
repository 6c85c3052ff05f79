"""Tasks as the agent sees them: start, signal, and hear of their end; and the end of those from an earlier life."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from spillover.agent import nursery
from spillover.agent.values import Exit, Task
from spillover.core.events import Lease, Usage
from spillover.model.ids import split_member
from spillover.model.job import Shell

BASE: Final = ("PATH", "HOME", "USER", "LANG", "TMPDIR")
"""What a task sees of the agent's own environment."""
NURSERY_LOCK: Final = "nursery.lock"
PATIENCE: Final = 10.0
"""Seconds that the nursery of an earlier life has to stop its tasks before it is killed."""


class Spawned(Struct, frozen=True):
    """A process was made."""

    lease: Lease
    pid: int
    birth: int
    """Clock ticks since the machine started: tells the process from a later one of the same number."""
    at: int
    """Monotonic nanoseconds."""


class Ended(Struct, frozen=True):
    """A process and all its children are gone, or none was made."""

    lease: Lease
    end: Exit


Seen = Spawned | Ended


class Processes(asyncio.Protocol):
    """The running tasks of this agent, in a nursery."""

    def __init__(
        self,
        folder: Path,
        cluster: str,
        seen: Callable[[list[Seen]], None],
        died: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._seen = seen
        self._died = died
        self._base = {name: value for name in BASE if (value := os.environ.get(name)) is not None}
        self._base |= {"SPILL_CLUSTER": cluster, "SPILL_AGENT": str(folder)}
        self._frames = nursery.Frames()
        self._transport: asyncio.Transport | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._outgoing: list[tuple[Any, ...]] = []
        self._keys: dict[Lease, int] = {}
        self._leases: dict[int, Lease] = {}
        self._naming: dict[int, list[asyncio.Future[None]]] = {}
        self._next = 0

    async def open(self) -> None:
        """Start the nursery."""
        ours, theirs = socket.socketpair()
        lock = os.open(self._folder / NURSERY_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            # -I and -S keep it small: none of our packages, no site. A session of its own keeps Ctrl-C away from it.
            output = str(self._folder / "output")
            words = [sys.executable, "-I", "-S", nursery.__file__, str(theirs.fileno()), str(lock), output]
            self._child = await asyncio.to_thread(
                subprocess.Popen,
                words,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), lock),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(lock)
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)

    async def close(self) -> None:
        """End the nursery, and with it what still runs."""
        if self._transport is not None:
            self._died = lambda: None
            self._flush()
            self._transport.close()
        if self._child is not None:
            await asyncio.to_thread(self._child.wait)

    def start(self, lease: Lease, task: Task) -> None:
        """Make a process; its start and end will be seen."""
        self._next += 1
        key = self._next
        self._keys[lease], self._leases[key] = key, lease
        work = task.work
        argv = ["/bin/sh", "-c", work.run] if isinstance(work, Shell) else list(work.command)
        mark = mark_of(lease)
        env = self._base | task.env
        env |= {"SPILL_JOB_ID": lease.job, "SPILL_ATTEMPT": str(lease.attempt), "SPILL_LEASE": mark}
        env["SPILL_CLUSTER"], env["SPILL_AGENT"] = self._base["SPILL_CLUSTER"], self._base["SPILL_AGENT"]
        if (member := split_member(lease.job)) is not None:
            env["SPILL_ARRAY_INDEX"] = str(member[1])
        stem = str(stem_of(self._folder / "output", lease.job, lease.attempt, lease.task))
        self._send((nursery.START, key, argv, env, task.workdir, stem, mark))

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Signal all processes of a task."""
        if (key := self._keys.get(lease)) is not None:
            self._send((nursery.SIGNAL, key, int(signal.SIGKILL if kill else signal.SIGTERM)))

    async def name_output(self, lease: Lease) -> None:
        """Return once the output of a task can be found under its name; an empty one of an ended task has none."""
        if (key := self._keys.get(lease)) is None:
            return
        named: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._naming.setdefault(key, []).append(named)
        self._send((nursery.NAME, key))
        await named

    def _send(self, message: tuple[Any, ...]) -> None:
        """Send a message, together with all others of this turn of the loop."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(message)

    def _flush(self) -> None:
        """Write what was gathered."""
        if self._outgoing and self._transport is not None:
            self._transport.write(nursery.pack(self._outgoing))
            self._outgoing = []

    # --- the nursery speaks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket to the nursery is ours."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Pass on what it saw."""
        seen: list[Seen] = []
        for message in self._frames.feed(data):
            kind, key = message[0], message[1]
            if kind == nursery.STARTED:
                if key in self._leases:  # or its end was faster
                    seen.append(Spawned(self._leases[key], *message[2:]))
            elif kind == nursery.NAMED:
                self._answer_names(key)
            else:
                spawned, code, number, at, ran, cpu, peak, text = message[2:]
                lease = self._leases.pop(key)
                del self._keys[lease]
                seen.append(Ended(lease, Exit(at, spawned, code, number, Usage(ran, cpu, peak), text)))
        if seen:
            self._seen(seen)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own form
        """The nursery is gone, by our will or not."""
        self._transport = None
        for key in list(self._naming):
            self._answer_names(key)
        self._died()

    def _answer_names(self, key: int) -> None:
        """Whoever waits for a name may go on."""
        for named in self._naming.pop(key, ()):
            if not named.done():
                named.set_result(None)


def mark_of(lease: Lease) -> str:
    """How a lease is written into the environment of its processes."""
    return f"{lease.job}:{lease.attempt}:{lease.task}:{lease.seq}"


def stem_of(output: Path, job: str, attempt: int, task: int) -> Path:
    """Where the output of a task is, without the ending for its stream."""
    return output / job[:2] / f"{job}.{attempt}.{task}"


def end_earlier_life(folder: Path, started: Iterable[tuple[int, int]]) -> int:
    """Kill what is left of the agent that used this folder before; the number of processes that were."""
    _await_nursery(folder)
    killed = 0
    for pid, birth in started:
        # A process of another birth has only inherited the number.
        if birth and nursery.birth_of(pid) == birth:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    mark = f"SPILL_AGENT={folder}".encode()
    until = time.monotonic() + PATIENCE
    while left := [pid for pid in _processes() if pid != os.getpid() and mark in nursery.environ_of(pid)]:
        if time.monotonic() > until:
            raise OSError(f"processes {left} of an earlier agent in {folder} will not die")
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.01)
    return killed


def _processes() -> list[int]:
    """All processes of this machine that we can see."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _await_nursery(folder: Path) -> None:
    """Wait until the earlier nursery is gone; it kills its tasks by itself when its agent dies."""
    lock = os.open(folder / NURSERY_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                return
            if time.monotonic() > until:
                # Whoever holds the lock wrote its number there, so it is the very process.
                holder = os.pread(lock, 32, 0).strip()
                if holder.isdigit():
                    os.kill(int(holder), signal.SIGKILL)
            time.sleep(0.005)
    finally:
        os.close(lock)
