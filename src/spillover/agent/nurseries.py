"""The agent's side of its nurseries: their processes, their threads, and the sockets to both."""

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
from spillover.agent.outlasting import outlast

_busy = operator.attrgetter("busy")
_tasks = operator.attrgetter("tasks")
_RUN: Final = f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); from spillover.agent.nursery.__main__ import main; main()"
"""How an interpreter that knows nothing of our packages becomes the nursery."""


class Listener(NamedTuple):
    """Who is told what becomes of tasks."""

    said: Callable[["NurseryProcess", Any], None]
    """Told what comes from a nursery itself."""
    heard: Callable[[list[bytes]], None]
    """Told what comes from its threads."""
    lost: Callable[["NurseryProcess"], None]
    """Told when one is gone."""
    put_aside: Callable[[int, bytes], bytes]
    """Puts a task into a file that is too large for a message; what to send instead."""


class NurseryProcess:
    """One of several: a process has one lock for all its threads, so a second one spawns twice as fast."""

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
        """Start its process; raises OSError."""
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
        """How many threads have something to do."""
        return len(self._threads) - len(self._idle)

    def say(self, message: tuple[Any, ...]) -> None:
        """Tell it something."""
        self._control.send(frames.pack(message))

    def grow(self, threads: int) -> None:
        """Have it ready for so many tasks at a time, if the system allows."""
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
        """All that it has."""
        return self._threads.values()

    def take_idle(self) -> "Thread | None":
        """A thread that has nothing to do, made if need be; None if there can be none."""
        if not self._idle:
            self.grow(len(self._threads) + 1)
        return self._idle.pop() if self._idle else None

    def rest(self, thread: "Thread") -> None:
        """A thread has nothing more to do."""
        if thread.number in self._threads:
            self._idle.append(thread)

    def refused(self, number: int) -> "Thread":
        """It cannot have a thread; which one that is."""
        self._full = True
        thread = self._threads.pop(number)
        if thread in self._idle:
            self._idle.remove(thread)
        thread.close()
        return thread

    def hear_out(self) -> None:
        """Take what its threads told before it was gone."""
        for thread in self._threads.values():
            thread.hear_out()

    def close_child(self) -> None:
        """See its process gone. Blocks."""
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        """Let go of it, by which it ends."""
        for thread in self._threads.values():
            thread.close()
        self._control.close()


async def _spawn(*files: int) -> "subprocess.Popen[bytes]":
    """Make the process of a nursery, which is given these files, and end it if nobody wants it any more.

    Who is cancelled meanwhile waits for it: a thread cannot be, and would hand over files that are closed by then.
    """
    # -I and -S keep it small: none of our packages but itself, no site. A session of its own keeps Ctrl-C away from it.
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
    """An idle thread of the nursery that has the fewest busy ones; where none can be had, the one that has the least to do."""
    for nursery in sorted(nurseries, key=_busy):
        if (thread := nursery.take_idle()) is not None:
            return thread
    return min((thread for nursery in nurseries for thread in nursery.threads), key=_tasks, default=None)


class Thread:
    """One thread of a nursery: it runs what it is handed one after the other."""

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
        """How many it has."""
        self.slot = -1
        """Whose tasks it runs; -1 if none will follow."""
        self._channel = _Channel(end, heard, lambda: None)
        self._put_aside = put_aside
        """Puts work into a file that is too large for a message; what to send instead."""
        self._unsent: dict[int, tuple[Any, ...]] = {}

    def give(self, task: tuple[Any, ...]) -> None:
        """Hand it a task with the next `send`."""
        self._unsent[task[0]] = task

    def take_back(self, key: int) -> bool:
        """Take a task away that was not sent; False if it was."""
        return self._unsent.pop(key, None) is not None

    def send(self) -> None:
        """Send what it was given; what there is no room for can be taken back until there is."""
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

    def hear_out(self) -> None:
        """Take what it told."""
        self._channel.read()

    def close(self) -> None:
        """Let go of it."""
        self._channel.close()


class _Channel:
    """Our end of a pair of sockets that keeps messages apart."""

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
        """Send a message, at once if there is room, and a socket with it, which is theirs from then on."""
        if not self._unsent:
            try:
                self._put(data, enclosed)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._write)
            except OSError:
                return  # it is gone, which is read as well
            else:
                return
        self._unsent.append((data, enclosed))

    def offer(self, data: bytes, again: Callable[[], None]) -> bool:
        """Send a message if there is room; if there is none, the last argument is called once there is."""
        try:
            self._socket.send(data)
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._try_again, again)
            return False
        except OSError:
            pass  # it is gone, which is read as well
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
        """Take all that is there."""
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
        """Let go of it."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        for _, enclosed in self._unsent:
            if enclosed is not None:
                enclosed.close()
        self._unsent.clear()
