"""Manages the nurseries of an agent: their processes, their threads, and the sockets to both."""

import asyncio
import contextlib
import operator
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from spillover.agent.nursery import frames
from spillover.agent.nursery.marks import Marks
from spillover.agent.nursery.marks import make as make_marks
from spillover.agent.tasks.outlasting import outlast

_busy = operator.attrgetter("busy")
_tasks = operator.attrgetter("tasks")
_RUN: Final = f"import sys; sys.path.append({str(Path(__file__).parents[3])!r}); from spillover.agent.nursery.__main__ import main; main()"
"""Code with which an interpreter without our packages becomes a nursery."""


class Listener(NamedTuple):
    """The callbacks for messages of a nursery."""

    said: Callable[["NurseryProcess", Any], None]
    """Receives messages of the nursery itself."""
    heard: Callable[[list[bytes]], None]
    """Receives messages of its threads."""
    lost: Callable[["NurseryProcess"], None]
    """Receives a nursery that is gone."""
    put_aside: Callable[[int, bytes], bytes]
    """Writes a message that is too large into a file, and returns what to send instead."""


class NurseryProcess:
    """One of several nurseries. A process has one interpreter lock, so a second one doubles the rate of spawning."""

    def __init__(
        self,
        child: "subprocess.Popen[bytes]",
        control: "_Channel",
        marks: Marks,
        heard: Callable[[list[bytes]], None],
        put_aside: Callable[[int, bytes], bytes],
    ) -> None:
        self.child = child
        self._control = control
        self.marks = marks
        self._heard = heard
        self._put_aside = put_aside
        self._threads: dict[int, Thread] = {}
        self._idle: list[Thread] = []
        self._full = False
        """Whether the system allows no more threads."""

    @classmethod
    async def start(
        cls,
        setup: dict[str, Any],
        lock: int,
        listener: "Listener",
    ) -> Self:
        """Start its process; raise OSError if that fails."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undoing, theirs:
            undoing.callback(ours.close)
            file = make_marks()
            try:
                marks = Marks(file)
                undoing.callback(marks.close)
                child = await _spawn(theirs.fileno(), lock, file)
            finally:
                os.close(file)
            undoing.pop_all()

        def tell(messages: list[bytes]) -> None:
            for data in messages:
                listener.said(nursery, frames.unpack(data))

        def lost() -> None:
            listener.lost(nursery)

        nursery = cls(child, _Channel(ours, tell, lost), marks, listener.heard, listener.put_aside)
        nursery.say((frames.SETUP, setup))
        return nursery

    @property
    def busy(self) -> int:
        """Return how many threads have tasks."""
        return len(self._threads) - len(self._idle)

    def say(self, message: tuple[Any, ...]) -> None:
        """Send it a message."""
        self._control.send(frames.pack(message))

    def grow(self, threads: int) -> None:
        """Add threads until it can run so many tasks at a time, if the system allows."""
        while len(self._threads) < threads and not self._full:
            number = len(self._threads)
            try:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            except OSError:
                self._full = True
                return
            thread = self._threads[number] = Thread(self, number, ours, self._heard, self._put_aside)
            self._idle.append(thread)
            self._control.send(frames.pack((frames.THREAD, number)), theirs)

    @property
    def threads(self) -> Iterable["Thread"]:
        """All its threads."""
        return self._threads.values()

    def take_idle(self) -> "Thread | None":
        """Return a thread without tasks, a new one if needed; None if there can be none."""
        if not self._idle:
            self.grow(len(self._threads) + 1)
        return self._idle.pop() if self._idle else None

    def rest(self, thread: "Thread") -> None:
        """Mark a thread as idle."""
        if thread.number in self._threads:
            self._idle.append(thread)

    def refused(self, number: int) -> "Thread":
        """Remove a thread that the nursery could not start, and return it."""
        self._full = True
        thread = self._threads.pop(number)
        if thread in self._idle:
            self._idle.remove(thread)
        thread.close()
        return thread

    def read_rest(self) -> None:
        """Read what its threads sent before it died."""
        for thread in self._threads.values():
            thread.read_rest()

    def close_child(self) -> None:
        """Kill its process and wait for its end. Blocks."""
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        """Close the sockets, which ends it."""
        for thread in self._threads.values():
            thread.close()
        self._control.close()


async def _spawn(*files: int) -> "subprocess.Popen[bytes]":
    """Start the process of a nursery with these descriptors, and kill it if the caller was cancelled.

    A cancelled caller waits for the start. A thread cannot be cancelled, and would pass on descriptors that are closed
    by then.
    """
    # -I and -S keep it small: no site, and none of our packages but itself. Its own session shields it from Ctrl-C.
    spawning = asyncio.create_task(
        asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-I", "-S", "-c", _RUN, *map(str, files)],
            stdin=subprocess.DEVNULL,
            pass_fds=files,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await outlast(spawning)
        if spawning.exception() is None:
            child = spawning.result()
            child.kill()
            await asyncio.to_thread(child.wait)
        raise


def pick(nurseries: Iterable[NurseryProcess]) -> "Thread | None":
    """Return an idle thread of the nursery with the fewest busy ones, or else the thread with the fewest tasks."""
    for nursery in sorted(nurseries, key=_busy):
        if (thread := nursery.take_idle()) is not None:
            return thread
    return min((thread for nursery in nurseries for thread in nursery.threads), key=_tasks, default=None)


class Thread:
    """One thread of a nursery. It runs its tasks one after the other."""

    def __init__(
        self,
        nursery: NurseryProcess,
        number: int,
        end: socket.socket,
        heard: Callable[[list[bytes]], None],
        put_aside: Callable[[int, bytes], bytes],
    ) -> None:
        self.nursery = nursery
        self.number = number
        self.tasks = 0
        """Number of tasks that it has."""
        self.slot = -1
        """The slot whose tasks it runs; -1 if none will follow."""
        self._channel = _Channel(end, heard, lambda: None)
        self._put_aside = put_aside
        """Writes a message that is too large into a file, and returns what to send instead."""
        self._unsent: dict[int, tuple[Any, ...]] = {}

    def give(self, task: tuple[Any, ...]) -> None:
        """Add a task to the next `send`."""
        self._unsent[task[0]] = task

    def take_back(self, key: int) -> bool:
        """Remove a task that was not sent; return False if it was."""
        return self._unsent.pop(key, None) is not None

    def send(self) -> None:
        """Send its new tasks. Those that do not fit into the socket can still be taken back."""
        together = frames.pack(list(self._unsent.values()))
        if len(together) <= frames.LARGEST:
            if self._unsent and self._channel.offer(together, self.send):
                self._unsent.clear()
            return
        for key, task in list(self._unsent.items()):
            data = frames.pack([task])
            if len(data) > frames.LARGEST:
                data = self._put_aside(key, data)
            if not self._channel.offer(data, self.send):
                return
            del self._unsent[key]

    def read_rest(self) -> None:
        """Read what it sent."""
        self._channel.read()

    def close(self) -> None:
        """Close its socket."""
        self._channel.close()


class _Channel:
    """Our end of a pair of sockets that preserves message boundaries."""

    def __init__(
        self, end: socket.socket, heard: Callable[[list[bytes]], None], lost: Callable[[], None]
    ) -> None:
        self._socket = end
        self._heard = heard
        self._lost = lost
        self._unsent: deque[tuple[bytes, socket.socket | None]] = deque()
        self._loop = asyncio.get_running_loop()
        end.setblocking(False)
        self._loop.add_reader(end, self.read)

    def send(self, data: bytes, enclosed: socket.socket | None = None) -> None:
        """Send a message, now or when the socket has space, and with it a socket that then belongs to the receiver."""
        if not self._unsent:
            try:
                self._put(data, enclosed)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._write)
            except OSError:
                return  # the other end is gone, and reading reports that too
            else:
                return
        self._unsent.append((data, enclosed))

    def offer(self, data: bytes, again: Callable[[], None]) -> bool:
        """Send a message if the socket has space; otherwise return False, and call `again` when it has."""
        try:
            self._socket.send(data)
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._try_again, again)
            return False
        except OSError:
            pass  # the other end is gone, and reading reports that too
        return True

    def _try_again(self, again: Callable[[], None]) -> None:
        self._loop.remove_writer(self._socket)
        again()

    def _put(self, data: bytes, enclosed: socket.socket | None) -> None:
        if enclosed is None:
            self._socket.send(data)
        else:
            socket.send_fds(self._socket, [data], [enclosed.fileno()])
            enclosed.close()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while self._unsent:
                self._put(*self._unsent[0])
                self._unsent.popleft()
            self._loop.remove_writer(self._socket)

    def read(self) -> None:
        """Read everything that has arrived."""
        messages: list[bytes] = []
        receive, over = self._socket.recv, False
        try:
            while data := receive(frames.LARGEST):
                messages.append(data)
            over = True
        except BlockingIOError:
            pass
        except OSError:
            over = True
        if messages:
            self._heard(messages)
        if over:
            self.close()
            self._lost()

    def close(self) -> None:
        """Close the socket, and those that were not sent."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        for _, enclosed in self._unsent:
            if enclosed is not None:
                enclosed.close()
        self._unsent.clear()
