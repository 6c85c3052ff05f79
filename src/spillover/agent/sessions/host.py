"""Holds the terminal of a task: runs its command in a pseudo-terminal, to which people attach and from which they detach.

It is the first process of the task, so the limits of the task hold for it, and it ends with the command and its exit code. The
agent connects to its socket for each client. What the command prints also goes to standard output, which is the log of the
task. It loads little: `... SOCKET COMMAND...`
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from typing import Final, NoReturn

from spillover.agent.sessions.entering import run
from spillover.wire.relay import BadFrame, Frame, FrameKind, FrameReader, ended, failed

FIRST: Final = 10.0
"""Seconds to wait for the size of the first client's terminal before the command starts without one."""
HANG_UP: Final = 2.0
"""Seconds between TERM and HUP for a command that ignores TERM, as interactive shells do."""
LAST_WORDS: Final = 5.0
"""Seconds that a client has to read the end."""
RECENT: Final = 16 << 10
"""Bytes of the last output that a new client gets."""
AHEAD: Final = 64 << 10
"""Bytes that may wait in each direction. Then their source is not read, so the command waits."""
LOOK: Final = 0.1
"""Seconds between two looks at a terminal that no program has open, as nothing can wait until one opens it again."""
PIECE: Final = 16 << 10
SIZE: Final = (24, 80)
"""Rows and columns if nobody attaches in time."""
SIGNALS: Final = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGKILL,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
        signal.SIGTSTP,
        signal.SIGWINCH,
    }
)
"""Signals that clients may send."""


class Client:
    """A client that is attached."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.reader = FrameReader()
        self.unsent = bytearray()

    def flush(self) -> None:
        """Send as much as it takes now; raise OSError if it is gone."""
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                del self.unsent[: self.connection.send(self.unsent)]


class TerminalHost:
    """One command in its terminal."""

    def __init__(self, path: str, command: list[str]) -> None:
        self._command = command
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._client: Client | None = None
        self._size: tuple[int, int] | None = None
        """Rows and columns; None before a client told them."""
        self._master = -1
        self._pid = 0
        self._status: int | None = None
        self._typed = bytearray()
        """Input that the terminal has not taken yet."""
        self._recent = bytearray()
        self._hang_up: float | None = None
        """When to send HUP, on the monotonic clock."""
        self._look = 0.0
        """When to look at the terminal again, on the monotonic clock."""
        self._news, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def run(self) -> NoReturn:
        """Run the command, and end as it does."""
        self._listen()
        start = time.monotonic() + FIRST
        while self._status is None:
            if not self._pid and (self._size is not None or time.monotonic() >= start):
                self._start(self._size or SIZE)
            due = [] if self._pid else [start]
            due += [] if self._hang_up is None else [self._hang_up]
            self._turn(min(due) - time.monotonic() if due else None)
        self._drain()
        self._tell(ended(self._status).encoded())
        self._say_goodbye()
        os.unlink(self._path)  # noqa: PTH108 - pathlib would have to be loaded
        if self._status < 0:
            number = -self._status
            with contextlib.suppress(OSError):
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        os._exit(max(0, self._status))

    def _listen(self) -> None:
        """Listen at the path, which may be longer than a socket's name."""
        folder, name = os.path.split(self._path)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket.bind(f"/proc/self/fd/{at}/{name}")
        self._socket.listen()
        self._socket.setblocking(False)
        os.close(at)

    def _start(self, size: tuple[int, int]) -> None:
        """Start the command in a terminal of this size."""
        self._master, theirs = os.openpty()
        os.set_blocking(self._master, False)
        self._resize(size)
        self._pid = os.fork()
        if not self._pid:
            os.login_tty(theirs)
            run(self._command, dict(os.environ))
        os.close(theirs)

    # --- one turn

    def _turn(self, seconds: float | None) -> None:
        """Wait for anything to happen, and deal with it."""
        client = self._client
        wants: dict[int, int] = {self._news: select.POLLIN, self._socket.fileno(): select.POLLIN}
        if client is not None:
            at = client.connection.fileno()
            wants[at] = select.POLLIN if len(self._typed) < AHEAD else 0
            wants[at] |= select.POLLOUT if client.unsent else 0
        unused = self._look - time.monotonic()
        if unused > 0:
            seconds = unused if seconds is None else min(seconds, unused)
        elif self._master >= 0:
            full = client is not None and len(client.unsent) >= AHEAD
            wants[self._master] = (0 if full else select.POLLIN) | (select.POLLOUT if self._typed else 0)
        poll = select.poll()
        for file, events in wants.items():
            if events:
                poll.register(file, events)
        found = dict(poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1)))
        if self._news in found:
            self._signalled()
        if self._hang_up is not None and time.monotonic() >= self._hang_up:
            self._hang_up = None
            self._signal(signal.SIGHUP)
        if found.get(self._master, 0) & (select.POLLIN | select.POLLHUP):
            self._printed()
        if self._typed:
            with contextlib.suppress(OSError):
                del self._typed[: os.write(self._master, self._typed)]
        if client is not None and client.connection.fileno() in found:
            self._talk(client)
        if self._socket.fileno() in found:
            self._attach()

    def _signalled(self) -> None:
        """Deal with signals that have arrived."""
        for number in os.read(self._news, 4096):
            if number == signal.SIGTERM:
                if not self._pid:
                    self._status = -signal.SIGTERM
                    return
                self._signal(signal.SIGTERM)
                self._hang_up = time.monotonic() + HANG_UP
        if self._pid:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    self._status = os.waitstatus_to_exitcode(status)

    def _signal(self, number: int) -> None:
        """Signal the command, and what runs in the foreground of its terminal."""
        groups = {self._pid}
        with contextlib.suppress(OSError):
            groups.add(os.tcgetpgrp(self._master))
        for group in groups - {0}:
            with contextlib.suppress(OSError):
                os.killpg(group, number)

    def _printed(self) -> bool:
        """Pass a piece of output on; return whether there was one."""
        try:
            piece = os.read(self._master, PIECE)
        except BlockingIOError:
            return False
        except OSError:  # no program has the terminal open
            self._look = time.monotonic() + LOOK
            return False
        if not piece:
            return False
        left = memoryview(piece)
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(1, left) :]
        self._recent += piece
        del self._recent[:-RECENT]
        self._tell(Frame(FrameKind.DATA, piece).encoded())
        return True

    def _drain(self) -> None:
        """Pass on what the command printed before its end."""
        while self._master >= 0 and self._printed():
            pass

    # --- clients

    def _attach(self) -> None:
        """Take a new client, which replaces the one before."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        if self._client is not None:
            self._tell(failed("somebody else has attached to this terminal").encoded())
            self._drop()
        self._client = Client(connection)
        self._tell(Frame(FrameKind.READY).encoded())
        if self._recent:
            self._tell(Frame(FrameKind.DATA, bytes(self._recent)).encoded())

    def _talk(self, client: Client) -> None:
        """Read from a client and write to it."""
        try:
            client.flush()
            if len(self._typed) >= AHEAD:
                return
            piece = client.connection.recv(PIECE)
            if not piece:
                self._drop()
            for frame in client.reader.feed(piece):
                self._obey(frame)
        except BlockingIOError:
            pass
        except (OSError, BadFrame):
            if self._client is client:
                self._drop()

    def _obey(self, frame: Frame) -> None:
        """Do what a frame says."""
        match frame.kind:
            case FrameKind.DATA:
                self._typed += frame.data
            case FrameKind.RESIZE:
                self._resize(frame.size)
            case FrameKind.SIGNAL if self._pid and frame.number in SIGNALS:
                self._signal(frame.number)
            case _:
                pass

    def _resize(self, size: tuple[int, int]) -> None:
        """Set the size of the terminal; the kernel tells the command."""
        self._size = size
        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def _tell(self, data: bytes) -> None:
        """Send bytes to the client, if there is one."""
        if (client := self._client) is not None:
            client.unsent += data
            try:
                client.flush()
            except OSError:
                self._drop()

    def _drop(self) -> None:
        """Forget the client."""
        if self._client is not None:
            self._client.connection.close()
            self._client = None

    def _say_goodbye(self) -> None:
        """Give the client some time to read the end."""
        client, until = self._client, time.monotonic() + LAST_WORDS
        with contextlib.suppress(OSError):
            while client is not None and client.unsent and time.monotonic() < until:
                select.select([], [client.connection], [], until - time.monotonic())
                client.flush()


def main() -> None:
    """Run the command of the command line; does not return."""
    TerminalHost(sys.argv[1], sys.argv[2:]).run()
