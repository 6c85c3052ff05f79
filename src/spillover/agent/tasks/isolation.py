"""Chooses how an agent isolates its tasks and enforces their limits, once, from what the system supports."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from spillover.agent.nursery.cgroups import CgroupsUnavailable, Tree, find

ISOLATIONS: Final = ("auto", "cgroup", "cgroup-v1", "cgroup-v2", "watch", "none")
"""Accepted values. `cgroup` is either version, and `auto` uses that or else `watch`."""
RECORD: Final = "cgroups"
"""File in an agent's folder that lists its control groups, so that the next run can remove them."""


class Isolation(Struct, frozen=True):
    """The isolation in use."""

    kind: str
    """cgroup-v1, cgroup-v2, watch or none."""
    folders: dict[str, str] = {}
    """Folders of control groups, by controller."""
    why: str = ""
    """Why nothing better is in use; empty if there is nothing better."""

    def branch(self, number: int) -> dict[str, str]:
        """Create control groups for one of several nurseries; raise OSError if that fails."""
        return Tree(self.kind, self.folders).branch(str(number)).folders if self.folders else {}

    def remove_branch(self, number: int) -> None:
        """Kill all processes in the groups of a dead nursery, and remove the groups; raise OSError if that fails."""
        Tree(
            self.kind, {controller: f"{folder}/{number}" for controller, folder in self.folders.items()}
        ).remove()

    def __str__(self) -> str:
        match self.kind:
            case "none":
                return "none: no memory limit, and a task may leave processes behind for a while"
            case "watch":
                why = f" ({self.why})" if self.why else ""
                return f"watch: memory of tasks is checked four times a second{why}"
        controllers = ", ".join(name for name in self.folders if name) or "no controller, memory is polled"
        return f"{self.kind} ({controllers})"


def choose(wanted: str, folder: Path) -> Isolation:
    """Choose the isolation for the agent in a folder; raise OSError if the wanted one is unavailable."""
    if wanted not in ISOLATIONS:
        raise OSError(f"unknown isolation {wanted!r}; write one of {', '.join(ISOLATIONS)}")
    if wanted in {"watch", "none"}:
        return Isolation(wanted)
    try:
        tree = find(
            f"spill-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}", wanted.replace("auto", "cgroup")
        )
    except CgroupsUnavailable as error:
        if wanted == "auto":
            return Isolation("watch", why=f"no control groups: {error}")
        raise OSError(f"--isolation {wanted}: {error}") from None
    (folder / RECORD).write_text("".join(f"{each}\n" for each in dict.fromkeys(tree.folders.values())))
    return Isolation(tree.kind, tree.folders)


def remove_groups(folder: Path) -> int:
    """Kill what is left in the groups of an earlier run, and remove them; return how many processes were killed."""
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / RECORD).read_text().splitlines()
        killed = Tree("", {str(number): line for number, line in enumerate(lines)}).remove()
        (folder / RECORD).unlink()
        return killed
    return 0
