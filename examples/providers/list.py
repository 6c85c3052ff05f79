#!/usr/bin/env python3
"""Lists all machines with their tags. The server picks its own by the tags, or by the name if these are lost."""

import fcntl
import json
import os
from pathlib import Path


def state_of(folder: Path) -> str:
    """Return whether the process of a machine runs."""
    try:
        with (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except FileNotFoundError:
        return "pending"
    return "gone" if (folder / "pid").exists() else "pending"


def tags_of(folder: Path) -> dict[str, str]:
    """Return the tags of a machine; none if they are lost."""
    try:
        tags: dict[str, str] = json.loads((folder / "tags.json").read_text())
    except FileNotFoundError:
        return {}
    return tags


machines = sorted(Path(os.environ["MACHINES"]).glob("[!.]*"))
listed = [
    {"id": each.name, "name": each.name, "state": state_of(each), "tags": tags_of(each)} for each in machines
]
print(json.dumps({"machines": listed}))
