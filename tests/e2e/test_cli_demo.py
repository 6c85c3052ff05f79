"""`spill demo` as a person sees it in a pipe."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
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
def test_the_demo_offers_its_page_on_a_terminal_and_stays_for_those_who_look(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, "-m", "spillover.cli", "demo"],
        env=dict(os.environ) | {"TMPDIR": str(tmp_path), "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    seen = ""

    def read_until(text: str) -> None:
        nonlocal seen
        until = time.monotonic() + 90
        while text not in seen:
            left = until - time.monotonic()
            assert left > 0, seen
            if select.select([master], [], [], left)[0]:
                seen += os.read(master, 65_536).decode()

    try:
        read_until("the link works once.")
        link = re.search(r"open (http://\S+)/sign-in#(\S+)", seen)
        assert link is not None
        with httpx.Client(base_url=link[1], headers={"Sec-Fetch-Site": "same-origin"}) as browser:
            assert browser.post("/v1/sign-in", json={"code": link[2]}).status_code == 201
            read_until("The server of the demo runs for your browser until you press Enter.")
            assert browser.get("/v1/me").json()["role"] == "admin"
        os.write(master, b"\n")
        assert demo.wait(30) == 0
    finally:
        demo.terminate()
        demo.wait(30)
        os.close(master)
    assert left_running(tmp_path) == []


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
