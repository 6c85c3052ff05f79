"""Holds the unstarted tasks of one nursery thread, and the ends that it has not reported yet.

Waking the agent for each end would cost more than a short task. So a thread with more tasks holds ends back for a
moment and reports them together. A thread without tasks reports at once.
"""

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from spillover.agent.nursery.frames import LARGEST, pack, unpack

LINGER: Final = 0.005
"""Seconds for which a thread holds an end back. If it is busy with a longer task, the watch reports the end."""
MOST: Final = 64
"""Most ends in one message, far below its size limit."""
LONGEST: Final = 2_000
"""Most characters of the message about an end."""


class Spawner:
    """The tasks and ends of one thread."""

    def __init__(self, end: socket.socket, kept_back: Callable[[], None]) -> None:
        self._socket = end
        self._kept_back = kept_back
        """Called when a task starts while ends are held back, because another thread must report them if it takes
        long.
        """
        self._lock = threading.Lock()
        self._tasks: deque[tuple[Any, ...]] = deque()
        """Received tasks that have not begun."""
        self._over = False
        """Whether the agent is gone."""
        self._left = os.eventfd(0, os.EFD_CLOEXEC)
        """Wakes the thread for tasks that another thread received for it."""
        self._woken = False
        self._news = select.poll()
        for file in (end.fileno(), self._left):
            self._news.register(file, select.POLLIN)
        self._ends: list[tuple[Any, ...]] = []
        self._since = 0.0
        """When the first of `_ends` was added, in monotonic seconds."""

    def close(self) -> None:
        """Close the descriptors of a thread that was not started."""
        self._socket.close()
        os.close(self._left)

    def take(self) -> tuple[Any, ...] | None:
        """Wait for the next task and return it; None when the agent is gone."""
        task = self._draw()
        if task is None:
            with contextlib.suppress(OSError):
                self.tell()
        while task is None:
            if self._over:
                return None
            # A recall must find each task either here or in the socket. So receive only with the lock held.
            self._news.poll()
            task = self._draw()
        if self._ends:
            self._kept_back()
        return task

    def _draw(self) -> tuple[Any, ...] | None:
        """Return the next task, if there is one."""
        with self._lock:
            if self._woken:
                self._woken = False
                os.eventfd_read(self._left)
            if not self._tasks:
                self._receive()
            return self._tasks.popleft() if self._tasks else None

    def _receive(self) -> bool:
        """Receive one message; return False if there is none."""
        try:
            data = self._socket.recv(LARGEST, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._tasks.extend(unpack(data))
        else:
            self._over = True
        return bool(data)

    def give_back(self, keys: Sequence[int]) -> list[int]:
        """Remove those of these tasks that have not begun, and return their keys in order."""
        with self._lock:
            while self._receive():
                pass
            back = [task[0] for task in self._tasks if task[0] in keys]
            self._tasks = deque([task for task in self._tasks if task[0] not in keys])
            if self._tasks and not self._woken:
                # The thread may have found nothing just before. It would wait for a message that is no longer in the
                # socket.
                self._woken = True
                os.eventfd_write(self._left, 1)
        return back

    def ended(self, end: tuple[Any, ...]) -> None:
        """Record the end of a task and report it if it is time; raise OSError when the agent is gone."""
        now = time.monotonic()
        message = end[-1]
        if message:
            end = (*end[:-1], message[:LONGEST])
        with self._lock:
            if not self._ends:
                self._since = now
            self._ends.append(end)
            late = now - self._since >= LINGER or len(self._ends) >= MOST or bool(message)
        if late:
            self.tell()

    def tell(self, *, wait: bool = True) -> bool:
        """Report all ends held back; return False if that would block, raise OSError when the agent is gone."""
        if not self._ends:
            return True
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            if self._ends:
                self._socket.send(pack(self._ends), 0 if wait else socket.MSG_DONTWAIT)
                self._ends = []
        except BlockingIOError:
            return False
        finally:
            self._lock.release()
        return True
