"""Drives the terminal as a full screen: alternate buffer, single keys, size, and signals.

Writes only lines that changed, which avoids flicker and traffic. Restores the terminal in every case.
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
"""Switches to the alternate buffer, hides the cursor, and clears the buffer."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"


class Screen:
    """A terminal that shows frames and takes keys."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._keyboard = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._found: list[int | list[bytes | int]] = []
        """Settings of the terminal before we changed them."""
        self._drawn: list[str] = []
        self._ear, self._mouth = os.pipe()
        """A pipe by which signals and answers of the server wake `wait`."""
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        self._over = False

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Use the whole terminal until the block ends."""
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
        """Columns and lines of the terminal; 80 and 24 if unknown."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return max(1, columns), max(1, lines)

    def draw(self, lines: "Sequence[Text]") -> None:
        """Show a frame: write the lines that differ from the last one, in a single write."""
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
        """Wait for keys or a wake-up; return the keys, or `quit` if the terminal is gone."""
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
        """Let `wait` return; safe in any thread and in signal handlers."""
        with contextlib.suppress(OSError):
            os.write(self._mouth, b".")

    def _ended(self) -> bool:
        """Tell whether a signal asked us to end, or the terminal is gone."""
        return self._over

    def _text(self, line: "Text") -> str:
        """Render a line with its escape sequences."""
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
        """Write all of the text unbuffered; end the view if the terminal is gone."""
        data = text.encode()
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            self._over = True

    def _told(self, number: int, _: FrameType | None) -> None:
        """Handle a signal: redraw everything after a change of size, else end."""
        if number == signal.SIGWINCH:
            self._drawn = []
        else:
            self._over = True
        self.wake()

    def _suspend(self, number: int, _: FrameType | None) -> None:
        """Restore the terminal while the process is stopped."""
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._suspend)
        self._enter()
        self.wake()
