"""A provider of machines: creates, lists and destroys them for one pool.

A provider decides nothing and remembers nothing between calls. Every call may be repeated: an order with the same token
makes one machine, however often it is sent, and destroying a machine that is gone succeeds. What is ours is known by
tags at the provider, so a server that lost everything but its state finds its machines again.

`providers/registry.py` finds providers by entry point. A package with another provider derives it from `ProviderKind`,
so that methods that are added here later have a default, and tests it with `ProviderSuite` of
`spillover.testing.provider_suite`.
"""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from msgspec import Struct, field

from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer, RefusalCause
from spillover.ports.kinds import Flaw

OWNER_TAG: Final = "spillover-owner"
"""Tag of every machine: whose it is."""
MACHINE_TAG: Final = "spillover-machine"
"""Tag of every machine: its id."""
CLUSTER_TAG: Final = "spillover-cluster"
"""Tag of every machine: its cluster, for people."""


_MOST_NAME: Final = 63
"""Characters of a name that every provider takes: a label of a host name."""
_NAME: Final = re.compile(r"[a-z0-9]+(?:-+[a-z0-9]+)*", re.ASCII)
_NOT_NAME: Final = re.compile(r"[^a-z0-9]+", re.ASCII)


def name_prefix(owner: str) -> str:
    """Return how the names of all machines of an owner begin."""
    return f"spill-{owner[:8]}-"


def machine_name(owner: str, machine: str) -> str:
    """Return the name of a machine at providers in which names are unique: lower-case letters, digits and hyphens."""
    prefix = name_prefix(owner)
    if _NAME.fullmatch(machine) and len(prefix) + len(machine) <= _MOST_NAME:
        return prefix + machine
    # A digest keeps ids apart that differ only in what a name cannot hold.
    digest = hashlib.blake2s(machine.encode(), digest_size=6).hexdigest()
    kept = _NOT_NAME.sub("-", machine.lower())[: _MOST_NAME - len(prefix) - len(digest) - 1].strip("-")
    return f"{prefix}{kept}-{digest}" if kept else prefix + digest


def order_token(owner: str, machine: str) -> str:
    """Return the token of the order of a machine.

    It begins like the name, because providers such as EC2 keep tokens also of machines that lost their tags and names.
    At most 63 characters, which every provider takes.
    """
    return machine_name(owner, machine)


class Join(Struct, frozen=True):
    """What the agent of a new machine needs to join. The same for each repetition of an order."""

    server: str
    """HOST:PORT at which agents reach the server (gRPC)."""
    cluster: ClusterName
    name: str
    """Name of the agent: the id of the machine."""
    token: str
    """Works once, for this machine, until `join_by`."""
    join_by: int
    """Nanoseconds UTC."""
    pin: str = ""
    """SHA-256 of the server's certificate, hexadecimal; empty if the server has no TLS."""
    alone_for: int = 0
    """Nanoseconds without server and tasks after which the agent turns the machine off; 0 is never."""
    notices: str = ""
    """How the agent learns that its machine will be taken back, such as `ec2`; empty if it cannot."""


class Order(Struct, frozen=True):
    """A machine that the plan wants."""

    machine: MachineId
    """Our id."""
    token: str
    """Identifies the order. Follows from `owner` and `machine` (`order_token`), so another server sends the same one."""
    owner: str
    """Identifies the state that wants it; unique to this server and this cluster."""
    offer: Offer
    join: Join
    group: str = ""
    """Machines of one gang, which should be near each other; empty if it is not for a gang."""
    nodes: int = 0
    """Nodes of a whole cluster when it is created; 0 for a machine. A repeated order may name another number: the first counts."""

    @property
    def name(self) -> str:
        """A name for providers in which names are unique."""
        return machine_name(self.owner, self.machine)

    @property
    def tags(self) -> dict[str, str]:
        """Tags that the machine must carry from the moment of its creation."""
        return {OWNER_TAG: self.owner, MACHINE_TAG: self.machine, CLUSTER_TAG: self.join.cluster}


class Made(Struct, frozen=True):
    """The machine exists: created now, or before under the same token."""

    id: str
    """The provider's id of it."""
    at: int | None = None
    """When it was created, nanoseconds UTC on the provider's clock; None if the provider does not say."""


class Refused(Struct, frozen=True):
    """The machine surely does not exist, and repeating the order is of no use."""

    cause: RefusalCause
    """With `auth`, an earlier request whose answer is unknown may have made the machine; else none has."""
    why: str
    """One line for people, with the words of the provider."""


class NotNow(Struct, frozen=True):
    """This request surely made nothing, and may be repeated: too many requests, or no connection.

    It says nothing about an earlier request with the same token. If the answer to that was unknown, it still is.
    """

    why: str
    after: float = 0.0
    """Seconds that the provider asks to wait; 0 if it does not say."""


class Unknown(Struct, frozen=True):
    """There was no answer. The machine may exist."""

    why: str


Created: TypeAlias = Made | Refused | NotNow | Unknown
"""The answer to an order."""


class Presence(StrEnum):
    """What a listing says about a machine."""

    PENDING = "pending"
    """It is being created, or boots."""
    RUNNING = "running"
    STOPPING = "stopping"
    """It is being destroyed, or is stopped. It will not run again."""
    GONE = "gone"
    """It does not exist any more. A provider may list such machines for a while, or leave them out."""


class Listed(Struct, frozen=True):
    """One machine of a listing."""

    id: str
    """The provider's id."""
    presence: Presence
    machine: str = ""
    """The id in its tag; empty if the tag is lost."""
    owner: str = ""
    """The owner in its tag; empty if the tag is lost."""
    name: str = ""
    """Its name at the provider; empty if it has none."""
    at: int | None = None
    """When it was created, nanoseconds UTC; None if unknown."""
    reason: str = ""
    """Why it is stopping or gone, in the words of the provider; empty if unknown."""
    interrupted: bool = False
    """Whether the provider took it back."""
    nodes: int | None = None
    """How many nodes a whole cluster was last told to have, whether they are up or not; None if unknown, or for a machine."""


class Listing(Struct, frozen=True):
    """All machines that carry our owner tag, or whose name or id shows that they are ours."""

    began: int
    """When the first request was sent, nanoseconds UTC. What was created after that may be missing."""
    whole: bool
    """Whether every page and every zone answered. What is missing from a partial listing may exist."""
    machines: tuple[Listed, ...] = ()
    why: str = ""
    """Why it is not whole; empty if it is."""


class PriceSeen(Struct, frozen=True):
    """A price as the provider states it."""

    type: str
    zone: str
    spot: bool
    hour: int
    """Millionths of the provider's currency for an hour."""


class TypePrice(Struct, frozen=True):
    """What a price list says about a type of machine."""

    type: str
    hour: int
    """Millionths of the currency."""
    currency: str
    cpu: str = ""
    """CPUs; empty if the list does not say, as all below."""
    memory: str = ""
    """GiB."""
    gpu: str = ""


class PriceList(Struct, frozen=True):
    """Prices of a region."""

    about: str
    """Which prices these are and when they were published, in one line."""
    prices: tuple[TypePrice, ...]
    """By type."""


class ProviderError(Exception):
    """A call failed for now and may be repeated; the message says in one line why."""


def pip(package: str) -> str:
    """Return the command that installs a package."""
    return f"pip install '{package}'"


class Provider(Protocol):
    """Creates, lists and destroys the machines of one pool."""

    async def prepare(self) -> None:
        """Do what makes the first order quick. The server calls this once, and orders without waiting for it.

        Most providers have nothing to prepare. Raises ProviderError, which changes nothing.
        """
        return

    async def create(self, order: Order) -> Created:
        """Create a machine that carries the tags of the order; never raises for what the provider answers."""
        ...

    async def list(self) -> Listing:
        """List our machines; raise ProviderError if not even a part can be listed."""
        ...

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Destroy machines by the provider's ids; return why some could not be, in one line each.

        A machine that is gone, or is being destroyed, counts as destroyed. Raises ProviderError if nothing was sent.
        """
        ...

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """Return why these offers cannot be rented, one line each with what to do; empty if they can."""
        ...

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """Return present prices of offers, as far as the provider states them."""
        ...

    async def close(self) -> None:
        """Close connections, and stop helpers. Machines stay."""
        ...


class ClusterMaker(Provider, Protocol):
    """A provider whose machines are whole clusters: also sizes them, and says how to connect to them.

    A cluster is listed as PENDING until its API answers, and as RUNNING from then on, whether its nodes are up or not.
    """

    async def kubeconfig(self, id_: str) -> str:
        """Return a kubeconfig for a running cluster, as text with everything in it; raise ProviderError."""
        ...

    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        """Set how many nodes a cluster has; raise ProviderError.

        If it becomes smaller, the nodes named in `drop` go first: they have no tasks of ours. None of the others may go
        while one of these is there. A call that was carried out before changes nothing.
        """
        ...


class ProviderOpening(Struct, frozen=True):
    """What the server provides to open a provider."""

    cluster: ClusterName
    owner: str
    """As in `Order`."""
    data: Path
    """A folder for this provider, under the data folder of the server. It may be lost with the server's machine."""
    environ: Mapping[str, str] = field(default_factory=dict)
    home: Path = Path()
    """Home folder of the user that runs the server."""
    umask: int = -1
    """umask for files that tasks create on this machine; -1 means that of the server."""
    files: int | None = None
    """Most open files of agents on this machine; None leaves the limit unchanged."""
    agent_options: tuple[str, ...] = ()
    """Command-line options of every agent on this machine, such as `--server-file FILE`."""


class ProviderKind(Protocol):
    """One provider as a plugin: its options, how to check them, and how to open it."""

    name: ClassVar[str]
    """Its name in spill.yaml, and the name of its entry point."""
    form: ClassVar[type[Struct]]
    """Its options: a frozen Struct that forbids unknown fields and has a default for each field."""
    notices: ClassVar[str] = ""
    """How its machines learn that they will be taken back, as in `Join`."""
    local: ClassVar[bool] = False
    """Whether its machines are on the server's own machine. They then reach the server where it listens, also on loopback,
    and end with it if `agents.on_shutdown` is `stop`."""
    requires: ClassVar[Mapping[str, str]] = {}
    """Python modules that it imports when it is opened, each with what pip must install for it."""

    def makes_clusters(self, form: Any) -> bool:
        """Return whether it opens a `ClusterMaker`: what it makes are whole clusters, not machines with an agent."""
        del form
        return False

    @abstractmethod
    def open(self, form: Any, opening: ProviderOpening) -> Provider:
        """Open the provider without contacting it; raise `ports.kinds.CannotOpen`."""
        ...

    def check(self, form: Any, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return problems with the meaning of options whose types are valid; offers have path `("offers", INDEX)`."""
        del form, offers
        return ()

    def missing(self, form: Any, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return what this machine lacks to use it, one line each with what to install or set; contacts nobody."""
        del form, environ, home
        return [
            f"the provider {self.name} needs the Python module {module}; run: {pip(package)}"
            for module, package in self.requires.items()
            if find_spec(module) is None
        ]

    def price_list(self, region: str) -> PriceList:
        """Read the prices of a region, which may take a minute; raise ProviderError."""
        del region
        raise ProviderError(f"the provider {self.name} has no list of prices; write them into the offers")
