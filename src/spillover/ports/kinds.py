"""A kind of cluster: its form in spill.yaml, what it can run, how to check it, and how to open it.

`clusters/kinds.py` finds kinds by entry point; `agents` and `kubernetes` are built in. A package with another kind
derives it from `ClusterKind`, so that methods that are added here later have a default.
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
    """On nodes that offer `container`."""
    CALLS = "calls"
    """Calls of Python functions."""
    FILES = "files"
    """`inputs` and `outputs`."""
    GANGS = "gangs"
    """Jobs of several tasks that run together."""
    CONSTRAINTS = "constraints"
    """Constraints on nodes. If the cluster chooses nodes itself, it must follow those of a job."""
    EXCLUSIVE = "exclusive"
    """`exclusive: node`: tasks of other jobs of Spillover are never on the nodes of such a job."""


class Flaw(NamedTuple):
    """A problem in a form."""

    path: FormPath
    """Path within the form; empty for the whole form."""
    message: str


class CannotOpen(Exception):
    """A cluster cannot be opened; the message says in one line why and what to do."""


class Opening(Struct, frozen=True):
    """What the server provides to open a cluster."""

    cluster: ClusterName
    owner: str
    """Identifies our objects on that cluster; unique to this server and this cluster."""
    lead: Lead
    data: Path
    """The data folder of the server."""
    environ: Mapping[str, str] = field(default_factory=dict)
    home: Path = Path()
    """Home folder of the user that runs the server."""
    umask: int = -1
    """umask for files that tasks create here; -1 means that of the server."""
    files: int | None = None
    """Most open files of programs here; None leaves the limit unchanged."""
    agent_options: tuple[str, ...] = ()
    """Command-line options of every agent on this machine."""


class AgentHost(Protocol):
    """Runs agents of one cluster on the server's own machine. The hub handles these and all other agents."""

    async def run(self) -> None:
        """Keep the agents running until cancelled."""
        ...

    async def stop(self, successor: object = None) -> None:
        """Stop the agents and their tasks; those that a successor runs unchanged continue."""
        ...


Opened: TypeAlias = Driver | AgentHost
"""An open cluster: its driver, or the host of its agents."""


class ClusterKind(Protocol):
    """One kind of cluster."""

    name: ClassVar[str]
    """The value of `kind:` in spill.yaml, and the name of the entry point."""
    form: ClassVar[type[Struct]]
    """Its form in spill.yaml: a frozen Struct that forbids unknown fields and has a default for each field."""
    section: ClassVar[str | None] = ""
    """Key of the form within a cluster; empty: the name of the kind; None: its fields are beside `name` and `role`."""
    kubeconfig: ClassVar[str] = ""
    """Field of the form that takes the path of a kubeconfig, so that pools can make whole clusters of this kind; empty if
    they cannot."""
    access: ClassVar[tuple[str, ...]] = ()
    """Fields that say how to connect to a cluster, and that a cluster which a pool makes must not have."""

    @abstractmethod
    def capabilities(self, form: Any) -> frozenset[Capability]:
        """Return what a cluster with this form can run."""
        ...

    @abstractmethod
    def open(self, form: Any, opening: Opening) -> Opened:
        """Open a cluster without contacting it; raise CannotOpen."""
        ...

    def check(self, form: Any, cluster: ClusterName) -> Sequence[Flaw]:
        """Return problems with the meaning of a form whose types are valid."""
        del form, cluster
        return ()

    def missing(self, form: Any, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return what this machine lacks to open the cluster, one line each, without contacting the cluster."""
        del form, environ, home
        return ()

    def manner(self, form: Any) -> Manner:
        """Return how the server treats a cluster; only for kinds with a driver."""
        del form
        return Manner()
