"""Makes tasks, waits for them and clears up after them.

Measured on two cores, `/bin/true` with both outputs in files, 2,000 tasks: `os.posix_spawn` in one thread 1,700 a second, in
two 3,100, at 600 µs of CPU each, of which 520 are the task's own. `posix_spawn` cannot change the folder, so every thread has
a working folder of its own (`unshare(CLONE_FS)`, which needs no rights) and changes into it beforehand.

Each thread has a socket of its own, from which it takes the next task and to which it tells of ends: between two tasks nothing is
handed over.
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
from collections.abc import Iterable
from typing import Any, Final

from spillover.agent.nursery.cgroups import V1, Tree
from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.frames import (
    LARGEST,
    NAME,
    NAMED,
    RECALL,
    REFUSED,
    RETURNED,
    SIGNAL,
    STREAMS,
    THREAD,
    pack,
    unpack,
)
from spillover.agent.nursery.holes import BoundedFile
from spillover.agent.nursery.marks import Marks
from spillover.agent.nursery.orphans import LAST_WAIT, Orphans
from spillover.agent.nursery.spawners import Spawner
from spillover.agent.nursery.task import NurseryTask
from spillover.agent.nursery.watching import MemoryWatch
from spillover.agent.nursery.workshop import Workshop, remove

_SHELL_CODES: Final = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EACCES: 126, errno.ENOEXEC: 126}
"""Exit codes that a shell has for a program that is not there or cannot be run."""
_CLONE_FS: Final = 0x200
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored by Python, but not by the tasks


class Setup:
    """What the agent tells once."""

    __slots__ = ("env", "limit", "output", "scratch", "spool", "tree", "watch_memory")

    def __init__(self, told: dict[str, Any]) -> None:
        self.output: str = told["output"]
        self.spool: str = told["spool"]
        self.scratch: str = told["scratch"]
        self.limit: int = told["limit"]
        """Bytes that are kept of each stream."""
        self.env: dict[str, str] = told["env"]
        """What every task sees."""
        kind, folders = told["isolation"]
        self.tree = Tree(kind, folders) if folders else None
        self.watch_memory = kind != "none" and not (self.tree is not None and self.tree.limits_memory)
        """Whether memory is watched because the kernel does not limit it."""


class Nursery:
    """All running tasks, and the threads that wait for them."""

    def __init__(self, control: socket.socket, marks: Marks, setup: Setup) -> None:
        self._control = control
        self._marks = marks
        self._setup = setup
        self._tasks: dict[int, NurseryTask] = {}
        self._early: set[int] = set()
        """Tasks that are to be stopped, and that no thread has begun."""
        self._closing = False
        self._spawners: dict[int, Spawner] = {}
        """By the number of the thread."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._orphans = Orphans(self._libc, self._tasks)
        self._watch = MemoryWatch(control, self._tasks, self._spawners, setup.limit, setup.watch_memory)
        self._newborn: deque[NurseryTask] = self._watch.newborn
        self._null = os.open("/dev/null", os.O_RDONLY)
        for folder in (setup.spool, setup.scratch):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    def serve(self) -> None:
        """Do what the agent says until it is gone; then stop everything."""
        threading.Thread(target=self._watch.run, daemon=True).start()
        with contextlib.suppress(ConnectionError):
            while True:
                # What a task inherits of our sockets would keep the agent from seeing us end.
                data, files, _, _ = socket.recv_fds(self._control, LARGEST, 1, socket.MSG_CMSG_CLOEXEC)
                if not data:
                    break
                self._obey(unpack(data), files)
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
        """Go back to the group that we were started in, and remove those of tasks."""
        with contextlib.suppress(OSError):
            if tree.kind == V1:
                for folder in tree.folders.values():
                    home = os.path.dirname(os.path.dirname(folder))
                    with open(f"{home}/cgroup.procs", "w", encoding="utf-8") as group:
                        group.write(str(os.getpid()))
            tree.remove(patience=1.0)
            for folder in tree.folders.values():
                os.rmdir(os.path.dirname(folder))  # if no other nursery of the agent is left

    def _obey(self, message: tuple[Any, ...], files: list[int]) -> None:
        """One message of the agent."""
        kind, key = message[0], message[1]
        if kind == THREAD:
            if files:
                self._grow(key, socket.socket(fileno=files[0]))
            else:  # it could not be received: we have as many files as the system allows
                self._say((REFUSED, key))
        elif kind == RECALL:
            # If its thread was refused, all of it is had back as it is.
            if (hand := self._spawners.get(key)) is not None:
                back = hand.give_back(message[2])
                self._early.difference_update(back)
                self._say((RETURNED, back))
        elif kind == SIGNAL:
            if (task := self._tasks.get(key)) is None:
                self._early.add(key)  # or it has just ended, which does no harm
                task = self._tasks.get(key)
            if task is not None:
                self._signal(task, message[2])
        elif kind == NAME:
            if (task := self._tasks.get(key)) is not None:
                # Without a name it cannot be read while it runs; at its end this is tried again, and told.
                with contextlib.suppress(OSError):
                    self._name(task, range(len(STREAMS)))
            self._say((NAMED, key))

    def _say(self, message: tuple[Any, ...]) -> None:
        """Tell the agent something, if it is there."""
        with contextlib.suppress(OSError):
            self._control.send(pack(message))

    def _grow(self, number: int, work: socket.socket) -> None:
        """Have one more thread; where the system allows none, the agent has its tasks wait for those that are there."""
        hand: Spawner | None = None
        try:
            hand = self._spawners[number] = Spawner(work, self._watch.wake)
            threading.Thread(target=self._run_tasks, args=(number, hand), daemon=True).start()
        except (OSError, RuntimeError):
            self._spawners.pop(number, None)
            (hand or work).close()
            self._say((REFUSED, number))

    def _signal(self, task: NurseryTask, number: int) -> None:
        """Signal all of a task, or see to it that it is never made."""
        with task.lock:
            task.stopped = True
            if task.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.pid, number)

    def _name(self, task: NurseryTask, streams: Iterable[int]) -> None:
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

    # --- one thread for each running task

    def _run_tasks(self, number: int, hand: Spawner) -> None:
        """Run one task after the other, until the agent is gone."""
        self._libc.unshare(_CLONE_FS)
        shop = Workshop(self._setup.spool, self._setup.scratch, self._setup.tree, number)
        with contextlib.suppress(OSError):
            shop.prepare()  # the first task need not wait for it
        while (given := hand.take()) is not None:
            task = NurseryTask(*given)
            self._marks.begin(number, task.key)
            self._tasks[task.key] = task
            end = self._one(task, shop)
            # What became of it is told only when nothing of it is left, so that the next one finds all as it should be.
            with contextlib.suppress(OSError):
                hand.ended(end)

    def _one(self, task: NurseryTask, shop: Workshop) -> tuple[Any, ...]:
        """Run one task from its beginning to the end of everything that is its own; what to tell of it."""
        clean = False
        try:
            shop.prepare()
            message, clean = self._run(task, shop)
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent must hear of the end
            message = _failed(task, str(error) or repr(error))
        try:
            full = [n for n, file in enumerate(shop.files) if file >= 0 and os.fstat(file).st_size]
            if full or task.named:
                for file in shop.files:
                    BoundedFile(file, self._setup.limit).trim()
                self._name(task, full)
        except OSError as error:
            message, clean = (*message[:-1], f"its output could not be kept: {error}"), False
        with task.lock:
            task.spools = ()
        shop.clear(task.named, clean=clean)
        self._tasks.pop(task.key, None)
        self._early.discard(task.key)
        return message

    def _run(self, task: NurseryTask, shop: Workshop) -> tuple[tuple[Any, ...], bool]:
        """Make the process, wait for its end and clear up; the second value says that nothing of it is left."""
        try:
            if not task.folder.startswith("/"):
                return _failed(task, f"workdir {task.folder!r}: must begin with '/'"), True
            os.chdir(task.folder)
        except OSError as error:
            return _failed(task, f"workdir {task.folder!r}: {error.strerror}"), True
        failed = self._spawn(task, shop)
        if failed is not None:
            return failed, True
        self._newborn.append(task)
        self._watch.wake()
        return self._await(task, task.pid)

    def _spawn(self, task: NurseryTask, shop: Workshop) -> tuple[Any, ...] | None:
        """Make the process; what to tell if there is none."""
        slot, files = shop.slot, shop.files
        env = self._setup.env | {"TMPDIR": shop.scratch} | task.env
        env["SPILL_SCRATCH"] = shop.scratch
        program, argv = _find(task.argv[0], env.get("PATH", os.defpath)), task.argv
        if slot is not None:
            slot.fit(task.memory, task.cpu)
            if slot.wraps and os.access(program, os.X_OK):  # else its absence is found out without a shell
                program, argv = slot.wrap(program, argv)
        actions = [
            (os.POSIX_SPAWN_DUP2, self._null, 0),
            (os.POSIX_SPAWN_DUP2, files[0], 1),
            (os.POSIX_SPAWN_DUP2, files[1], 2),
        ]
        with task.lock:
            if task.stopped or self._closing or task.key in self._early:
                return _failed(task, "")
            task.spools, task.files, task.slot = tuple(shop.spools), tuple(files), slot
            begun = boottime()
            try:
                pid = os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=_RESET)
            except (OSError, ValueError) as error:
                number = (error.errno or 0) if isinstance(error, OSError) else 0
                code = _SHELL_CODES.get(number)
                if code is None:
                    return _failed(task, str(error))
                # A program that is not there is the job's own mistake: it ends as it would in a shell.
                os.write(files[1], f"{task.argv[0]}: {os.strerror(number)}\n".encode(errors="replace"))
                return (task.key, True, code, None, boottime(), 0, 0, 0, False, "")
            task.begun = begun
            task.pid = pid
        return None

    def _await(self, task: NurseryTask, pid: int) -> tuple[tuple[Any, ...], bool]:
        """Wait for the end of a process and of all that it left; what to tell, and whether nothing is left."""
        # The leader stays a zombie until the rest of its group is killed, so that its number cannot become another's.
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
    """No process was made."""
    return (task.key, False, None, None, boottime(), 0, 0, 0, False, message)


def _find(program: str, path: str) -> str:
    """The file that a program's name stands for, looked up as a shell does, in the task's own PATH."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return ""  # which is not found either
