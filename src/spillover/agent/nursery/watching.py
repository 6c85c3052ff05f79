"""Looks at tasks that run for more than a moment: tells of their start, bounds their output, and minds their memory."""

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
"""Seconds after which a start is told. Most messages and half the wake-ups of short tasks are saved by it."""
EVERY: Final = 0.05
"""Seconds between two looks at what runs, and what a look at each task adds to that."""
EACH: Final = 0.0002
MEMORY_EVERY: Final = 0.25
"""Seconds between two looks at all processes, where no group limits the memory of tasks."""
RUSH_EVERY: Final = 0.005
"""Seconds between two looks while some task writes fast."""
RUSHING: Final = 4 << 20
"""Bytes of output between two looks from which on it is looked at more often."""


class MemoryWatch:
    """One thread for all tasks."""

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
        """Bytes that are kept of each stream."""
        self._watch_memory = watch_memory
        self._next_look = self._next_memory = 0.0
        self.newborn: deque[NurseryTask] = deque()
        """Made, and not told of yet."""
        self._awaited = threading.Event()

    def wake(self) -> None:
        """There is something to tell in a moment."""
        if not self._awaited.is_set():
            self._awaited.set()

    def run(self) -> None:
        """Look for ever; a nursery without tasks is left alone."""
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
        """Seconds until the next look; None if there is nothing to look at."""
        return max(0.0, self._next_look - time.monotonic()) if self._tasks else None

    def _announce(self) -> None:
        """Tell of tasks that have run for a moment; of those that are gone by then, their end says all."""
        while self.newborn:
            task = self.newborn.popleft()
            with task.lock:
                pid = task.pid
                birth = birth_of(pid) if pid else 0
            if pid:
                with contextlib.suppress(OSError):
                    self._channel.send(pack((STARTED, task.key, pid, birth, task.begun)))

    def _tell_ends(self) -> None:
        """Tell what threads kept back that are busy with a longer task by now."""
        for hand in list(self._spawners.values()):
            with contextlib.suppress(OSError):
                if not hand.tell(wait=False):
                    self.wake()

    def _look(self) -> bool:
        """Bound the output of every task and end those that were out of memory; whether some writes fast."""
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
                    _end(task)  # version 1 kills one process, and the rest may wait for it for ever
        return rushing

    def _weigh(self) -> None:
        """End tasks whose processes use more memory together than was asked for."""
        asked = {task.pid: task for task in list(self._tasks.values()) if task.memory and task.pid}
        if not asked:
            return
        for leader, processes in descendants({pid: pid for pid in asked}).items():
            task = asked[leader]
            used = sum(resident for _, resident in processes)
            if used > task.memory:
                # What they share is counted for each of them there: look again, closely.
                used = proportional([pid for pid, _ in processes])
            with task.lock:
                task.peak = max(task.peak, used)
                if used > task.memory and task.pid == leader:
                    _end(task)


def _end(task: NurseryTask) -> None:
    """Kill a task that is out of memory; its thread does the rest."""
    task.starved = True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(task.pid, signal.SIGKILL)
