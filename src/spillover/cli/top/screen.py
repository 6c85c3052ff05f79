"""The terminal as a screen: another page of it, keys as they are typed, its size, and signals.

Lines are written only when they changed, so that nothing flickers and little is sent; whatever happens, the terminal is left as
it was found.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from spillover.cli.top.view import keys_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""The other page, no cursor, empty."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"


class Screen:
    """A terminal that shows frames and takes keys."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._keyboard = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._found: list[int | list[bytes | int]] = []
        """Settings of the terminal as they were."""
        self._drawn: list[str] = []
        self._ear, self._mouth = os.pipe()
        """What wakes the one that waits: signals and answers of the server."""
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        self._over = False

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Be a screen for a while."""
        before = {
            each: signal.signal(each, self._told) for each in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP)
        }
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)
        self._enter()
        try:
            yield
        finally:
            self._leave()
            for each, handler in before.items():
                signal.signal(each, handler)
            ear, mouth, self._ear, self._mouth = self._ear, self._mouth, -1, -1
            os.close(ear)
            os.close(mouth)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return max(1, columns), max(1, lines)

    def draw(self, lines: "Sequence[Text]") -> None:
        """Show a frame: what differs from the last one is written, in one go."""
        texts = [self._text(line) for line in lines]
        parts = [
            f"\x1b[{row};1H{text}\x1b[K"
            for row, text in enumerate(texts, 1)
            if row > len(self._drawn) or self._drawn[row - 1] != text
        ]
        if len(texts) < len(self._drawn):
            parts.append(f"\x1b[{len(texts) + 1};1H\x1b[J")
        self._drawn = texts
        self._write("".join(parts))

    def wait(self) -> list[str]:
        """Wait for keys, or for somebody to wake; returns the keys, `quit` if the terminal went away."""
        if self._ended():
            return ["quit"]
        ready, _, _ = select.select([self._keyboard, self._ear], [], [])
        if self._ear in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._ear, 4096)
        if self._ended():
            return ["quit"]
        if self._keyboard not in ready:
            return []
        try:
            typed = os.read(self._keyboard, 1024)
        except OSError:
            typed = b""
        return keys_of(typed) if typed else ["quit"]

    def wake(self) -> None:
        """Let `wait` return; from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._mouth, b".")

    def _ended(self) -> bool:
        """Whether a signal told us to end, or the terminal went away."""
        return self._over

    def _text(self, line: "Text") -> str:
        """A line as the terminal takes it."""
        with self._console.capture() as captured:
            self._console.print(line, end="")
        return captured.get()

    def _enter(self) -> None:
        self._found = termios.tcgetattr(self._keyboard)
        tty.setcbreak(self._keyboard)
        self._drawn = []
        self._write(_ENTER)

    def _leave(self) -> None:
        self._write(_LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._found)

    def _write(self, text: str) -> None:
        """All of it, past what Python buffers; a terminal that is gone is told by the keyboard."""
        data = text.encode()
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            self._over = True

    def _told(self, number: int, _: FrameType | None) -> None:
        """Draw all of it anew when the size changed, else end."""
        if number == signal.SIGWINCH:
            self._drawn = []
        else:
            self._over = True
        self.wake()

    def _suspend(self, number: int, _: FrameType | None) -> None:
        """Give the terminal back while we are stopped."""
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._suspend)
        self._enter()
        self.wake()
