"""Tasks as the agent sees them: start, signal, and hear of their end; and the end of those from an earlier life."""

import asyncio
import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

from spillover.agent.isolation import Isolation, choose, remove_groups
from spillover.agent.nurseries import Listener, Nursery, Thread, pick
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


class Returned(Struct, frozen=True):
    """A task that was to be run, never began, and never will there: it may begin elsewhere."""

    lease: Lease


Seen: TypeAlias = Spawned | Ended
"""What is seen of a process."""
Sight: TypeAlias = Seen | Returned
"""What is seen of a task."""


class Processes:
    """The running tasks of this agent, in a nursery."""

    def __init__(
        self,
        folder: Path,
        cluster: str,
        seen: Callable[[list[Sight]], None],
        died: Callable[[list[Lease]], None],
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
        self._nurseries: list[Nursery] = []
        self._open = False
        self._early: list[tuple[Lease, Task, int]] = []
        """Tasks from before it was open, with their slots."""
        self._keys: dict[Lease, int] = {}
        self._tasks: dict[int, tuple[Lease, Thread]] = {}
        self._slots: dict[int, Thread] = {}
        """Who runs the tasks of a slot, while there are some."""
        self._recalled: list[int] = []
        """Tasks that are to be had back, which nobody was told yet."""
        self._given: dict[Thread, None] = {}
        """Threads that were given tasks which are not sent yet."""
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
        listener = Listener(self._said, self._heard, self._lost, self._put_aside)
        try:
            self._nurseries = list(
                await asyncio.gather(*(Nursery.start(setup, lock, listener) for setup in setups))
            )
        finally:
            os.close(lock)
        for number, nursery in enumerate(self._nurseries):
            nursery.grow(len(range(number, self._threads, count)))
        self._open = True
        early, self._early = self._early, []
        for lease, task, slot in early:
            self._give(lease, task, slot)

    def _clear(self) -> None:
        """Remove what an earlier life left in folders that are of no use to anybody."""
        for folder in (f"{self._output}/spool", f"{self._folder}/scratch"):
            remove(folder)
        for aside in self._folder.glob("large-*"):
            aside.unlink(missing_ok=True)

    async def close(self) -> None:
        """End the nursery, and with it what still runs."""
        self._died = lambda _: None
        for nursery in self._nurseries:
            nursery.close()
        for nursery in self._nurseries:
            await asyncio.to_thread(nursery.child.wait)
        if self._nurseries:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove_groups, self._folder)

    def start(self, lease: Lease, task: Task, slot: int = -1) -> None:
        """Make a process, after those that were started before it in its slot; its start and end will be seen."""
        self._next += 1
        self._keys[lease] = self._next
        if self._open:
            self._give(lease, task, slot)
        else:
            self._early.append((lease, task, slot))

    def _give(self, lease: Lease, task: Task, slot: int) -> None:
        """Hand a task to the thread of its slot, or to one of the nursery that has the fewest busy ones."""
        key = self._keys[lease]
        thread = self._slots.get(slot)
        if thread is None:
            thread = pick(self._nurseries)
            if thread is None:
                self._never(lease, "could not be started: the system allows no thread that waits for it")
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
        thread.give((key, argv, env, task.workdir, stem, mark, need.memory, need.cpu))

    def _send(self) -> None:
        """Send all tasks that were given out in this turn of the loop."""
        given, self._given = self._given, {}
        for thread in given:
            thread.send()

    def recall(self, lease: Lease) -> None:
        """Have a task back that has not begun; nothing comes of it if it is too late."""
        if (key := self._keys.get(lease)) is None or key not in self._tasks:
            return
        if not self._recalled:
            asyncio.get_running_loop().call_soon(self._recall)
        self._recalled.append(key)

    def _recall(self) -> None:
        """Have all back that are to be, in their order."""
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

    def _never(self, lease: Lease, why: str) -> None:
        """No process of a task was made, and none will be."""
        del self._keys[lease]
        end: list[Sight] = [Ended(lease, Exit(time.monotonic_ns(), spawned=False, message=why))]
        asyncio.get_running_loop().call_soon(self._seen, end)

    async def name_output(self, lease: Lease) -> None:
        """Return once the output of a task can be found under its name; an empty one of an ended task has none."""
        if (key := self._keys.get(lease)) is None or key not in self._tasks:
            return
        named: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._naming.setdefault(key, []).append(named)
        self._tasks[key][1].nursery.say((frames.NAME, key))
        await named

    def _put_aside(self, key: int, data: bytes) -> bytes:
        """Put work that is too large for a message into a file; what to send instead."""
        path = self._folder / f"large-{key}"
        path.write_bytes(data)
        return frames.pack(str(path))

    # --- the nursery speaks

    def _heard(self, messages: list[bytes]) -> None:
        """Pass on which tasks ended."""
        seen: list[Sight] = []
        for data in messages:
            for key, spawned, code, number, at, ran, cpu, peak, starved, text in frames.unpack(data):
                usage = Usage(ran, cpu, peak)
                end = Exit(at, spawned, code, number, usage, text, out_of_memory=starved)
                seen.append(Ended(self._over(key), end))
        self._seen(seen)

    def _said(self, nursery: Nursery, message: tuple[Any, ...]) -> None:
        """A nursery saw a start, or answers."""
        kind, key = message[0], message[1]
        if kind == frames.STARTED:
            if key in self._tasks:  # or its end was faster
                self._seen([Spawned(self._tasks[key][0], *message[2:])])
        elif kind == frames.NAMED:
            self._answer_names(key)
        elif kind == frames.RETURNED:
            self._back(key)
        else:
            thread = nursery.refused(key)
            self._back([task for task, (_, its) in self._tasks.items() if its is thread])

    def _back(self, keys: Iterable[int]) -> None:
        """Tasks are no more with their threads, and have not begun."""
        back: list[Sight] = [Returned(self._over(key)) for key in keys if key in self._tasks]
        if back:
            self._seen(back)

    def _over(self, key: int) -> Lease:
        """A task is no more with its thread; its lease."""
        lease, thread = self._tasks.pop(key)
        del self._keys[lease]
        thread.tasks -= 1
        if not thread.tasks:
            if thread.slot >= 0:
                del self._slots[thread.slot]
                thread.slot = -1
            thread.nursery.rest(thread)
        return lease

    def _lost(self, nursery: Nursery) -> None:
        """A nursery is gone, by our will or not; with it go all but those that it had not begun."""
        for key in list(self._naming):
            self._answer_names(key)
        nursery.hear_out()
        died, self._died = self._died, lambda _: None
        died(
            [
                lease
                for key, (lease, thread) in self._tasks.items()
                if thread.nursery is nursery and not nursery.marks.begun(thread.number, key)
            ]
        )

    def _answer_names(self, key: int) -> None:
        """Whoever waits for a name may go on."""
        for named in self._naming.pop(key, ()):
            if not named.done():
                named.set_result(None)


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
