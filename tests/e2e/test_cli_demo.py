"""`spill demo` as a person sees it in a pipe."""

import os
import re
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
    """Processes that were started in the demo's folder, also machines that still boot."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        line = " ".join(process.info["cmdline"] or ())
        marks = {name: value for name, value in (process.info["environ"] or {}).items() if name != "TMPDIR"}
        if str(folder) in line or any(str(folder) in value for value in marks.values()):
            found.append(line)
    return found


@pytest.mark.slow
def test_the_demo_rents_machines_gives_them_back_and_leaves_nothing_behind(tmp_path: Path) -> None:
    began = time.monotonic()
    demo = start(tmp_path)
    out, errors = demo.communicate(timeout=90)
    assert (demo.returncode, errors) == (0, "")
    assert time.monotonic() - began < 75
    assert "spills over to cloud: its wait ended" in out
    assert "runs on onprem: owned capacity had room" in out
    assert "41, of which 40 succeeded" in out
    for part in (
        r"a machine is ordered for \S+",
        r"is ready after \d",
        "is given back: it was empty",
        "is gone; it cost",
    ):
        assert re.search(rf"\n *[\d.]+s  cloud-1 +{part}", out), part
    rent = re.search(r"\nrent +([\d.]+) USD for \d+ machines?, all given back\n", out)
    parts = re.search(r"\nof that +([\d.]+) useful, ([\d.]+) boot, ([\d.]+) idle\n", out)
    assert rent is not None
    assert parts is not None
    assert sum(map(float, parts.groups())) == pytest.approx(float(rent[1]), abs=0.02)
    assert all(float(part) > 0 for part in parts.groups())
    assert re.search(r"\nas they ran .*\nall rented, simulated .*\nnever rented, simulated .* 0.00\n", out)
    assert "\nnext:\n" in out
    assert "\x1b" not in out
    assert list(tmp_path.iterdir()) == []
    assert left_running(tmp_path) == []


def test_ctrl_c_while_machines_boot_stops_the_demo_and_all_it_started(tmp_path: Path) -> None:
    demo = start(tmp_path)
    assert demo.stdout is not None
    while "a machine is ordered" not in demo.stdout.readline():
        assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=20)
    assert (demo.returncode, errors) == (130, "")
    assert list(tmp_path.iterdir()) == []
    assert left_running(tmp_path) == []
