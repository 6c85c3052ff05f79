"""Where sessions find a task: its process, its control groups, and the socket of its terminal."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spillover.core.events import Lease

_SOURCE: Final = str(Path(__file__).parents[3])


class Entry(NamedTuple):
    """The process of a task, and how to share its limits."""

    pid: int
    birth: int
    """Its start, which tells it from a later process with the same pid."""
    groups: tuple[str, ...] = ()
    """Files of control groups to write the pid of a new member to."""


def terminal_of(folder: Path, lease: Lease) -> Path:
    """Return the socket of a task's terminal, below the folder of the agent."""
    return folder / "terminals" / f"{lease.job}.{lease.attempt}.{lease.task}.{lease.seq}"


def started(module: str, words: Sequence[str]) -> list[str]:
    """Return a command that runs `main` of a module of this package, in an interpreter that loads little."""
    code = f"import sys; sys.path.append({_SOURCE!r}); from spillover.agent.sessions.{module} import main; main()"
    return [sys.executable, "-I", "-S", "-c", code, *words]


def hosted(command: Sequence[str], socket: Path) -> list[str]:
    """Return the command that runs another in a terminal."""
    return started("host", [str(socket), *command])
