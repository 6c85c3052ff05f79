"""Cleans up after a cluster in a separate process, however the process that started the cluster ended.

It waits for the end of its standard input, which comes when the holder closes it or is killed. Then it kills every
process with the mark of the cluster in its environment, and removes the folder of the cluster. It runs as a file, and
imports nothing that is slow to load.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "SPILL_KUBE_CLUSTER"
"""Environment variable with the folder of the cluster that a process belongs to."""


def main(folder: str) -> None:
    """Wait for the end of standard input, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    while alive := processes_of(folder):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: str) -> list[int]:
    """Return the living processes of a cluster."""
    mark = f"{MARK}={folder}\0".encode()
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if mark in _environment(pid)]


def _environment(pid: int) -> bytes:
    """Read the environment of a process; empty if it is gone or inaccessible."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main(sys.argv[1])
