"""A process beside each cluster that clears up behind it, however whoever started the cluster ended.

It waits for the end of its standard input, which comes when it is closed or when the process that holds it is gone, by `kill -9` too.
Then it kills every process that has the cluster's mark in its environment, and removes the cluster's folder. It is run as a file, with
nothing imported that takes long.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "SPILL_KUBE_CLUSTER"
"""The variable that says whose a process is: the folder of its cluster."""


def main(folder: str) -> None:
    """Wait, and clear up."""
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
    """Processes of a cluster that live."""
    mark = f"{MARK}={folder}\0".encode()
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if mark in _environment(pid)]


def _environment(pid: int) -> bytes:
    """What a process was started with; empty when it is gone, or not ours to look at."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main(sys.argv[1])
