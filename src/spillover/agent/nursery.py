"""The process that makes tasks and sees them end; run as a script by the agent, with the standard library only.

Why a process of its own, and a small one:

* Spawning holds the interpreter's lock, and so does talking to the server. Apart they use two cores.
* Linux counts the memory of whoever spawns into the peak of the spawned (the old image is accounted at exec). Under this
  process that floor is some 10 MB; under the agent with gRPC loaded it would be 60 MB.
* When the agent is killed this process sees its socket close, kills every task and keeps what they wrote.

Measured on two cores, `/bin/true` with both outputs in files, 2,000 tasks: `os.posix_spawn` in one thread 1,700 a second, in
two 3,100, at 600 µs of CPU each, of which 520 are the task's own. `posix_spawn` cannot change the folder, so every thread has
a working folder of its own (`unshare(CLONE_FS)`, which needs no rights) and changes into it beforehand.

Two new files for each task would cost as much as the process (20 to 500 µs each on ext4, with the state of its journal). So
each thread has a spool file for each stream. It gets the task's name when the task ended and it is not empty, or when somebody
wants to read it meanwhile; otherwise the next task uses it.

Frames are a length (4 bytes) and a marshalled list of tuples. To us: `(START, key, argv, env, folder, stem, lease)`,
`(SIGNAL, key, number)`, `(NAME, key)`. From us: `(STARTED, key, pid, birth, at)`, `(NAMED, key)`,
`(ENDED, key, spawned, code, signal, at, ran, cpu, peak, message)`. Times are monotonic nanoseconds.
"""

# This runs for every task, where pathlib would cost more than the work, and the process stays small without it:
# ruff: noqa: PTH103, PTH104, PTH108, PTH112, PTH117, PTH118, PTH120, PTH123, PTH208

import contextlib
import ctypes
import errno
import fcntl
import marshal
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

START, SIGNAL, NAME = 0, 1, 2
STARTED, NAMED, ENDED = 0, 1, 2

STREAMS: Final = ("out", "err")
LAST_WAIT: Final = 5.0
"""Seconds that a task may take to die after KILL before we go without it."""

ANNOUNCE_AFTER: Final = 0.005
"""Seconds after which a start is told. Most messages and half the wake-ups of short tasks are saved by it."""

_SHELL_CODES: Final = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EACCES: 126, errno.ENOEXEC: 126}
"""Exit codes that a shell has for a program that is not there or cannot be run."""
_SPOOL_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC
_HEADER = struct.Struct("<I")
_CLONE_FS: Final = 0x200
_PR_SET_CHILD_SUBREAPER: Final = 36
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored by Python, but not by the tasks


def pack(messages: list[tuple[Any, ...]]) -> bytes:
    """Messages as one frame."""
    body = marshal.dumps(messages)
    return _HEADER.pack(len(body)) + body


class Frames:
    """Turns what comes from a socket back into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Any, ...]]:
        """All messages that are whole by now."""
        buffer = self._buffer
        buffer += data
        messages: list[tuple[Any, ...]] = []
        at = 0
        while len(buffer) - at >= _HEADER.size:
            end = at + _HEADER.size + _HEADER.unpack_from(buffer, at)[0]
            if len(buffer) < end:
                break
            # Both ends are our own processes on one socket pair; nobody else can write here.
            messages += marshal.loads(bytes(buffer[at + _HEADER.size : end]))  # noqa: S302
            at = end
        del buffer[:at]
        return messages


def birth_of(pid: int) -> int:
    """When a process was made, in clock ticks since the machine started; 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def environ_of(pid: int) -> list[bytes]:
    """The environment that a process was started with; empty if it is gone or not ours to see."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return environ.read().split(b"\0")
    except OSError:
        return []


def _group_of(pid: int) -> int:
    """The process group of a process; 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


class _Task:
    """One task, shared by the thread that runs it and the one that listens."""

    __slots__ = (
        "argv",
        "begun",
        "env",
        "folder",
        "key",
        "lease",
        "lock",
        "named",
        "pid",
        "spools",
        "stem",
        "stopped",
    )

    def __init__(
        self, key: int, argv: list[str], env: dict[str, str], folder: str, stem: str, lease: str
    ) -> None:
        self.key = key
        self.argv = argv
        self.env = env
        self.folder = folder
        self.stem = stem
        """Where its output goes in the end, without the ending for the stream."""
        self.lease = lease
        self.lock = threading.Lock()
        self.pid = 0
        """Of its leader; 0 before it is made and after it was reaped, when the number may be another's."""
        self.begun = 0
        """Monotonic nanoseconds at which its process was made."""
        self.stopped = False
        """Whether it is to be stopped before it is made."""
        self.spools: tuple[str, ...] = ()
        """The spool files it writes to; empty before and after."""
        self.named: set[int] = set()
        """Streams whose output has the task's own name already."""


class Nursery:
    """All running tasks, and the threads that wait for them."""

    def __init__(self, channel: socket.socket, output: str) -> None:
        self._channel = channel
        self._output = output
        self._sending = threading.Lock()
        self._queue: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._tasks: dict[int, _Task] = {}
        self._threads = 0
        self._newborn: deque[_Task] = deque()
        """Made, and not announced yet."""
        self._announcing = threading.Event()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Orphans become children of the first thread, which makes none of its own. Reading this list costs a microsecond.
        self._orphans = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        self._sweeping = threading.Lock()
        self._null = os.open("/dev/null", os.O_RDONLY)
        os.makedirs(f"{output}/spool", mode=0o700, exist_ok=True)
        for left in os.listdir(f"{output}/spool"):
            os.unlink(f"{output}/spool/{left}")

    def serve(self) -> None:
        """Do what the agent says until it is gone; then stop everything."""
        threading.Thread(target=self._announce, daemon=True).start()
        frames = Frames()
        with contextlib.suppress(ConnectionError):
            while data := self._channel.recv(1 << 18):
                for message in frames.feed(data):
                    self._obey(message)
        tasks = list(self._tasks.values())
        for task in tasks:
            self._signal(task, signal.SIGKILL)
        until = time.monotonic() + LAST_WAIT
        while self._tasks and time.monotonic() < until:
            time.sleep(0.005)

    def _obey(self, message: tuple[Any, ...]) -> None:
        """One message of the agent."""
        if message[0] == START:
            task = _Task(*message[1:])
            self._tasks[task.key] = task
            if len(self._tasks) > self._threads:
                # Where the system allows no more threads, the task waits for one that is there.
                with contextlib.suppress(RuntimeError):
                    threading.Thread(target=self._work, args=(self._threads,), daemon=True).start()
                    self._threads += 1
            self._queue.put(task)
        elif (found := self._tasks.get(message[1])) is not None:
            if message[0] == SIGNAL:
                self._signal(found, message[2])
            else:
                # Without a name it cannot be read while it runs; at its end this is tried again, and told.
                with contextlib.suppress(OSError):
                    self._name(found, range(len(STREAMS)))
        if message[0] == NAME:
            self._tell((NAMED, message[1]))

    def _signal(self, task: _Task, number: int) -> None:
        """Signal all of a task, or see to it that it is never made."""
        with task.lock:
            task.stopped = True
            if task.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.pid, number)

    def _name(self, task: _Task, streams: Iterable[int]) -> None:
        """Give output of a task its own name."""
        with task.lock:
            for stream in streams:
                if not task.spools or stream in task.named:
                    continue
                os.makedirs(os.path.dirname(task.stem), mode=0o700, exist_ok=True)
                task.named.add(stream)
                name = f"{task.stem}.{STREAMS[stream]}"
                os.rename(task.spools[stream], name)
                os.utime(name)  # it is kept for some time from the end, not from the last line

    def _tell(self, *messages: tuple[Any, ...]) -> None:
        """Send messages to the agent; nobody listens once it is gone."""
        frame = pack(list(messages))
        with self._sending, contextlib.suppress(OSError):
            self._channel.sendall(frame)

    def _announce(self) -> None:
        """Tell of tasks that have run for a moment; of those that are gone by then, their end says all."""
        while True:
            self._announcing.wait()
            time.sleep(ANNOUNCE_AFTER)
            self._announcing.clear()
            alive = []
            while self._newborn:
                task = self._newborn.popleft()
                with task.lock:
                    if task.pid:
                        alive.append((STARTED, task.key, task.pid, birth_of(task.pid), task.begun))
            if alive:
                self._tell(*alive)

    # --- one thread for each running task

    def _work(self, slot: int) -> None:
        """Run one task after the other."""
        self._libc.unshare(_CLONE_FS)
        serial, spools, files = 0, ["", ""], [-1, -1]
        while True:
            task = self._queue.get()
            try:
                for stream, name in enumerate(STREAMS):
                    if files[stream] < 0:
                        serial += 1
                        spools[stream] = f"{self._output}/spool/{slot}-{serial}.{name}"
                        files[stream] = os.open(spools[stream], _SPOOL_FLAGS, 0o600)
                message, clean = self._run(task, tuple(spools), files)
            except Exception as error:  # noqa: BLE001 - whatever it is, the agent must hear of the end
                message, clean = _failed(task, f"could not be started: {error}"), False
            try:
                self._name(task, [n for n, file in enumerate(files) if file >= 0 and os.fstat(file).st_size])
            except OSError as error:
                message, clean = (*message[:-1], f"its output could not be kept: {error}"), False
            with task.lock:
                task.spools = ()
            for stream, file in enumerate(files):
                if file >= 0 and (stream in task.named or not clean):
                    os.close(file)
                    files[stream] = -1
            self._tasks.pop(task.key, None)
            self._tell(message)

    def _run(self, task: _Task, spools: tuple[str, ...], files: list[int]) -> tuple[tuple[Any, ...], bool]:
        """Make the process, wait for its end and clear up; the second value says that nothing of it is left."""
        try:
            if not os.path.isabs(task.folder):
                return _failed(task, f"workdir {task.folder!r}: must begin with '/'"), True
            os.chdir(task.folder)
        except OSError as error:
            return _failed(task, f"workdir {task.folder!r}: {error.strerror}"), True
        program = _find(task.argv[0], task.env.get("PATH", os.defpath))
        actions = [(os.POSIX_SPAWN_DUP2, self._null, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files, 1)]
        with task.lock:
            if task.stopped:
                return _failed(task, ""), True
            task.spools = spools
            begun = time.monotonic_ns()
            try:
                pid = os.posix_spawn(
                    program, task.argv, task.env, file_actions=actions, setsid=True, setsigdef=_RESET
                )
            except (OSError, ValueError) as error:
                number = (error.errno or 0) if isinstance(error, OSError) else 0
                code = _SHELL_CODES.get(number)
                if code is None:
                    return _failed(task, f"could not be started: {error}"), True
                # A program that is not there is the job's own mistake: it ends as it would in a shell.
                os.write(files[1], f"{task.argv[0]}: {os.strerror(number)}\n".encode(errors="replace"))
                return (ENDED, task.key, True, code, None, time.monotonic_ns(), 0, 0, 0, ""), True
            task.pid = pid
            task.begun = begun
        self._newborn.append(task)
        self._announcing.set()
        # The leader stays a zombie until the rest of its group is killed, so that its number cannot become another's.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ended = time.monotonic_ns()
        with task.lock:
            task.pid = 0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
        clean = self._sweep(task.lease, pid)
        code = os.waitstatus_to_exitcode(status)
        cpu = int((used.ru_utime + used.ru_stime) * 1e9)
        ending = (code, None) if code >= 0 else (None, -code)
        return (ENDED, task.key, True, *ending, ended, ended - begun, cpu, used.ru_maxrss * 1024, ""), clean

    def _sweep(self, lease: str, leader: int) -> bool:
        """Kill what a task left behind, wherever it fled, and see it gone; False if something will not die."""
        if not os.pread(self._orphans, 64, 0):
            return True
        mark = f"SPILL_LEASE={lease}".encode()
        until = time.monotonic() + LAST_WAIT
        # What dies has no environment any more, so it is remembered until it is reaped. Its children come to us before that.
        mine: set[int] = set()
        with self._sweeping:
            while True:
                adopted = self._adopted()
                mine.intersection_update(adopted)
                for pid in adopted:
                    if pid not in mine and (_group_of(pid) == leader or mark in environ_of(pid)):
                        mine.add(pid)
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.kill(pid, signal.SIGKILL)
                if not mine:
                    return True
                if time.monotonic() > until:
                    return False
                time.sleep(0.001)

    def _adopted(self) -> list[int]:
        """Orphans of all tasks that are still alive; the dead ones are reaped on the way."""
        listed = b""
        while part := os.pread(self._orphans, 1 << 16, len(listed)):
            listed += part
        alive = []
        for pid in map(int, listed.split()):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    alive.append(pid)
        return alive


def _failed(task: _Task, message: str) -> tuple[Any, ...]:
    """No process was made."""
    return (ENDED, task.key, False, None, None, time.monotonic_ns(), 0, 0, 0, message)


def _find(program: str, path: str) -> str:
    """The file that a program's name stands for, looked up as a shell does, in the task's own PATH."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return ""  # which is not found either


def main() -> None:
    """Serve on the socket and under the lock that the agent handed down: `nursery.py SOCKET LOCK OUTPUT`."""
    channel, lock, output = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.set_inheritable(channel, False)
    os.set_inheritable(lock, False)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    Nursery(socket.socket(fileno=channel), output).serve()
    os._exit(0)  # threads that wait for a task that cannot die would keep us


if __name__ == "__main__":
    main()
