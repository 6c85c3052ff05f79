"""Tasks as the agent sees them: start, signal, and hear of their end; and the end of those from an earlier life."""

import asyncio
import contextlib
import fcntl
import operator
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from spillover.agent.isolation import Isolation, choose, remove_groups
from spillover.agent.nursery import frames
from spillover.agent.nursery.procfs import all_processes, birth_of, environ_of
from spillover.agent.nursery.workshop import remove
from spillover.agent.values import Exit, Task
from spillover.core.events import Lease, Usage
from spillover.model.ids import split_member
from spillover.model.job import Argv, Shell, Work

BASE: Final = ("PATH", "HOME", "USER", "LANG")
"""What a task sees of the agent's own environment."""
NURSERY_LOCK: Final = "nursery.lock"
PATIENCE: Final = 10.0
"""Seconds that the nursery of an earlier life has to stop its tasks before it is killed."""
NURSERIES: Final = 4
"""Processes that make tasks, at the most; fewer if fewer tasks run at a time."""
OUTPUT_LIMIT: Final = 64 << 20
"""Bytes that are kept of each stream of a task."""
_RUN: Final = f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); from spillover.agent.nursery.__main__ import main; main()"
"""How an interpreter that knows nothing of our packages becomes the nursery."""


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


class Processes:
    """The running tasks of this agent, in a nursery."""

    def __init__(
        self,
        folder: Path,
        cluster: str,
        seen: Callable[[list[Seen]], None],
        died: Callable[[], None],
        *,
        isolation: str = "auto",
        output_limit: int = OUTPUT_LIMIT,
        threads: int = 1,
    ) -> None:
        self._folder = folder
        self._seen = seen
        self._died = died
        self._wanted = isolation
        self._output_limit = output_limit
        self._threads = threads
        """Tasks that are prepared for before there are any."""
        self._output = f"{folder}/output"
        self._own = {"SPILL_CLUSTER": cluster, "SPILL_AGENT": str(folder)}
        self.isolation = Isolation("none")
        """What tasks are kept apart by, once it is open."""
        self._nurseries: list[_Nursery] = []
        self._open = False
        self._early: list[tuple[Lease, Task]] = []
        """Tasks from before it was open."""
        self._keys: dict[Lease, int] = {}
        self._tasks: dict[int, tuple[Lease, _Nursery]] = {}
        self._naming: dict[int, list[asyncio.Future[None]]] = {}
        self._next = 0

    async def open(self) -> None:
        """Start the nursery; raises OSError if tasks cannot be isolated as they are to be."""
        self.isolation = await asyncio.to_thread(choose, self._wanted, self._folder)
        await asyncio.to_thread(self._clear)
        count = max(1, min(NURSERIES, self._threads))
        base = {name: value for name in BASE if (value := os.environ.get(name)) is not None}
        setups = [
            {
                "output": self._output,
                "spool": f"{self._output}/spool/{number}",
                "scratch": f"{self._folder}/scratch/{number}",
                "limit": self._output_limit,
                "isolation": (self.isolation.kind, self.isolation.branch(number)),
                "env": base | self._own,
            }
            for number in range(count)
        ]
        lock = os.open(self._folder / NURSERY_LOCK, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
        try:
            self._nurseries = list(
                await asyncio.gather(
                    *(_Nursery.start(setup, lock, self._heard, self._lost) for setup in setups)
                )
            )
        finally:
            os.close(lock)
        for number, nursery in enumerate(self._nurseries):
            nursery.grow(len(range(number, self._threads, count)))
        self._open = True
        early, self._early = self._early, []
        for lease, task in early:
            self._send(lease, task)

    def _clear(self) -> None:
        """Remove what an earlier life left in folders that are of no use to anybody."""
        for folder in (f"{self._output}/spool", f"{self._folder}/scratch"):
            remove(folder)
        for aside in self._folder.glob("large-*"):
            aside.unlink(missing_ok=True)

    async def close(self) -> None:
        """End the nursery, and with it what still runs."""
        self._died = lambda: None
        for nursery in self._nurseries:
            nursery.close()
        for nursery in self._nurseries:
            await asyncio.to_thread(nursery.child.wait)
        if self._nurseries:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove_groups, self._folder)

    def start(self, lease: Lease, task: Task) -> None:
        """Make a process; its start and end will be seen."""
        self._next += 1
        self._keys[lease] = self._next
        if self._open:
            self._send(lease, task)
        else:
            self._early.append((lease, task))

    def _send(self, lease: Lease, task: Task) -> None:
        """Hand a task to the nursery that has the fewest."""
        key = self._keys[lease]
        nursery = min(self._nurseries, key=_busy)
        self._tasks[key] = (lease, nursery)
        work = task.work
        argv = ["/bin/sh", "-c", work.run] if isinstance(work, Shell) else list(words_of(work))
        job, attempt = lease.job, lease.attempt
        mark = f"{job}:{attempt}:{lease.task}:{lease.seq}"
        env = task.env | self._own
        env["SPILL_JOB_ID"] = job
        env["SPILL_ATTEMPT"] = str(attempt)
        env["SPILL_LEASE"] = mark
        if "." in job and (member := split_member(job)) is not None:
            env["SPILL_ARRAY_INDEX"] = str(member[1])
        stem = f"{self._output}/{job[:2]}/{job}.{attempt}.{lease.task}"
        need = task.need
        data = frames.pack((key, argv, env, task.workdir, stem, mark, need.memory, need.cpu))
        if len(data) > frames.LARGEST:
            data = self._put_aside(key, data)
        nursery.take(data)

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Signal all processes of a task."""
        if (key := self._keys.get(lease)) is not None:
            if key in self._tasks:
                number = int(signal.SIGKILL if kill else signal.SIGTERM)
                self._tasks[key][1].say((frames.SIGNAL, key, number))
            else:
                self._early = [each for each in self._early if each[0] != lease]
                del self._keys[lease]
                end: list[Seen] = [Ended(lease, Exit(time.monotonic_ns(), spawned=False))]
                asyncio.get_running_loop().call_soon(self._seen, end)

    async def name_output(self, lease: Lease) -> None:
        """Return once the output of a task can be found under its name; an empty one of an ended task has none."""
        if (key := self._keys.get(lease)) is None or key not in self._tasks:
            return
        named: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._naming.setdefault(key, []).append(named)
        self._tasks[key][1].say((frames.NAME, key))
        await named

    def _put_aside(self, key: int, data: bytes) -> bytes:
        """Put work that is too large for a message into a file; what to send instead."""
        path = self._folder / f"large-{key}"
        path.write_bytes(data)
        return frames.pack(str(path))

    # --- the nursery speaks

    def _heard(self, messages: list[bytes]) -> None:
        """Pass on what it saw."""
        seen: list[Seen] = []
        for data in messages:
            message = frames.unpack(data)
            kind, key = message[0], message[1]
            if kind == frames.ENDED:
                spawned, code, number, at, ran, cpu, peak, starved, text = message[2:]
                lease, nursery = self._tasks.pop(key)
                nursery.running -= 1
                del self._keys[lease]
                usage = Usage(ran, cpu, peak)
                seen.append(Ended(lease, Exit(at, spawned, code, number, usage, text, out_of_memory=starved)))
            elif kind == frames.STARTED:
                if key in self._tasks:  # or its end was faster
                    seen.append(Spawned(self._tasks[key][0], *message[2:]))
            else:
                self._answer_names(key)
        if seen:
            self._seen(seen)

    def _lost(self) -> None:
        """A nursery is gone, by our will or not; with it go all."""
        for key in list(self._naming):
            self._answer_names(key)
        died, self._died = self._died, lambda: None
        died()

    def _answer_names(self, key: int) -> None:
        """Whoever waits for a name may go on."""
        for named in self._naming.pop(key, ()):
            if not named.done():
                named.set_result(None)


class _Nursery:
    """One of several: a process has one lock for all its threads, so a second one spawns twice as fast."""

    def __init__(self, child: "subprocess.Popen[bytes]", control: "_Channel", work: "_Channel") -> None:
        self.child = child
        self._control = control
        self._work = work
        self._threads = 0
        self.running = 0
        """Tasks that it has."""

    @classmethod
    async def start(
        cls,
        setup: dict[str, Any],
        lock: int,
        heard: Callable[[list[bytes]], None],
        lost: Callable[[], None],
    ) -> Self:
        """Start its process."""
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        theirs = [each.fileno() for _, each in pairs]
        try:
            # -I and -S keep it small: none of our packages but itself, no site. A session of its own keeps Ctrl-C away from it.
            child = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-I", "-S", "-c", _RUN, *map(str, (*theirs, lock))],
                stdin=subprocess.DEVNULL,
                pass_fds=(*theirs, lock),
                start_new_session=True,
            )
        finally:
            for _, each in pairs:
                each.close()
        nursery = cls(child, _Channel(pairs[0][0], heard, lost), _Channel(pairs[1][0], heard, lambda: None))
        nursery.say((frames.SETUP, setup))
        return nursery

    def say(self, message: tuple[Any, ...]) -> None:
        """Tell it something."""
        self._control.send(frames.pack(message))

    def take(self, data: bytes) -> None:
        """Hand it a task."""
        self.running += 1
        self.grow(self.running)
        self._work.send(data)

    def grow(self, threads: int) -> None:
        """Have it ready for so many tasks at a time."""
        if threads > self._threads:
            self._threads = threads
            self.say((frames.THREADS, threads))

    def close(self) -> None:
        """Let go of it, by which it ends."""
        self._work.close()
        self._control.close()


_busy = operator.attrgetter("running")


class _Channel:
    """Our end of a pair of sockets that keeps messages apart."""

    def __init__(
        self, end: socket.socket, heard: Callable[[list[bytes]], None], lost: Callable[[], None]
    ) -> None:
        self._socket = end
        self._heard = heard
        self._lost = lost
        self._unsent: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()
        end.setblocking(False)
        self._loop.add_reader(end, self._read)

    def send(self, data: bytes) -> None:
        """Send a message, at once if there is room."""
        if not self._unsent:
            try:
                self._socket.send(data)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._write)
            except OSError:
                return  # it is gone, which is read as well
            else:
                return
        self._unsent.append(data)

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while self._unsent:
                self._socket.send(self._unsent[0])
                self._unsent.popleft()
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        """Take all that is there."""
        messages: list[bytes] = []
        receive, over = self._socket.recv, False
        try:
            while data := receive(frames.LARGEST):
                messages.append(data)
            over = True
        except BlockingIOError:
            pass
        except OSError:
            over = True
        if messages:
            self._heard(messages)
        if over:
            self.close()
            self._lost()

    def close(self) -> None:
        """Let go of it."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()


def words_of(work: Work) -> tuple[str, ...]:
    """The words of work that is a program with its arguments."""
    if not isinstance(work, Argv):
        raise TypeError(f"work of kind {type(work).__name__} is no process of its own")
    return work.command


def stem_of(output: Path, job: str, attempt: int, task: int) -> Path:
    """Where the output of a task is, without the ending for its stream."""
    return output / job[:2] / f"{job}.{attempt}.{task}"


def end_earlier_life(folder: Path, started: Iterable[tuple[int, int]]) -> int:
    """Kill what is left of the agent that used this folder before; the number of processes that were."""
    _await_nursery(folder)
    killed = remove_groups(folder)
    for pid, birth in started:
        # A process of another birth has only inherited the number.
        if birth and birth_of(pid) == birth:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    mark = f"SPILL_AGENT={folder}".encode()
    until = time.monotonic() + PATIENCE
    while left := [pid for pid in all_processes() if pid != os.getpid() and mark in environ_of(pid)]:
        if time.monotonic() > until:
            raise OSError(f"processes {left} of an earlier agent in {folder} will not die")
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.01)
    return killed


def _await_nursery(folder: Path) -> None:
    """Wait until earlier nurseries are gone; they kill their tasks by themselves when their agent dies."""
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
                for line in os.pread(lock, 4096, 0).splitlines():
                    pid, birth = map(int, line.split())
                    if birth_of(pid) == birth:  # the very process that wrote this
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
    finally:
        os.close(lock)
