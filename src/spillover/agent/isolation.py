"""How tasks of an agent are kept apart and within what they asked for: chosen once, from what the system allows."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from spillover.agent.nursery.cgroups import CgroupsUnavailable, Tree, find

ISOLATIONS: Final = ("auto", "cgroup", "cgroup-v1", "cgroup-v2", "watch", "none")
"""What may be asked for: `cgroup` is either version, and `auto` that, or else `watch`."""
RECORD: Final = "cgroups"
"""The file in an agent's folder that names its groups, for the one who must remove them after a death."""


class Isolation(Struct, frozen=True):
    """What is used."""

    kind: str
    """cgroup-v1, cgroup-v2, watch or none."""
    folders: dict[str, str] = {}
    """Of groups, by controller."""
    why: str = ""
    """Why not something better; empty if there is nothing better."""

    def branch(self, number: int) -> dict[str, str]:
        """Groups for one of several nurseries; raises OSError."""
        return Tree(self.kind, self.folders).branch(str(number)).folders if self.folders else {}

    def remove_branch(self, number: int) -> None:
        """Kill whatever is left in the groups of a nursery that died, and remove them; raises OSError."""
        Tree(
            self.kind, {controller: f"{folder}/{number}" for controller, folder in self.folders.items()}
        ).remove()

    def __str__(self) -> str:
        match self.kind:
            case "none":
                return "none: memory is not limited, and a task that hides may leave processes for a while"
            case "watch":
                why = f" ({self.why})" if self.why else ""
                return f"watch: memory of tasks is looked at four times a second{why}"
        controllers = ", ".join(name for name in self.folders if name) or "no controller, memory is looked at"
        return f"{self.kind} ({controllers})"


def choose(wanted: str, folder: Path) -> Isolation:
    """What tasks of the agent in a folder are isolated by; raises OSError if it cannot be what is asked for."""
    if wanted not in ISOLATIONS:
        raise OSError(f"isolation {wanted!r} is none of {', '.join(ISOLATIONS)}")
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
    """End what is left in the groups that an earlier run made, and remove them; the number of processes that were."""
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / RECORD).read_text().splitlines()
        killed = Tree("", {str(number): line for number, line in enumerate(lines)}).remove()
        (folder / RECORD).unlink()
        return killed
    return 0
