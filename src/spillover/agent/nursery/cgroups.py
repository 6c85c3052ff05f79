"""Puts tasks into control groups, which limit them and which no process can leave.

A group for each task would cost more than a short task. So each thread of the nursery has a *slot*: a group in every
hierarchy, created once and used by one task after the other. Its limits are written only when they change.

* Version 1 allows a single thread in a group, and a child starts in the groups of the thread that creates it. The
  thread enters its slot once. After that, tasks are in it from their first instruction, at no cost. The kernel charges
  memory to the group of a process's first thread, so the memory of the nursery does not count.
* Version 2 moves whole processes only. So each task is wrapped: a shell puts itself into the slot and becomes the task.

All groups are below the one in which the agent was started, so the limits of that group still hold.
"""

import contextlib
import errno
import os
import signal
import threading
import time
from typing import Final

V1, V2 = "cgroup-v1", "cgroup-v2"
CONTROLLERS: Final = ("memory", "cpu", "pids", "freezer")
CPUSET: Final = "cpuset"
"""The controller that keeps tasks on their CPUs. It is used where it can be, and is no reason to fail."""
MOST_PROCESSES: Final = 16_384
"""Most processes and threads of one task. More than a task needs, and less than a machine can bear."""
_FREEZING: Final = 0.5
"""Seconds to wait for a slot to freeze before its members are killed unfrozen."""
_ENTER: Final = 'echo 0 >"$0" && exec "$@"'
"""Script with which a shell becomes a task inside a group of version 2."""


class CgroupsUnavailable(Exception):
    """Control groups cannot be used here; the message says why."""


class TooLittle(Exception):
    """A task requests less memory than is in use before it starts; the message says so."""


class Tree:
    """The groups of one agent."""

    def __init__(self, kind: str, folders: dict[str, str]) -> None:
        self.kind = kind
        self.folders = folders
        """By controller. Version 2 has its one folder under `""`, and again under each controller that it may use."""

    @property
    def limits_memory(self) -> bool:
        """Return whether the kernel enforces memory limits."""
        return "memory" in self.folders

    def branch(self, name: str) -> "Tree":
        """Create groups below these for one nursery; raise OSError if that fails."""
        folders = {controller: f"{folder}/{name}" for controller, folder in self.folders.items()}
        for folder in dict.fromkeys(folders.values()):
            _make(folder)
        if self.kind == V2:
            _delegate(folders)
        _fill_cpuset(self.kind, folders)
        return Tree(self.kind, folders)

    def remove(self, patience: float = 5.0) -> int:
        """Kill all members and remove all groups; return how many were killed, or raise OSError."""
        killed, until = 0, time.monotonic() + patience
        for folder in dict.fromkeys(self.folders.values()):
            while os.path.isdir(folder):
                for pid in [pid for group in (*_below(folder), folder) for pid in _members(group)]:
                    if pid != os.getpid():
                        killed += _kill(pid)
                try:
                    for group in (*_below(folder), folder):
                        os.rmdir(group)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > until:
                        raise
                    time.sleep(0.005)
        return killed


def find(name: str, wanted: str = "cgroup") -> Tree:
    """Create the groups of an agent, of version 1 if that limits memory; raise CgroupsUnavailable if none work."""
    problems = []
    for kind, make in ((V1, _find_v1), (V2, _find_v2)):
        if wanted in {"cgroup", kind}:
            try:
                return make(name)
            except (CgroupsUnavailable, OSError) as error:
                problems.append(f"{kind}: {error}")
    raise CgroupsUnavailable("; ".join(problems))


def _find_v1(name: str) -> Tree:
    mounts = _mounts()
    folders: dict[str, str] = {}
    for controller in CONTROLLERS:
        if controller in mounts:
            folder = f"{mounts[controller]}/{name}"
            try:
                _make(folder)
            except OSError as error:
                if controller == "memory":
                    raise CgroupsUnavailable(f"{folder}: {error.strerror}") from None
                continue
            folders[controller] = folder
    if "memory" not in folders:
        raise CgroupsUnavailable("there is no memory hierarchy")
    if CPUSET in mounts:
        with contextlib.suppress(OSError):
            _make(f"{mounts[CPUSET]}/{name}")
            folders[CPUSET] = f"{mounts[CPUSET]}/{name}"
    _fill_cpuset(V1, folders)
    return Tree(V1, folders)


def _find_v2(name: str) -> Tree:
    own = _mounts().get("")
    if own is None:
        raise CgroupsUnavailable("it is not mounted")
    folder = f"{own}/{name}"
    _make(folder)
    if not os.path.exists(f"{folder}/cgroup.kill"):
        os.rmdir(folder)
        raise CgroupsUnavailable("the kernel is older than 5.14 and has no cgroup.kill")
    offered = set(_read(f"{own}/cgroup.controllers").split()) & set(CONTROLLERS)
    usable = offered & set(_read(f"{folder}/cgroup.controllers").split())
    if offered - usable and _delegate_own(own, offered, name):
        usable = offered
    folders = {"": folder} | dict.fromkeys(sorted(usable), folder)
    if CPUSET in _read(f"{own}/cgroup.controllers").split():
        with contextlib.suppress(OSError):
            _write(f"{own}/cgroup.subtree_control", f"+{CPUSET}")
            folders[CPUSET] = folder
    _delegate(folders)
    return Tree(V2, folders)


def _fill_cpuset(kind: str, folders: dict[str, str]) -> None:
    """Give a cpuset of version 1 the CPUs and memory of the one above it; without them, no process may enter it."""
    if kind != V1 or CPUSET not in folders:
        return
    folder = folders[CPUSET]
    try:
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not _read(f"{folder}/{name}").strip():
                _write(f"{folder}/{name}", _read(f"{os.path.dirname(folder)}/{name}").strip())
    except OSError:
        del folders[CPUSET]
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _delegate(folders: dict[str, str]) -> None:
    """Delegate the controllers of a version 2 group to those below it."""
    words = " ".join(f"+{controller}" for controller in folders if controller)
    if words:
        _write(f"{folders['']}/cgroup.subtree_control", words)


def _delegate_own(own: str, offered: set[str], name: str) -> bool:
    """Delegate the controllers of the agent's own group, after moving the agent to a child group if needed."""
    words = " ".join(f"+{each}" for each in sorted(offered))
    with contextlib.suppress(OSError):
        _write(f"{own}/cgroup.subtree_control", words)
        return True
    try:
        # A group that delegates controllers may have no processes, and we can move only ourselves.
        if any(pid != os.getpid() for pid in _members(own)):
            return False
        _make(f"{own}/{name}-agent")
        _write(f"{own}/{name}-agent/cgroup.procs", "0")
        _write(f"{own}/cgroup.subtree_control", words)
    except OSError:
        return False
    return True


def _mounts() -> dict[str, str]:
    """Return the folder of this process's own group for each controller; "" is that of version 2."""
    own: dict[str, str] = {}
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    out: dict[str, str] = {}
    for line in _read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        if kind not in {"cgroup", "cgroup2"}:
            continue
        root, point = before.split()[3:5]
        for controller in options.split(",") if kind == "cgroup" else [""]:
            if controller in own and controller not in out:
                path = own[controller]
                inside = path[len(root) :] if root != "/" and path.startswith(root) else path
                out[controller] = f"{point}{inside}".rstrip("/")
    return out


class Slot:
    """The groups of one thread, and of the task that it runs."""

    def __init__(self, tree: Tree, number: int) -> None:
        self._tree = tree
        self._folders = {controller: f"{folder}/{number}" for controller, folder in tree.folders.items()}
        for folder in dict.fromkeys(self._folders.values()):
            _make(folder)
        _fill_cpuset(tree.kind, self._folders)
        self.pinned = ""
        """The CPUs of its cpuset; empty for all."""
        self._memory_of = ""
        """The NUMA nodes that its memory is of; empty for all."""
        self._one = self._folders.get("freezer", next(iter(self._folders.values())))
        """The folder whose list of members counts: the freezer if there is one, or that of version 2."""
        self.wraps = tree.kind == V2
        """Whether a task has to enter the group by itself."""
        self._memory, self._cpu = 0, 0
        self._kills = self._peak = -1
        if tree.limits_memory:
            memory, v1 = self._folders["memory"], tree.kind == V1
            self._kills = os.open(f"{memory}/{'memory.oom_control' if v1 else 'memory.events'}", os.O_RDONLY)
            with contextlib.suppress(FileNotFoundError):  # version 2 reports a peak since Linux 5.19
                peak = "memory.max_usage_in_bytes" if v1 else "memory.peak"
                self._peak = os.open(f"{memory}/{peak}", os.O_RDWR)
            if not v1:
                _write(f"{memory}/memory.oom.group", "1")
        if "pids" in self._folders:
            _write(f"{self._folders['pids']}/pids.max", str(MOST_PROCESSES))
        self._seen_kills = 0

    def enter(self) -> None:
        """Enter the groups with this thread, so that its children start in them (version 1 only)."""
        if self._tree.kind == V1:
            for folder in self._folders.values():
                _write(f"{folder}/tasks", str(threading.get_native_id()))

    def wrap(self, program: str, argv: list[str]) -> tuple[str, list[str]]:
        """Return a command that enters the group and then runs the task."""
        return "/bin/sh", ["/bin/sh", "-c", _ENTER, f"{self._one}/cgroup.procs", program, *argv[1:]]

    def fit(self, memory: int, cpu: int) -> None:
        """Set the limits of the next task: bytes (0 is none) and thousandths of a CPU. Raise TooLittle or OSError."""
        if memory != self._memory and self._tree.limits_memory:
            try:
                self._limit(memory)
            except OSError as error:
                self._memory = -1  # unknown after a failed write
                self._limit(0)  # one of the two limits may have been written
                self._memory = 0
                if error.errno != errno.EBUSY:
                    raise
                raise TooLittle(self._too_little(memory)) from None
            self._memory = memory
        if memory and self._kills >= 0:
            self._seen_kills = self.kills()
            with contextlib.suppress(OSError):  # version 2 can reset the peak since Linux 6.12
                os.pwrite(self._peak, b"0", 0)
        if cpu != self._cpu and "cpu" in self._folders:
            name, value = ("cpu.shares", max(2, cpu * 1024 // 1000))
            if self._tree.kind == V2:
                name, value = "cpu.weight", min(10_000, max(1, cpu // 10))
            _write(f"{self._folders['cpu']}/{name}", str(value))
            self._cpu = cpu

    def pin(self, cpus: str, memory_of: str = "") -> bool:
        """Move all members to some CPUs, a list such as `0-7,16`, or to all if it is empty; return whether that worked.

        From then on their memory is of some NUMA nodes, or of any. If the kernel refuses these, it is of any.
        """
        if CPUSET not in self._folders:
            return False
        folder = self._folders[CPUSET]
        if memory_of != self._memory_of:
            self._memory_of = memory_of if self._bind(folder, memory_of) else ""
        if cpus == self.pinned:
            return True
        every = "\n" if self._tree.kind == V2 else _read(f"{os.path.dirname(folder)}/cpuset.cpus").strip()
        try:
            _write(f"{folder}/cpuset.cpus", cpus or every)
        except OSError:  # such CPUs do not exist, or are not ours
            with contextlib.suppress(OSError):
                _write(f"{folder}/cpuset.cpus", every)
            self.pinned = ""
            return False
        self.pinned = cpus
        return True

    def _bind(self, folder: str, memory_of: str) -> bool:
        """Let memory be of some NUMA nodes, or of all; return whether the kernel takes them."""
        every = "\n" if self._tree.kind == V2 else _read(f"{os.path.dirname(folder)}/cpuset.mems").strip()
        for nodes in (memory_of or every, every):
            with contextlib.suppress(OSError):
                _write(f"{folder}/cpuset.mems", nodes)
                return nodes == memory_of
        return False

    def _limit(self, memory: int) -> None:
        """Write the limits of memory and of memory with swap. The second may never be below the first."""
        folder = self._folders["memory"]
        if self._tree.kind == V2:
            _write(f"{folder}/memory.max", str(memory) if memory else "max")
            with contextlib.suppress(FileNotFoundError):
                _write(f"{folder}/memory.swap.max", "0" if memory else "max")
            return
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if not memory or (self._memory and memory > self._memory):
            names.reverse()
        with contextlib.suppress(OSError):
            # The page cache that earlier tasks left does not belong to this one.
            _write(f"{folder}/memory.force_empty", "0")
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                _write(f"{folder}/{name}", str(memory or -1))

    def _too_little(self, memory: int) -> str:
        """Return why a limit cannot be set. Version 1 refuses one below the memory in use that it cannot reclaim."""
        used = _read(f"{self._folders['memory']}/memory.usage_in_bytes").strip()
        return f"it requests {memory} bytes of memory, but {used} are in use before it starts; request more"

    def kills(self) -> int:
        """Return how many processes the kernel has killed here for lack of memory, ever."""
        if self._kills < 0:
            return 0
        for line in os.pread(self._kills, 512, 0).splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
        return 0

    def starved(self) -> bool:
        """Return whether the kernel killed a process for lack of memory since the last `fit`."""
        return bool(self._memory) and self.kills() != self._seen_kills

    def peak(self) -> int:
        """Return the peak memory since `fit` in bytes; 0 if unknown."""
        return int(os.pread(self._peak, 32, 0)) if self._peak >= 0 else 0

    def members(self) -> list[int]:
        """Return the processes in the group, without this one."""
        own = os.getpid()
        return [pid for pid in _members(self._one) if pid != own]

    def kill(self) -> None:
        """Kill all members at once, however fast they fork. Only the slot's own thread may call this."""
        if self._tree.kind == V2:
            _write(f"{self._one}/cgroup.kill", "1")
            return
        if "freezer" not in self._folders:
            for pid in self.members():
                _kill(pid)
            return
        # This thread would freeze with the others, so it leaves the group for a moment.
        thread, state = str(threading.get_native_id()), f"{self._one}/freezer.state"
        _write(f"{self._tree.folders['freezer']}/tasks", thread)
        try:
            _write(state, "FROZEN")
            until = time.monotonic() + _FREEZING
            while _read(state).strip() != "FROZEN" and time.monotonic() < until:
                time.sleep(0.0005)
            for pid in self.members():
                _kill(pid)
        finally:
            _write(state, "THAWED")
            _write(f"{self._one}/tasks", thread)


def _make(folder: str) -> None:
    """Create a group in an existing one. A missing parent is not visible here, and must not be created."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)


def _below(folder: str) -> list[str]:
    """Return the groups below one, the deepest first."""
    try:
        with os.scandir(folder) as entries:
            children = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return [group for child in children for group in (*_below(child), child)]


def _members(group: str) -> list[int]:
    """Return the processes of a group; none if it is gone."""
    try:
        return [int(pid) for pid in _read(f"{group}/cgroup.procs").split()]
    except (FileNotFoundError, OSError):
        return []


def _kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return 0
    return 1


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
