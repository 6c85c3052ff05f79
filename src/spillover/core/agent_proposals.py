"""Proposals of agents: registrations, reports and silence, and what people ask of agents."""

from enum import StrEnum

from msgspec import Struct

from spillover.core.events import Lease, Outcome, TaskEnd, Usage
from spillover.model.ids import ClusterName, NodeKey, NodeName
from spillover.model.inside import Inside
from spillover.model.resources import Resources


class Register(Struct, frozen=True):
    """An agent connected, and reports what it still holds."""

    cluster: ClusterName
    node: NodeName
    incarnation: int
    """Drawn by the server, higher than any before."""
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    held: tuple[Lease, ...]
    """Its leases: waiting, running, or with a result that the server has not confirmed."""
    token: str = ""
    """Id of its token; empty for the server's own token."""
    admin: bool = True
    """Whether that token has all rights."""
    waiting: tuple[Lease, ...] = ()
    """The leases that it has not started. The server takes back those for which its queue has no room any more."""
    inside: Inside | None = None
    """Its sockets, cores, GPUs and links; None if it reports none."""
    gangs: bool = True
    """Whether it can run tasks of gangs; agents before 0.5 cannot."""


class Started(Struct, frozen=True):
    """An agent reports that a task runs."""

    node: NodeKey
    lease: Lease
    age: int
    """Nanoseconds between its start and the report."""
    ranks: tuple[int, ...] = ()
    """The running tasks of a gang, if the driver of an external cluster reports for all of them; empty if unknown."""


class Result(Struct, frozen=True):
    """An agent reports how a task ended."""

    node: NodeKey
    lease: Lease
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    usage: Usage
    age: int
    """Nanoseconds between its end and the report."""
    message: str = ""
    value: bytes = b""
    """What a Python call returned or raised, if it is small."""
    value_digest: str = ""
    """The blob with that value if it is large."""
    outputs: str = ""
    """The blob that lists its output files; empty if there are none."""
    tasks: tuple[TaskEnd, ...] = ()
    """The known ends of tasks of a gang, if the driver of an external cluster reports for all of them."""
    backoff: int = 0
    """Nanoseconds for which a gang that could not start as a whole backs off from that external cluster."""
    run: int = 0
    """How often the task was started again under its lease before."""
    waits: bool = False
    """Whether its agent keeps its capacity, and can start it again."""
    saved: str = ""
    """The blob with what it left in its folder for later attempts; empty if nothing was saved."""


class HandBack(Struct, frozen=True):
    """An agent, or the server on its behalf, returns leases that never started."""

    node: NodeKey
    leases: tuple[Lease, ...]
    because: str = ""
    """Reason for people; empty if there is none."""
    backoff: int = 0
    """Nanoseconds for which these jobs back off from that cluster."""


class Reclaim(Struct, frozen=True):
    """Leases expired, because their agent did not renew them in time."""

    node: NodeKey
    leases: tuple[Lease, ...]


class Prepared(Struct, frozen=True):
    """An agent reports that a task of a gang can start. It is not decided: only the whole gang starts."""

    lease: Lease
    port: int = 0
    """Of rank 0: a free port for the program."""
    shell: int = 0
    """A free port for remote shells."""
    token: bytes = b""
    """Of rank 0: a secret for the whole gang."""


class GangOverdue(Struct, frozen=True):
    """Some nodes of a gang have not prepared their tasks in time, so that it could not start."""

    lease: Lease
    """Of its first task."""
    external: bool = False
    """Whether the driver of an external cluster says so, which may also lose tasks of a gang that ran as a whole."""


class AskSteal(Struct, frozen=True):
    """An idle agent could run a task that another agent has not started."""

    cluster: ClusterName
    node: NodeName
    """The agent that holds the lease."""
    lease: Lease
    thief: NodeName


class Yield(StrEnum):
    """The answer of an agent about a lease that another agent wants."""

    RELEASED = "released"
    """Not started, and never will be under that lease."""
    STARTED = "started"
    UNKNOWN = "unknown"
    """Not held here; refused if it arrives later."""


class Yielded(Struct, frozen=True):
    """An agent answers about a lease that another agent wants."""

    node: NodeKey
    lease: Lease
    answer: Yield


class Drain(Struct, frozen=True):
    """Give an agent no more work."""

    cluster: ClusterName
    node: NodeName
    who: str = ""
    """The person who drains it until it is resumed; empty if the agent itself is shutting down."""
    reason: str = ""
    """Why, for people; empty if nobody said."""


class Interrupt(Struct, frozen=True):
    """The machine of an agent will be taken back. Its tasks stop, and return to the queue."""

    cluster: ClusterName
    node: NodeName
    until: int
    """When the machine will be gone, nanoseconds UTC."""


class Resume(Struct, frozen=True):
    """Give work again to an agent that a person drained."""

    cluster: ClusterName
    node: NodeName
    who: str


class Forget(Struct, frozen=True):
    """Remove a lost agent from the state."""

    cluster: ClusterName
    node: NodeName
    who: str


class AgentGone(Struct, frozen=True):
    """An agent sent no heartbeat for too long. Its leases are proposed separately as they expire."""

    cluster: ClusterName
    node: NodeName
    incarnation: int
    left: bool = False
    """Whether it signed off."""
