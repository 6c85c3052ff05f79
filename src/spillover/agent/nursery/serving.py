"""Starts tasks, waits for their end and cleans up after them.

Measured on two cores, with `/bin/true`, both outputs in files and 2,000 tasks: `os.posix_spawn` starts 1,700 tasks a
second in one thread and 3,100 in two. Each takes 600 µs of CPU, of which the task itself uses 520. `posix_spawn` cannot
change the folder. So every thread has a working folder of its own (`unshare(CLONE_FS)`, which needs no privileges) and
changes into the folder of the task first.

Each thread has its own socket, from which it takes the next task and to which it reports ends. Between two tasks it
needs no other thread.
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spillover.agent.nursery.affinity import Affinity
from spillover.agent.nursery.cgroups import V1, Tree
from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.frames import (
    LARGEST,
    NAME,
    NAMED,
    NOTIFY,
    RECALL,
    REFUSED,
    RETURNED,
    SHARE,
    SIGNAL,
    STREAMS,
    THREAD,
    pack,
    unpack,
)
from spillover.agent.nursery.holes import BoundedFile
from spillover.agent.nursery.marks import Marks
from spillover.agent.nursery.notifying import notify
from spillover.agent.nursery.orphans import LAST_WAIT, Orphans
from spillover.agent.nursery.spawners import Spawner
from spillover.agent.nursery.start_times import set_times
from spillover.agent.nursery.task import NurseryTask
from spillover.agent.nursery.thread_files import RESTART, ThreadFiles, open_streams, remove
from spillover.agent.nursery.watching import MemoryWatch

_SHELL_CODES: Final = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EACCES: 126, errno.ENOEXEC: 126}
"""Exit codes that a shell uses for a program that is missing or cannot be run."""
_CLONE_FS: Final = 0x200
STDIN: Final = -1
"""The number of standard input beside those of `STREAMS`."""
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores these signals, tasks should not


class Setup:
    """The settings that the agent sends once."""

    __slots__ = ("env", "limit", "output", "scratch", "spool", "tree", "watch_memory")

    def __init__(self, settings: dict[str, Any]) -> None:
        self.output: str = settings["output"]
        self.spool: str = settings["spool"]
        self.scratch: str = settings["scratch"]
        self.limit: int = settings["limit"]
        """Most bytes to keep of each stream."""
        self.env: dict[str, str] = settings["env"]
        """Environment of every task."""
        kind, folders = settings["isolation"]
        self.tree = Tree(kind, folders) if folders else None
        self.watch_memory = kind != "none" and not (self.tree is not None and self.tree.limits_memory)
        """Whether to poll memory, because the kernel does not limit it."""


class Nursery:
    """All running tasks, and the threads that wait for them."""

    def __init__(self, control: socket.socket, marks: Marks, setup: Setup) -> None:
        self._control = control
        self._marks = marks
        self._setup = setup
        self._tasks: dict[int, NurseryTask] = {}
        self._early: set[int] = set()
        """Tasks to stop that no thread has begun."""
        self._closing = False
        self._spawners: dict[int, Spawner] = {}
        """By the number of the thread."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._affinity = Affinity()
        self._orphans = Orphans(self._libc, self._tasks)
        self._watch = MemoryWatch(control, self._tasks, self._spawners, setup.limit, setup.watch_memory)
        self._newborn: deque[NurseryTask] = self._watch.newborn
        self._null = os.open("/dev/null", os.O_RDONLY)
        for folder in (setup.spool, setup.scratch):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    def serve(self) -> None:
        """Carry out messages until the agent is gone; then stop everything."""
        threading.Thread(target=self._watch.run, daemon=True).start()
        with contextlib.suppress(ConnectionError):
            while True:
                # A task that inherited our sockets would keep the agent from seeing our end.
                data, files, _, _ = socket.recv_fds(self._control, LARGEST, 1, socket.MSG_CMSG_CLOEXEC)
                if not data:
                    break
                self._carry_out(unpack(data), files)
        self._closing = True
        for task in list(self._tasks.values()):
            self._signal(task, signal.SIGKILL)
        until = time.monotonic() + LAST_WAIT
        while self._tasks and time.monotonic() < until:
            time.sleep(0.005)
        remove(self._setup.scratch)
        if self._setup.tree is not None:
            self._leave(self._setup.tree)

    def _leave(self, tree: Tree) -> None:
        """Return to the group in which this process was started, and remove the groups of tasks."""
        with contextlib.suppress(OSError):
            if tree.kind == V1:
                for folder in tree.folders.values():
                    home = os.path.dirname(os.path.dirname(folder))
                    with open(f"{home}/cgroup.procs", "w", encoding="utf-8") as group:
                        group.write(str(os.getpid()))
            tree.remove(patience=1.0)
            for folder in tree.folders.values():
                os.rmdir(os.path.dirname(folder))  # fails while another nursery of the agent is left

    def _carry_out(self, message: tuple[Any, ...], files: list[int]) -> None:
        """Carry out one message of the agent."""
        kind, key = message[0], message[1]
        if kind == THREAD:
            if files:
                self._grow(key, socket.socket(fileno=files[0]))
            else:  # receiving the socket failed, because we have no descriptors left
                self._say((REFUSED, key))
        elif kind == RECALL:
            # If its thread was refused, the agent takes all its tasks back itself.
            if (hand := self._spawners.get(key)) is not None:
                back = hand.give_back(message[2])
                self._early.difference_update(back)
                self._say((RETURNED, back))
        elif kind == SHARE:
            running = [task for task in list(self._tasks.values()) if not task.cpus]
            self._affinity.share(key, running)
        elif kind == SIGNAL:
            if (task := self._tasks.get(key)) is None:
                self._early.add(key)  # the task may have just ended, then this is harmless
                task = self._tasks.get(key)
            if task is not None:
                self._signal(task, message[2])
        elif kind == NOTIFY:
            self._notify(key, message[2])
        elif kind == NAME:
            if (task := self._tasks.get(key)) is not None:
                # Without a name the output cannot be read while the task runs. Its end tries again and reports a
                # failure.
                with contextlib.suppress(OSError):
                    self._name(task, range(len(STREAMS)))
            self._say((NAMED, key))

    def _say(self, message: tuple[Any, ...]) -> None:
        """Send the agent a message, if it is still there."""
        with contextlib.suppress(OSError):
            self._control.send(pack(message))

    def _grow(self, number: int, work: socket.socket) -> None:
        """Start another thread. If the system allows none, the agent queues its tasks behind those of other threads."""
        hand: Spawner | None = None
        try:
            hand = self._spawners[number] = Spawner(work, self._watch.wake)
            threading.Thread(target=self._run_tasks, args=(number, hand), daemon=True).start()
        except (OSError, RuntimeError):
            self._spawners.pop(number, None)
            (hand or work).close()
            self._say((REFUSED, number))

    def _signal(self, task: NurseryTask, number: int) -> None:
        """Signal all processes of a task, and prevent its start if it has none."""
        with task.lock:
            task.stopped = True
            if task.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.pid, number)

    def _notify(self, key: int, number: int) -> None:
        """Send a signal to those processes of a task that handle it."""
        if (task := self._tasks.get(key)) is not None:
            with task.lock:
                notify(task.pid, number)

    def _name(self, task: NurseryTask, streams: Iterable[int]) -> None:
        """Rename output from its spool file to the task's own name."""
        with task.lock:
            for stream in streams:
                if not task.spools or stream in task.named or stream in task.linked:
                    continue
                os.makedirs(os.path.dirname(task.stem), mode=0o700, exist_ok=True)
                task.named.add(stream)
                name = f"{task.stem}.{STREAMS[stream]}"
                os.rename(task.spools[stream], name)
                os.utime(name)  # retention counts from the end of the task, not from its last output

    # --- one thread for each running task

    def _run_tasks(self, number: int, hand: Spawner) -> None:
        """Run one task after the other, until the agent is gone."""
        self._libc.unshare(_CLONE_FS)
        own = ThreadFiles(self._setup.spool, self._setup.scratch, self._setup.tree, number)
        with contextlib.suppress(OSError):
            own.prepare()  # so that the first task need not wait for it
        while (given := hand.take()) is not None:
            task = NurseryTask(*given)
            self._marks.begin(number, task.key)
            self._tasks[task.key] = task
            end = self._one(task, own)
            # Report the end only when nothing of the task is left, so that the next one finds a clean slot.
            with contextlib.suppress(OSError):
                hand.ended(end)

    def _one(self, task: NurseryTask, own: ThreadFiles) -> tuple[Any, ...]:
        """Run one task until all its processes are gone; return the message about its end."""
        clean = False
        try:
            own.prepare()
            if RESTART in task.env:
                own.go_on(task.stem)
            message, clean = self._run(task, own)
        except Exception as error:  # noqa: BLE001 - the agent must learn of the end after any error
            message = _failed(task, str(error) or repr(error))
        try:
            full = [n for n, file in enumerate(own.files) if file >= 0 and os.fstat(file).st_size]
            if full or task.named:
                for file in own.files:
                    BoundedFile(file, self._setup.limit).trim()
                self._name(task, full)
        except OSError as error:
            message, clean = (*message[:-1], f"cannot store its output: {error}"), False
        with task.lock:
            task.spools = ()
        for stream in task.linked:
            with contextlib.suppress(OSError):
                os.utime(f"{task.stem}.{STREAMS[stream]}", follow_symlinks=False)  # as in `_name`
        own.clear(task.named, clean=clean)
        self._tasks.pop(task.key, None)
        self._early.discard(task.key)
        return message

    def _run(self, task: NurseryTask, own: ThreadFiles) -> tuple[tuple[Any, ...], bool]:
        """Start the process, wait for its end and clean up; return the message, and whether nothing of it is left."""
        try:
            if not task.folder.startswith("/"):
                return _failed(task, f"workdir {task.folder!r}: must begin with '/'"), True
            os.chdir(task.folder)
        except OSError as error:
            return _failed(task, f"workdir {task.folder!r}: {error.strerror}"), True
        try:
            files = open_streams(task, again=RESTART in task.env) if task.paths else {}
        except OSError as error:
            return _failed(task, f"cannot write to {error.filename!r}: {error.strerror}"), True
        try:
            if task.given:
                files[STDIN] = os.open(task.given, os.O_RDONLY)
            failed = self._spawn(task, own, files)
        except OSError as error:
            if STDIN in files or not task.given:
                raise
            return _failed(task, f"cannot read its standard input: {error.strerror}"), True
        finally:
            for file in set(files.values()):
                os.close(file)
        if failed is not None:
            return failed, True
        self._newborn.append(task)
        self._watch.wake()
        return self._await(task, task.pid)

    def _spawn(
        self, task: NurseryTask, own: ThreadFiles, instead: Mapping[int, int]
    ) -> tuple[Any, ...] | None:
        """Start the process, with other files for some streams; return the message about its end if that fails."""
        slot, files = own.slot, own.files
        given, out, err = instead.get(STDIN, self._null), instead.get(0, files[0]), instead.get(1, files[1])
        env = self._setup.env | {"TMPDIR": own.scratch} | task.env
        env["SPILL_SCRATCH"] = own.scratch
        set_times(env, time.time())
        program, argv = _find(task.argv[0], env.get("PATH", os.defpath)), task.argv
        if slot is not None:
            slot.fit(task.memory, task.cpu)
            # Else posix_spawn reports what is wrong, without a shell.
            if slot.wraps and os.access(program, os.X_OK):
                program, argv = slot.wrap(program, argv)
        shared = self._affinity.shared
        if task.cpus or shared or own.cpus or (slot is not None and slot.pinned):
            own.cpus = self._affinity.enter(task.cpus or shared, own.cpus, slot, task.memory_of)
        actions = [
            (os.POSIX_SPAWN_DUP2, given, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, err, 2),
        ]
        with task.lock:
            if task.stopped or self._closing or task.key in self._early:
                return _failed(task, "")
            task.spools, task.files, task.slot = tuple(own.spools), tuple(files), slot
            begun = boottime()
            try:
                pid = os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=_RESET)
            except (OSError, ValueError) as error:
                number = (error.errno or 0) if isinstance(error, OSError) else 0
                code = _SHELL_CODES.get(number)
                if code is None:
                    return _failed(task, str(error))
                # A missing program is a mistake of the job, so the task ends as it would in a shell.
                os.write(err, f"{task.argv[0]}: {os.strerror(number)}\n".encode(errors="replace"))
                return (task.key, True, code, None, boottime(), 0, 0, 0, False, "")
            task.begun = begun
            task.pid = pid
        if not task.cpus and self._affinity.shared != shared:  # it changed meanwhile
            self._affinity.share(self._affinity.shared, [task])
        return None

    def _await(self, task: NurseryTask, pid: int) -> tuple[tuple[Any, ...], bool]:
        """Wait for the end of a process and its descendants; return the message, and whether nothing is left."""
        # The leader stays a zombie until the rest of its group is killed, so that its pid cannot be reused.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ended = boottime()
        with task.lock:
            task.pid = 0
        alone = not self._orphans.any()
        if not alone:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
        clean = alone or self._orphans.end(task, pid)
        code, slot = os.waitstatus_to_exitcode(status), task.slot
        cpu, peak = int((used.ru_utime + used.ru_stime) * 1e9), used.ru_maxrss * 1024
        if task.memory:
            peak = max(peak, task.peak)
            if task.starved or (slot is not None and slot.starved()):
                peak = peak if slot is None else max(peak, slot.peak())
                killed = int(signal.SIGKILL)
                ran = ended - task.begun
                return (task.key, True, None, killed, ended, ran, cpu, peak, True, ""), clean
        ending = (code, None) if code >= 0 else (None, -code)
        return (task.key, True, *ending, ended, ended - task.begun, cpu, peak, False, ""), clean


def _failed(task: NurseryTask, message: str) -> tuple[Any, ...]:
    """Return the message for a task without a process."""
    return (task.key, False, None, None, boottime(), 0, 0, 0, False, message)


def _find(program: str, path: str) -> str:
    """Return the path of a program, looked up in the task's own PATH as a shell does."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return ""  # spawning an empty path fails with ENOENT
