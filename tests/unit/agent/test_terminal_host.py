"""The program that holds the terminal of a task."""

import os
import socket
import subprocess
from pathlib import Path

from spillover.agent.sessions.places import hosted
from spillover.wire.relay import FrameKind, FrameReader, resize


def test_a_command_that_closes_its_terminal_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "terminal"
    # It comes back to its terminal at the end.
    line = "exec <&- >&- 2>&-; sleep 1.5; echo back > /dev/tty; exit 3"
    with subprocess.Popen(hosted(["sh", "-c", line], path), stdout=subprocess.PIPE) as host:
        client = socket.socket(socket.AF_UNIX)
        while client.connect_ex(str(path)):
            assert host.poll() is None
        client.sendall(resize(24, 80).encoded())
        reader, frames = FrameReader(), []
        while piece := client.recv(4096):
            frames += reader.feed(piece)
        client.close()
        _, status, used = os.wait4(host.pid, 0)
        host.returncode = os.waitstatus_to_exitcode(status)
    assert [frame.kind for frame in frames] == [FrameKind.READY, FrameKind.DATA, FrameKind.EXIT]
    assert (frames[1].data, frames[2].number) == (b"back\r\n", 3)
    assert used.ru_stime + used.ru_utime < 0.5
