"""The folder of an agent: one agent at a time lives in it, and says so to whoever looks."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from spillover.agent.options import AgentOptions
from spillover.model.units import format_time

DESCRIPTION: Final = "agent.json"


class FolderTaken(Exception):
    """Another agent lives in this folder."""


def lock(folder: Path) -> int:
    """Take the folder for this process, for as long as what is returned is open; raises Taken."""
    (folder / "output").mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(held, 32, 0).decode(errors="replace").strip()
        os.close(held)
        raise FolderTaken(
            f"another agent (pid {holder}) uses {folder}; stop it or choose another --name"
        ) from None
    os.ftruncate(held, 0)
    os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
    return held


def describe(options: AgentOptions) -> None:
    """Say who lives here."""
    described = {
        "pid": os.getpid(),
        "name": options.name,
        "cluster": options.cluster,
        "capacity": {
            "cpu": options.capacity.cpu,
            "memory": options.capacity.memory,
            "gpu": options.capacity.gpu,
        },
        "started": format_time(time.time_ns()),
    }
    new = options.folder / f"{DESCRIPTION}.new"
    new.write_bytes(msgspec.json.encode(described))
    new.replace(options.folder / DESCRIPTION)


def undescribe(folder: Path) -> None:
    """Nobody lives here any more."""
    (folder / DESCRIPTION).unlink(missing_ok=True)
