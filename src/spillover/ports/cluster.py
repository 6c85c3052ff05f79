"""The connection to a cluster of agents: which agents are connected, and how to reach them.

No method promises an effect, and none raises because an agent is gone. An agent that disconnects meanwhile reports
its leases when it registers again, and the server then corrects the state.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from spillover.core.events import Lease
from spillover.model.ids import ClusterName
from spillover.model.inside import Granted
from spillover.model.job import JobSpec
from spillover.model.topology import Level
from spillover.model.units import SECOND
from spillover.model.where import NodeTerm


class Peer(Struct, frozen=True):
    """The agent that has the task of a moved lease."""

    address: str
    """HOST:PORT."""
    ticket: bytes
    """Proves the right to fetch the task."""
    source: Lease
    """The lease as that agent held it."""


class Start(Struct, frozen=True):
    """A lease and what it runs."""

    lease: Lease
    spec: JobSpec
    cluster: ClusterName
    peer: Peer | None = None
    """Agent to fetch the task from; None if the message contains the task."""
    levels: tuple[Level, ...] = ()
    """The levels of the cluster, which the topology of the job may name."""
    granted: Granted | None = None
    """The cores and GPUs that the task has for itself; None if it gets none by name."""
    binds: bool = False
    """Whether its memory must be of the NUMA node of its cores."""
    saved: str = ""
    """The blob with what earlier attempts left in the folder of the task; empty if there is nothing."""
    vertex: NodeTerm | None = None
    """What only nodes of the vertex fulfil that the scheduler chose for all tasks because of `within`; None if it chose
    none."""


class GangStart(Struct, frozen=True):
    """The word that all tasks of a gang are prepared, and may start."""

    lease: Lease
    """The lease of the first task; those of the others differ in their rank only."""
    nodes: tuple[str, ...]
    """Names of agents, by rank."""
    hosts: tuple[str, ...]
    """Where the tasks reach each other, by rank."""
    port: int
    """A port that was free on the host of rank 0."""
    shells: tuple[int, ...] = ()
    """Ports for remote shells, by rank."""
    token: bytes = b""
    """The secret with which tasks open remote shells to each other."""


class Unsendable(Struct, frozen=True):
    """A lease that can never be sent."""

    lease: Lease
    why: str


class LeaseTerms(Struct, frozen=True):
    """The heartbeat interval of an agent, and the term of leases that have not started."""

    heartbeat: int
    """Nanoseconds between two heartbeats."""
    short: int
    """Nanoseconds that a lease lasts without an acknowledged start."""


FIRST_TERMS: Final = LeaseTerms(2 * SECOND, 30 * SECOND)
"""Terms of an agent that got no others."""


class Offer(NamedTuple):
    """New lease terms for an agent."""

    number: int
    """Number of these terms within a registration; 0 for its first ones."""
    terms: LeaseTerms


class Contact(Struct, frozen=True):
    """The last contact with an agent."""

    incarnation: int
    connected: bool
    """Whether its stream is open."""
    heard: int
    """Time of the last message, nanoseconds on the server's monotonic clock."""
    peer: str = ""
    """HOST:PORT where other agents fetch tasks; empty if nowhere."""
    load: int = 0
    """Last reported load of its machine (processes that run or could run), in thousandths."""
    life: str = ""
    """Id of the agent process; empty if unknown."""
    terms: LeaseTerms = FIRST_TERMS
    """The longest terms that the agent may be using."""
    left: bool = False
    """Whether its stream was open and has closed."""
    signed_off: bool = False
    """Whether it said that it stops."""
    address: str = ""
    """Host where tasks on other machines reach tasks on this one; empty if unknown."""
    version: str = ""
    """Release of the agent; empty if unknown."""
    abilities: frozenset[str] = frozenset()
    """What it can do that agents of earlier releases cannot."""


class OutputAsked(Struct, frozen=True):
    """A request for output."""

    lease: Lease
    stderr: bool
    offset: int
    follow: bool


class OutputGone(Exception):
    """The output is not available; the message says why."""


class Exec(Struct, frozen=True):
    """Run a command beside a task."""

    command: tuple[str, ...]
    terminal: bool = False
    rows: int = 0
    columns: int = 0
    term: str = ""
    """The kind of the terminal; empty if unknown."""


class Attach(Struct, frozen=True):
    """Connect to the terminal of a task."""


class Forward(Struct, frozen=True):
    """Connect to a port of a task's machine."""

    port: int


class RelayAsked(Struct, frozen=True):
    """A live connection to a task."""

    lease: Lease
    """Job, attempt and task; the rest does not matter."""
    what: Exec | Attach | Forward


class RelayGone(Exception):
    """There is no live connection to a task; the message says why."""


class Relay(Protocol):
    """A live connection to a task. The bytes are frames of `wire.relay`."""

    async def receive(self) -> bytes | None:
        """Return the next piece from the agent; None at the end."""
        ...

    async def send(self, piece: bytes) -> bool:
        """Send a piece to the agent once there is room; return False if the connection has ended."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class Agents(Protocol):
    """The connected agents, by the key `cluster/name` of their nodes."""

    def open(
        self,
        node: str,
        incarnation: int,
        monotonic: int,
        peer: str = "",
        life: str = "",
        terms: LeaseTerms = FIRST_TERMS,
        address: str = "",
        abilities: Sequence[str] = (),
        version: str = "",
    ) -> None:
        """Prepare for a registration, so that leases can wait for the agent.

        Other agents fetch its tasks at `peer`, and tasks of gangs reach those on its machine at the host `address`.
        `abilities` are what agents of earlier releases cannot do.
        """
        ...

    def activate(self, node: str, incarnation: int) -> None:
        """Make a durable registration current, and fence earlier ones."""
        ...

    def forget(self, incarnation: int) -> None:
        """Drop a registration that failed."""
        ...

    def close(self, node: str) -> None:
        """Void all leases sent to a node until it registers again."""
        ...

    def heard(self, node: str, incarnation: int, monotonic: int, load: int = 0) -> bool:
        """Record a heartbeat and the load of the machine; return False if the registration is not current."""
        ...

    def agree(self, node: str, number: int, wanted: LeaseTerms) -> Offer | None:
        """Return new terms for an agent that uses those with this number; None if it should keep them."""
        ...

    def contact(self, node: str) -> Contact | None:
        """Return the last contact; None if the agent has not registered with this server."""
        ...

    def is_silent(self, node: str, monotonic: int) -> bool:
        """Return whether an agent missed a heartbeat, or has not registered with this server."""
        ...

    def start(self, node: str, incarnation: int, starts: Sequence[Start]) -> list[Unsendable]:
        """Send leases in this order; return those that can never be sent.

        If a newer registration is current, the leases are void: nothing is sent or returned.
        """
        ...

    def start_gang(self, node: str, start: GangStart) -> None:
        """Let an agent start its tasks of a gang. If it is not connected, it asks again when it registers."""
        ...

    def end(self, token: str) -> None:
        """Fence agents that registered with a token, by its id; their leases expire."""
        ...

    def wake(self, node: str) -> None:
        """Make an agent send a heartbeat now, to fetch its orders."""
        ...

    def current(self, incarnation: int) -> str | None:
        """Return the node of a registration; None if it is not current."""
        ...

    def output(self, node: str, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Stream the output that an agent has now, if any; with `follow`, until the task is gone.

        Raises OutputGone if the agent is not connected, or disconnects meanwhile.
        """
        ...

    async def relay(self, node: str, asked: RelayAsked) -> Relay:
        """Connect to a task on an agent; raise RelayGone if that fails."""
        ...
