"""Locks the folder of an agent for one process at a time, and describes that agent in a file for other programs."""

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
    """Another agent uses this folder."""


def lock(folder: Path) -> int:
    """Lock the folder until the returned descriptor is closed; raise FolderTaken if another process has it."""
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
    """Write the description of this agent."""
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


def delete_description(folder: Path) -> None:
    """Delete the description."""
    (folder / DESCRIPTION).unlink(missing_ok=True)
