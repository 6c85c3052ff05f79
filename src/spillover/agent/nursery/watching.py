"""Watches tasks that run for more than a moment: reports their start, limits their output and checks their memory."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from spillover.agent.nursery.frames import STARTED, pack
from spillover.agent.nursery.holes import BoundedFile
from spillover.agent.nursery.procfs import birth_of, descendants, proportional
from spillover.agent.nursery.spawners import Spawner
from spillover.agent.nursery.task import NurseryTask

ANNOUNCE_AFTER: Final = 0.01
"""Seconds after which a start is reported. This saves most messages, and half of the wake-ups, of short tasks."""
EVERY: Final = 0.05
"""Seconds between two checks of running tasks. `EACH` is added for each of them."""
EACH: Final = 0.0002
MEMORY_EVERY: Final = 0.25
"""Seconds between two checks of all processes, where no control group limits memory."""
RUSH_EVERY: Final = 0.005
"""Seconds between two checks while a task writes fast."""
RUSHING: Final = 4 << 20
"""Bytes of output between two checks above which a task counts as writing fast."""


class MemoryWatch:
    """Watches all tasks, in one thread."""

    def __init__(
        self,
        channel: socket.socket,
        tasks: Mapping[int, NurseryTask],
        spawners: Mapping[int, Spawner],
        limit: int,
        watch_memory: bool,
    ) -> None:
        self._channel = channel
        self._tasks = tasks
        self._spawners = spawners
        self._limit = limit
        """Most bytes to keep of each stream."""
        self._watch_memory = watch_memory
        self._next_look = self._next_memory = 0.0
        self.newborn: deque[NurseryTask] = deque()
        """Started tasks that are not reported yet."""
        self._awaited = threading.Event()

    def wake(self) -> None:
        """Wake the thread, because there will be something to report in a moment."""
        if not self._awaited.is_set():
            self._awaited.set()

    def run(self) -> None:
        """Watch for ever; sleep while there are no tasks."""
        while True:
            self._awaited.wait(self._pause())
            if self._awaited.is_set():
                time.sleep(ANNOUNCE_AFTER)
                self._awaited.clear()
                self._announce()
                self._tell_ends()
            now = time.monotonic()
            if now >= self._next_look:
                rushing = self._look()
                every = RUSH_EVERY if rushing else EVERY + EACH * len(self._tasks)
                self._next_look = time.monotonic() + every
            if self._watch_memory and now >= self._next_memory:
                self._weigh()
                self._next_memory = time.monotonic() + MEMORY_EVERY

    def _pause(self) -> float | None:
        """Return the seconds until the next check; None if there is nothing to check."""
        return max(0.0, self._next_look - time.monotonic()) if self._tasks else None

    def _announce(self) -> None:
        """Report tasks that have run for a moment. For those that already ended, the report of the end suffices."""
        while self.newborn:
            task = self.newborn.popleft()
            with task.lock:
                pid = task.pid
                birth = birth_of(pid) if pid else 0
            if pid:
                with contextlib.suppress(OSError):
                    self._channel.send(pack((STARTED, task.key, pid, birth, task.begun)))

    def _tell_ends(self) -> None:
        """Report ends that were held back by threads now busy with a longer task."""
        for hand in list(self._spawners.values()):
            with contextlib.suppress(OSError):
                if not hand.tell(wait=False):
                    self.wake()

    def _look(self) -> bool:
        """Limit the output of all tasks, and end those that ran out of memory; return whether one writes fast."""
        rushing = False
        for task in list(self._tasks.values()):
            with task.lock:
                if not task.pid:
                    continue
                if not task.streams:
                    task.streams = tuple(BoundedFile(file, self._limit) for file in task.files)
                for stream in task.streams:
                    with contextlib.suppress(OSError):
                        rushing |= stream.trim() > RUSHING
                if task.memory and task.slot is not None and task.slot.starved():
                    _end(task)  # version 1 kills one process, and the others may wait for it for ever
        return rushing

    def _weigh(self) -> None:
        """End tasks whose processes together use more memory than requested."""
        asked = {task.pid: task for task in list(self._tasks.values()) if task.memory and task.pid}
        if not asked:
            return
        for leader, processes in descendants({pid: pid for pid in asked}).items():
            task = asked[leader]
            used = sum(resident for _, resident in processes)
            if used > task.memory:
                # The sum counts shared memory once for each process, so measure more exactly.
                used = proportional([pid for pid, _ in processes])
            with task.lock:
                task.peak = max(task.peak, used)
                if used > task.memory and task.pid == leader:
                    _end(task)


def _end(task: NurseryTask) -> None:
    """Kill a task that ran out of memory. Its thread does the rest."""
    task.starved = True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(task.pid, signal.SIGKILL)
