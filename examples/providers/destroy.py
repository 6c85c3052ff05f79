#!/usr/bin/env python3
"""Destroys machines. One that is gone, or never was, counts as destroyed."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def runs(folder: Path) -> bool:
    """Return whether the process of a machine runs."""
    try:
        with (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def end(folder: Path) -> str:
    """End a machine; return why it still runs, or nothing."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if runs(folder):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                os.killpg(int((folder / "pid").read_text()), number)
        until = time.monotonic() + 5
        while runs(folder) and time.monotonic() < until:
            time.sleep(0.02)
    if runs(folder):
        return "its process does not end"
    shutil.rmtree(folder, ignore_errors=True)
    return ""


asked = json.load(sys.stdin)
there = {each.name: each for each in Path(os.environ["MACHINES"]).glob("[!.]*")}
ends = {id_: end(there[id_]) for id_ in asked["ids"] if id_ in there}
print(json.dumps({"failed": {id_: why for id_, why in ends.items() if why}}))
