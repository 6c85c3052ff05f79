"""Starts and signals tasks as processes, and reports their ends, even if the nursery that ran them died."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from pwd import getpwuid
from typing import Any, Final, TypeAlias

from msgspec import Struct

from spillover.agent.leases.slurm import RunsAs, file_named, slurm_environment
from spillover.agent.leases.values import Exit, Task
from spillover.agent.nursery import frames
from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.thread_files import remove
from spillover.agent.sessions.places import Entry, hosted, terminal_of
from spillover.agent.tasks.isolation import Isolation, choose, remove_groups
from spillover.agent.tasks.large_messages import LargeMessages
from spillover.agent.tasks.nurseries import Listener, NurseryProcess, Thread, pick
from spillover.agent.tasks.remains import NURSERY_LOCK, end_tasks
from spillover.agent.tasks.srun import SrunProgram
from spillover.agent.tasks.topology import memory_nodes
from spillover.core.events import Lease, Usage
from spillover.model.admission import ON_FIRST_NODE, SRUN_VARIABLE
from spillover.model.ids import split_member
from spillover.model.inside import cpu_list, cpu_mask
from spillover.model.job import Argv, Shell

BASE: Final = ("PATH", "HOME", "USER", "LANG")
"""Variables that a task inherits from the agent's environment."""
DIED: Final = "the process that ran it died"
ANOTHER_TRY: Final = 1.0
"""Seconds before the next try to start a nursery."""
NURSERIES: Final = 4
"""Most nurseries; fewer if fewer tasks run at a time."""
OUTPUT_LIMIT: Final = 64 << 20
"""Most bytes to keep of each output stream of a task."""

log = logging.getLogger("spillover.agent")


class Spawned(Struct, frozen=True):
    """A process was started."""

    lease: Lease
    pid: int
    birth: int
    """Start of the process in clock ticks since the machine started. It tells a process from a later one with the same
    pid.
    """
    at: int
    """Monotonic nanoseconds."""


class ProcessEnded(Struct, frozen=True):
    """A process and all its children are gone, or none was started."""

    lease: Lease
    end: Exit


class Returned(Struct, frozen=True):
    """A task never began and never will in its place, so it may begin elsewhere."""

    lease: Lease
    lost: bool = False
    """Whether the reason is that its nursery died."""


Seen: TypeAlias = Spawned | ProcessEnded
"""Events of a process."""
Sight: TypeAlias = Seen | Returned
"""Events of a task."""


class Processes:
    """The running tasks of this agent, in nurseries."""

    def __init__(
        self,
        folder: Path,
        cluster: str,
        seen: Callable[[list[Sight]], None],
        *,
        isolation: str = "auto",
        output_limit: int = OUTPUT_LIMIT,
        threads: int = 1,
        shares: Callable[[str], None] = lambda _: None,
        node: str = "localhost",
        memory: Callable[[], Path] | None = None,
    ) -> None:
        self._folder = folder
        self._node = node
        """The name of this agent."""
        self._large = LargeMessages(folder, memory)
        self._srun = SrunProgram(folder)
        self._user = _this_user()
        self._seen = seen
        self._wanted = isolation
        self._output_limit = output_limit
        self._threads = threads
        """Number of threads to start in advance."""
        self._output = f"{folder}/output"
        self._own = {"SPILL_CLUSTER": cluster, "SPILL_AGENT": str(folder)}
        self.isolation = Isolation("none")
        """How tasks are isolated, once this is open."""
        self._nurseries: dict[int, NurseryProcess] = {}
        """Live nurseries, by number."""
        self._replacing: set[asyncio.Task[None]] = set()
        self._open = False
        self._closed = False
        self._early: list[tuple[Lease, Task, int, bool]] = []
        """Tasks to start once this is open, with their slots, and whether a runner starts them."""
        self._keys: dict[Lease, int] = {}
        self._tasks: dict[int, tuple[Lease, Thread]] = {}
        self._slots: dict[int, Thread] = {}
        """The threads that run the tasks of slots, while there are some."""
        self._recalled: list[int] = []
        """Tasks to take back in the next turn of the loop."""
        self._given: dict[Thread, None] = {}
        """Threads with tasks that are not sent yet."""
        self._started: dict[int, tuple[int, int, int]] = {}
        """Pid, birth and time of tasks whose start was reported."""
        self._naming: dict[int, list[asyncio.Future[None]]] = {}
        self._next = 0
        self._cpus = sum([1 << cpu for cpu in os.sched_getaffinity(0)])
        """All CPUs, as bits."""
        self._pinned: dict[int, int] = {}
        """CPUs of tasks that have some for themselves, as bits."""
        self._shared = ""
        """The CPUs that are left for others, as a list; empty if all are."""
        self._shares = shares
        """Receives that list when it changes."""

    async def open(self) -> None:
        """Start the nurseries; raise OSError if the wanted isolation is unavailable."""
        self.isolation = await asyncio.to_thread(choose, self._wanted, self._folder)
        await asyncio.to_thread(self._clear)
        await asyncio.gather(*(self._start_nursery(number) for number in range(self._count)))
        self._give_early()

    @property
    def _count(self) -> int:
        """Return the number of nurseries, if none died."""
        return max(1, min(NURSERIES, self._threads))

    async def _start_nursery(self, number: int) -> None:
        """Start one of the nurseries; raise OSError if that fails."""
        base = {name: value for name in BASE if (value := os.environ.get(name)) is not None}
        setup = {
            "output": self._output,
            "spool": self._spool(number),
            "scratch": self._scratch(number),
            "limit": self._output_limit,
            "isolation": (self.isolation.kind, self.isolation.branch(number)),
            "env": base | self._own,
        }
        lock = os.open(self._folder / NURSERY_LOCK, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        listener = Listener(self._said, self._heard, self._lost, self._large.put)
        try:
            nursery = await NurseryProcess.start(setup, lock, listener)
        finally:
            os.close(lock)
        self._nurseries[number] = nursery
        if self._shared:
            nursery.say((frames.SHARE, self._shared))
        nursery.grow(len(range(number, self._threads, self._count)))

    def _spool(self, number: int) -> str:
        return f"{self._output}/spool/{number}"

    def _scratch(self, number: int) -> str:
        return f"{self._folder}/scratch/{number}"

    def _give_early(self) -> None:
        """Start the tasks that came while no nursery was open."""
        self._open = True
        early, self._early = self._early, []
        for lease, task, slot, for_runner in early:
            self._give(lease, task, slot, for_runner)

    def _clear(self) -> None:
        """Remove what an earlier run left in temporary folders."""
        for folder in (f"{self._output}/spool", f"{self._folder}/scratch"):
            remove(folder)
        self._large.clear()
        self._srun.write()
        (self._folder / NURSERY_LOCK).write_bytes(b"")

    async def close(self) -> None:
        """End the nurseries, and with them all running tasks."""
        self._closed = True
        for replacing in self._replacing:
            replacing.cancel()
        await asyncio.gather(*self._replacing, return_exceptions=True)
        for nursery in self._nurseries.values():
            nursery.close()
        for nursery in self._nurseries.values():
            await asyncio.to_thread(nursery.child.wait)
        if self._nurseries:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove_groups, self._folder)

    def start(self, lease: Lease, task: Task, slot: int = -1, *, for_runner: bool = False) -> None:
        """Start a process, after those started earlier in its slot. Its start and end are reported to `seen`."""
        self._next += 1
        self._keys[lease] = self._next
        if self._open:
            self._give(lease, task, slot, for_runner)
        else:
            self._early.append((lease, task, slot, for_runner))

    def _give(self, lease: Lease, task: Task, slot: int, for_runner: bool) -> None:
        """Give a task to the thread of its slot, or to an idle thread."""
        key = self._keys[lease]
        thread = self._slots.get(slot)
        if thread is None:
            thread = pick(self._nurseries.values())
            if thread is None:
                self._never(lease, "the system allows no more threads")
                return
            if slot >= 0 and not thread.tasks:
                self._slots[slot] = thread
                thread.slot = slot
        self._tasks[key] = (lease, thread)
        thread.tasks += 1
        if not self._given:
            asyncio.get_running_loop().call_soon(self._send)
        self._given[thread] = None
        work = task.work
        argv = ["/bin/sh", "-c", work.run] if isinstance(work, Shell) else list(words_of(work))
        if task.terminal:
            argv = hosted(argv, terminal_of(self._folder, lease))
        job, attempt = lease.job, lease.attempt
        mark = _mark(lease)
        # A process of a runner may serve other jobs after this one, so it must not know the first one in words of Slurm.
        known = {} if for_runner else slurm_environment(lease, task, self._node, self._user)
        env = known | task.env | self._own
        if SRUN_VARIABLE in env:
            self._srun.give(env)
        env["SPILL_JOB_ID"] = job
        env["SPILL_ATTEMPT"] = str(attempt)
        env["SPILL_LEASE"] = mark
        if "." in job and (member := split_member(job)) is not None:
            env["SPILL_ARRAY_INDEX"] = str(member[1])
        stem = f"{self._output}/{job[:2]}/{job}.{attempt}.{lease.task}"
        need = task.need
        given: tuple[Any, ...] = (key, argv, env, task.workdir, stem, mark, need.memory, need.cpu, task.cpus)
        if task.secrets:
            self._large.keep_off_disk(key)
        memory_of = memory_nodes(task.cpus) if task.binds_memory else ""
        if task.stdout or task.stderr or task.given or memory_of:
            paths = self.streams(lease, task) if task.stdout or task.stderr else ()
            given = (*given, paths, task.append, task.given, memory_of)
        thread.give(given)
        if task.cpus:
            self._pinned[key] = cpu_mask(task.cpus)
            self._share()

    def streams(self, lease: Lease, task: Task) -> tuple[str, ...]:
        """Return the files for the output and the errors of a task; empty where it has none."""
        if lease.task and isinstance(task.work, Argv) and task.work.command[:4] == ON_FIRST_NODE:
            return ("", "")  # it only waits to be used, and would truncate the file of the first task
        user = self._user.name
        return tuple(
            [path and file_named(path, lease, task, self._node, user) for path in (task.stdout, task.stderr)]
        )

    def _share(self) -> None:
        """Tell nurseries which CPUs are left for tasks that have none for themselves."""
        left = self._cpus
        for mask in self._pinned.values():
            left &= ~mask
        shared = cpu_list(left) if self._pinned else ""
        if shared != self._shared:
            self._shared = shared
            for nursery in self._nurseries.values():
                nursery.say((frames.SHARE, shared))
            self._shares(shared)

    def _send(self) -> None:
        """Send all tasks that were given out in this turn of the loop."""
        given, self._given = self._given, {}
        for thread in given:
            thread.send()

    def recall(self, lease: Lease) -> None:
        """Take back a task that has not begun; do nothing if it is too late."""
        if (key := self._keys.get(lease)) is None or key not in self._tasks:
            return
        if not self._recalled:
            asyncio.get_running_loop().call_soon(self._recall)
        self._recalled.append(key)

    def _recall(self) -> None:
        """Take back all recalled tasks, in their order."""
        recalled, self._recalled = self._recalled, []
        unsent: list[int] = []
        sent: dict[Thread, list[int]] = {}
        for key in recalled:
            if key in self._tasks:
                thread = self._tasks[key][1]
                (unsent if thread.take_back(key) else sent.setdefault(thread, [])).append(key)
        for thread, keys in sent.items():
            thread.nursery.say((frames.RECALL, thread.number, keys))
        self._back(unsent)

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Signal all processes of a task."""
        if (key := self._keys.get(lease)) is not None:
            if key in self._tasks:
                number = int(signal.SIGKILL if kill else signal.SIGTERM)
                self._tasks[key][1].nursery.say((frames.SIGNAL, key, number))
            else:
                self._early = [each for each in self._early if each[0] != lease]
                self._never(lease, "")

    def notify(self, lease: Lease, number: int) -> None:
        """Send a signal to those processes of a task that handle it."""
        if (key := self._keys.get(lease)) is not None and key in self._tasks:
            self._tasks[key][1].nursery.say((frames.NOTIFY, key, number))

    def _never(self, lease: Lease, why: str) -> None:
        """Report that a task got no process and never will."""
        del self._keys[lease]
        end: list[Sight] = [ProcessEnded(lease, Exit(boottime(), spawned=False, message=why))]
        asyncio.get_running_loop().call_soon(self._seen, end)

    def entry(self, lease: Lease) -> Entry | None:
        """Return how a command can join a task; None while it has no process."""
        key = self._keys.get(lease)
        if key is None or key not in self._started:
            return None
        pid, birth, _ = self._started[key]
        thread = self._tasks[key][1]
        number = next(number for number, each in self._nurseries.items() if each is thread.nursery)
        groups = [
            f"{folder}/{number}/{thread.number}/cgroup.procs"
            for folder in dict.fromkeys(self.isolation.folders.values())
        ]
        return Entry(pid, birth, tuple(groups))

    async def name_output(self, lease: Lease) -> None:
        """Return once the output of a task has its own name. Empty output of an ended task gets none."""
        if (key := self._keys.get(lease)) is None or key not in self._tasks:
            return
        named: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._naming.setdefault(key, []).append(named)
        self._tasks[key][1].nursery.say((frames.NAME, key))
        await named

    # --- messages from nurseries

    def _heard(self, messages: list[bytes]) -> None:
        """Report the ends of tasks."""
        seen: list[Sight] = []
        for data in messages:
            for key, spawned, code, number, at, ran, cpu, peak, starved, text in frames.unpack(data):
                usage = Usage(ran, cpu, peak)
                end = Exit(at, spawned, code, number, usage, text, out_of_memory=starved)
                seen.append(ProcessEnded(self._over(key), end))
        self._seen(seen)

    def _said(self, nursery: NurseryProcess, message: tuple[Any, ...]) -> None:
        """Process a start, or an answer of a nursery."""
        kind, key = message[0], message[1]
        if kind == frames.STARTED:
            if key in self._tasks:  # else its end came first
                self._started[key] = message[2:]
                self._seen([Spawned(self._tasks[key][0], *message[2:])])
        elif kind == frames.NAMED:
            self._answer_names(key)
        elif kind == frames.RETURNED:
            self._back(key)
        else:
            thread = nursery.refused(key)
            self._back([task for task, (_, its) in self._tasks.items() if its is thread])

    def _back(self, keys: Iterable[int]) -> None:
        """Report tasks that came back from their threads unstarted."""
        back: list[Sight] = [Returned(self._over(key)) for key in keys if key in self._tasks]
        if back:
            self._seen(back)

    def _over(self, key: int) -> Lease:
        """Remove a task from its thread; return its lease."""
        lease, thread = self._tasks.pop(key)
        if self._pinned.pop(key, None) is not None:
            self._share()
        del self._keys[lease]
        self._large.over(key)
        self._started.pop(key, None)
        self._answer_names(key)  # an end is reported after the output has its name; an answer may never come
        thread.tasks -= 1
        if not thread.tasks:
            if thread.slot >= 0:
                del self._slots[thread.slot]
                thread.slot = -1
            thread.nursery.rest(thread)
        return lease

    # --- the death of a nursery

    def _lost(self, nursery: NurseryProcess) -> None:
        """Handle the end of a nursery, unless we are closing. Tasks of other nurseries go on."""
        if self._closed:
            return
        log.error("a process that runs tasks died, and its tasks are lost")
        number = next(number for number, each in self._nurseries.items() if each is nursery)
        del self._nurseries[number]
        self._open = bool(self._nurseries)
        nursery.read_rest()
        nursery.close()
        replacing = asyncio.create_task(self._replace_dead(number, nursery))
        self._replacing.add(replacing)
        replacing.add_done_callback(self._replacing.discard)

    async def _replace_dead(self, number: int, nursery: NurseryProcess) -> None:
        """Kill what a nursery left, report what became of its tasks, and start another one in its place."""
        keys = [key for key in self._with(nursery) if self._begun(key)]
        leases = [_mark(self._tasks[key][0]) for key in keys]
        leaders = [self._started[key][:2] for key in keys if key in self._started]
        try:
            await asyncio.to_thread(self._end, number, nursery, leases, leaders)
        except OSError as error:
            log.error("%s", error)  # noqa: TRY400 - one line, no traceback
        self._report_lost(nursery)
        while True:
            try:
                await self._start_nursery(number)
            except OSError as error:
                log.error("cannot start a process that runs tasks: %s", error)  # noqa: TRY400 - likewise
                await asyncio.sleep(ANOTHER_TRY)
            else:
                break
        self._give_early()

    def _end(
        self, number: int, nursery: NurseryProcess, leases: list[str], leaders: list[tuple[int, int]]
    ) -> None:
        """Kill the tasks that a nursery ran, and remove what it used. Blocks; raises OSError if that fails."""
        nursery.close_child()
        self.isolation.remove_branch(number)
        end_tasks(self._folder, leases, leaders)
        for folder in (self._spool(number), self._scratch(number)):
            remove(folder)

    def _report_lost(self, nursery: NurseryProcess) -> None:
        """Report which tasks of a nursery are lost with it, and which may begin elsewhere."""
        now = boottime()
        seen: list[Sight] = []
        for key in self._with(nursery):
            begun, (_, _, at) = self._begun(key), self._started.get(key, (0, 0, now))
            lease = self._over(key)
            end = Exit(now, usage=Usage(ran=now - at), message=DIED, lost=True)
            seen.append(ProcessEnded(lease, end) if begun else Returned(lease, lost=True))
        if seen:
            self._seen(seen)

    def _with(self, nursery: NurseryProcess) -> list[int]:
        """Return the tasks of a nursery, in their order."""
        return [key for key, (_, thread) in self._tasks.items() if thread.nursery is nursery]

    def _begun(self, key: int) -> bool:
        """Return whether a task may have begun."""
        thread = self._tasks[key][1]
        return thread.nursery.marks.begun(thread.number, key)

    def _answer_names(self, key: int) -> None:
        """Wake those who wait for the name of an output."""
        for named in self._naming.pop(key, ()):
            if not named.done():
                named.set_result(None)


def _mark(lease: Lease) -> str:
    """Return the mark by which the processes of a task are recognized."""
    return f"{lease.job}:{lease.attempt}:{lease.task}:{lease.seq}"


def words_of(work: object) -> tuple[str, ...]:
    """Return the command line of work that is a program with arguments."""
    if not isinstance(work, Argv):
        raise TypeError(f"work of kind {type(work).__name__} does not run as a process")
    return work.command


def _this_user() -> RunsAs:
    """Return the user of this agent, as whom its tasks run."""
    uid = os.getuid()
    try:
        name = getpwuid(uid).pw_name
    except KeyError:  # a container may run as a user that it does not know
        name = os.environ.get("USER", str(uid))
    return RunsAs(name, uid, os.getgid())


def stem_of(output: Path, job: str, attempt: int, task: int) -> Path:
    """Return the path of a task's output files, without the suffix of the stream."""
    return output / job[:2] / f"{job}.{attempt}.{task}"
