"""`spill demo` as a person sees it in a pipe."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "spillover.cli", "demo"],
        env=dict(os.environ) | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_running(folder: Path) -> list[str]:
    """Processes that were started in the demo's folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.slow
def test_the_demo_spills_over_and_leaves_nothing_behind(tmp_path: Path) -> None:
    began = time.monotonic()
    demo = start(tmp_path)
    out, errors = demo.communicate(timeout=90)
    assert (demo.returncode, errors) == (0, "")
    assert time.monotonic() - began < 60
    assert "spills over to cloud: its wait ended" in out
    assert "runs on onprem: owned capacity had room" in out
    assert "41, of which 40 succeeded" in out
    assert "\nnext:\n" in out
    assert "\x1b" not in out
    assert list(tmp_path.iterdir()) == []
    assert left_running(tmp_path) == []


def test_ctrl_c_stops_the_demo_and_all_it_started(tmp_path: Path) -> None:
    demo = start(tmp_path)
    assert demo.stdout is not None
    while "runs on" not in demo.stdout.readline():
        assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=20)
    assert (demo.returncode, errors) == (130, "")
    assert list(tmp_path.iterdir()) == []
    assert left_running(tmp_path) == []
