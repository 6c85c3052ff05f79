"""What one thread of the nursery was given and has not begun, and ends of its tasks that are yet to be told.

To be woken for each end would cost the agent more than a short task does. So a thread that has more to do keeps ends back for a
moment and tells them together; one that has nothing to do tells what there is at once.
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
"""Seconds that an end is kept back by its own thread; if that one is busy with a longer task the watch tells it."""
MOST: Final = 64
"""Ends that are told together: far below the size of a message."""
LONGEST: Final = 2_000
"""Characters of what is said about an end."""


class Spawner:
    """Of one thread."""

    def __init__(self, end: socket.socket, kept_back: Callable[[], None]) -> None:
        self._socket = end
        self._kept_back = kept_back
        """Called when ends are kept back while a task runs: somebody else has to tell them if it takes long."""
        self._lock = threading.Lock()
        self._tasks: deque[tuple[Any, ...]] = deque()
        """Received, and not begun."""
        self._over = False
        """Whether the agent is gone."""
        self._left = os.eventfd(0, os.EFD_CLOEXEC)
        """Wakes the thread for tasks that somebody else received for it."""
        self._woken = False
        self._news = select.poll()
        for file in (end.fileno(), self._left):
            self._news.register(file, select.POLLIN)
        self._ends: list[tuple[Any, ...]] = []
        self._since = 0.0
        """When the first of them came."""

    def close(self) -> None:
        """Let go of what nobody will work with."""
        self._socket.close()
        os.close(self._left)

    def take(self) -> tuple[Any, ...] | None:
        """The next task, waited for; None when the agent is gone."""
        task = self._draw()
        if task is None:
            with contextlib.suppress(OSError):
                self.tell()
        while task is None:
            if self._over:
                return None
            # Whoever has tasks given back must find each either here or in the socket, so it is not received before the lock is held.
            self._news.poll()
            task = self._draw()
        if self._ends:
            self._kept_back()
        return task

    def _draw(self) -> tuple[Any, ...] | None:
        """The next task, if there is one."""
        with self._lock:
            if self._woken:
                self._woken = False
                os.eventfd_read(self._left)
            if not self._tasks:
                self._receive()
            return self._tasks.popleft() if self._tasks else None

    def _receive(self) -> bool:
        """Take one message; False if there is none."""
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
        """Take tasks away, those of them that have not begun; which these are, in their order."""
        with self._lock:
            while self._receive():
                pass
            back = [task[0] for task in self._tasks if task[0] in keys]
            self._tasks = deque([task for task in self._tasks if task[0] not in keys])
            if self._tasks and not self._woken:
                # The thread may have found nothing just before, and would wait for a message that is not in the socket any more.
                self._woken = True
                os.eventfd_write(self._left, 1)
        return back

    def ended(self, end: tuple[Any, ...]) -> None:
        """A task of this thread is over; raises OSError when the agent is gone."""
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
        """Tell all that was kept back; False if that would have to wait. Raises OSError when the agent is gone."""
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
