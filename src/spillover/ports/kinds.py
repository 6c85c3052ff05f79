"""What a kind of cluster brings: its part of spill.yaml, what it can run, how it is checked, and how one is opened.

Kinds are found by entry point (`clusters/kinds.py`); `agents` and `kubernetes` are two of them. A package that brings another one derives
from `ClusterKind`, so that parts which are added here later have a default.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from msgspec import Struct, field

from spillover.forms.problems import Path as FormPath
from spillover.model.ids import ClusterName
from spillover.ports.driver import Driver, Lead, Manner


class Capability(StrEnum):
    """What clusters of a kind can run."""

    COMMANDS = "commands"
    CONTAINERS = "containers"
    """Where a node offers the word `container`."""
    CALLS = "calls"
    """Of Python functions."""
    FILES = "files"
    """`inputs` and `outputs`."""
    GANGS = "gangs"
    """Jobs of several tasks, all at once."""


class Flaw(NamedTuple):
    """What is wrong with a form."""

    path: FormPath
    """Where, seen from the form; empty is all of it."""
    message: str


class CannotOpen(Exception):
    """A cluster that cannot be opened; the message is one line that says why and what to do."""


class Opening(Struct, frozen=True):
    """What the server gives to whoever opens a cluster."""

    cluster: ClusterName
    owner: str
    """What is ours on that cluster is known by this: no other server and no other cluster of this one has it."""
    lead: Lead
    data: Path
    """The folder of all that the server keeps."""
    environ: Mapping[str, str] = field(default_factory=dict)
    home: Path = Path()
    """Of the user that the server runs as."""
    umask: int = -1
    """For files that tasks make here; -1 is that of the server."""
    files: int | None = None
    """How many files programs here may open; None leaves it."""
    agent_options: tuple[str, ...] = ()
    """What every agent on this machine is told on its command line."""


class AgentHost(Protocol):
    """Agents of one cluster that the server starts on its own machine. The hub knows these and all others that connect."""

    async def run(self) -> None:
        """Keep them alive until cancelled."""
        ...

    async def stop(self, successor: object = None) -> None:
        """Stop them, tasks included; those that a successor runs as they are go on."""
        ...


Opened: TypeAlias = Driver | AgentHost
"""A cluster that is open: a driver that watches it, or the host of its agents."""


class ClusterKind(Protocol):
    """One kind of cluster."""

    name: ClassVar[str]
    """As `kind:` names it in spill.yaml, and as its entry point is called."""
    form: ClassVar[type[Struct]]
    """What it takes in spill.yaml; a frozen Struct that forbids unknown fields, all of which have defaults."""
    section: ClassVar[str | None] = ""
    """Under which key of a cluster the form is written: empty is the name of the kind, None puts its fields beside `name` and `role`."""

    @abstractmethod
    def capabilities(self, form: Any) -> frozenset[Capability]:
        """What a cluster that is configured so can run."""
        ...

    @abstractmethod
    def open(self, form: Any, opening: Opening) -> Opened:
        """A cluster, to be run; nothing is asked of it yet. Raises CannotOpen."""
        ...

    def check(self, form: Any, cluster: ClusterName) -> Sequence[Flaw]:
        """What is wrong with the meaning of a form; its types were checked before."""
        del form, cluster
        return ()

    def missing(self, form: Any, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """What this machine lacks to open the cluster, each in one line; the cluster itself is not asked."""
        del form, environ, home
        return ()

    def manner(self, form: Any) -> Manner:
        """How long the server is patient with what is there; only for kinds with a driver."""
        del form
        return Manner()
