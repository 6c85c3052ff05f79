"""`spill top` on a real terminal against a real server: frames come, keys work, restarts are survived, the terminal is left as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.client import Client
from tests.support.processes import ServerProcess

OWN = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from spillover.cli.main import main; sys.exit(main())"
"""Take the terminal, so that its signals come here, and run the command line."""
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color"},
        )
        self.slave = slave
        self.seen = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, text: str, within: float = 30.0) -> str:
        """Read until something was shown since this was last asked; returns what came."""
        came, deadline = "", time.monotonic() + within
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", came) and text not in came:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was not shown; there was {came[-2000:]!r}"
            ready, _, _ = select.select([self.master], [], [], left)
            if ready:
                came += os.read(self.master, 65536).decode(errors="replace")
        self.seen += came
        return came

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def make(*arguments: str) -> Terminal:
        made.append(Terminal(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


def busy(server: ServerProcess) -> None:
    """Two jobs run and one waits."""
    with Client(data=server.data) as client:
        for name in ("first", "second", "third"):
            client.submit(run="sleep 60", name=name, cpu=1)


def test_frames_come_keys_work_and_q_leaves(server: ServerProcess, terminal: Callable[..., Terminal]) -> None:
    busy(server)
    top = terminal("top", "--data", str(server.data), "--interval", "0.2")
    top.until("1 all")
    assert ENTERED in top.seen
    assert "leader, epoch 1" in top.seen
    top.until("third")  # a frame at the latest when it is queued
    top.type("2")
    top.until("queue: 1")
    top.type("3")
    top.until("LEASED")
    top.type("p")
    top.until("paused")
    top.resize(120, 40)
    top.until("LEASED")
    top.type("q")
    top.until(LEFT)
    assert top.process.wait(timeout=10) == 0
    assert termios.tcgetattr(top.slave) == top.before


def test_a_restart_is_told_and_survived(
    start_server: Callable[..., ServerProcess], tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    server = start_server("--slots", "2")
    top = terminal("top", "--data", str(server.data), "--interval", "0.2")
    top.until("leader, epoch 1")
    server.stop()
    top.until("retrying")
    start_server("--slots", "2")  # on another port
    top.until("leader, epoch 2")
    top.process.send_signal(signal.SIGTERM)
    top.until(LEFT)
    assert top.process.wait(timeout=10) == 0


def test_without_a_server_it_says_so_in_one_line(tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    top = terminal("top", "--data", str(tmp_path / "nothing"))
    assert top.process.wait(timeout=30) == 2
    said = top.until("spill: ")
    assert ENTERED not in said
