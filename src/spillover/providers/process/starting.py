"""How the process of a machine is started, as the provider also tells it the program that forks agents."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

MARK: Final = "SPILL_MACHINE"
"""Environment variable of all processes of a machine: its folder."""


class Started(Struct, frozen=True):
    """How the process of a machine is started."""

    words: tuple[str, ...]
    """Its command line, without what it needs to join; empty for a machine on which nothing ever starts."""
    boot: float = 0.0
    """Seconds before it starts."""
    environ: Mapping[str, str] = {}
    umask: int = -1
    """For files of tasks; -1 for that of the server."""
    files: int | None = None
    """Most open files; None leaves the limit unchanged."""
    agent: bool = False
    """Whether `words` are only the arguments of an agent, which is forked."""
    folder: str = ""
    """The folder of the machine."""
