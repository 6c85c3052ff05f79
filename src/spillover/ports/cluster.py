"""What control needs of a cluster of agents: who is connected, and a way to reach them.

Nothing here is a promise that something happens: an agent that goes away meanwhile names what it holds when it registers
again, and the book is put right then. So no method raises because an agent is gone.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from spillover.core.events import Lease
from spillover.model.ids import ClusterName
from spillover.model.job import JobSpec
from spillover.model.units import SECOND


class Peer(Struct, frozen=True):
    """Another agent, which has the task of a lease that it gave up."""

    address: str
    """HOST:PORT."""
    ticket: bytes
    """What to show there."""
    source: Lease
    """As that agent had it."""


class Start(Struct, frozen=True):
    """A lease, and what it is to run."""

    lease: Lease
    spec: JobSpec
    cluster: ClusterName
    peer: Peer | None = None
    """Where the task is to be had; None sends it along."""


class Unsendable(Struct, frozen=True):
    """A lease that cannot be handed out, now or ever."""

    lease: Lease
    why: str


class LeaseTerms(Struct, frozen=True):
    """How often an agent renews its leases, and how long one lasts that has not started."""

    heartbeat: int
    """Nanoseconds between two heartbeats."""
    short: int
    """Nanoseconds that a lease lasts without an acknowledged start."""


FIRST_TERMS: Final = LeaseTerms(2 * SECOND, 30 * SECOND)
"""Of an agent that was told no others."""


class Offer(NamedTuple):
    """Terms that an agent is to live by from now on."""

    number: int
    """Counts those that a registration was told; 0 are those that it began with."""
    terms: LeaseTerms


class Contact(Struct, frozen=True):
    """When an agent was last heard from."""

    incarnation: int
    connected: bool
    """Whether its stream is open."""
    heard: int
    """Nanoseconds on the server's monotonic clock."""
    peer: str = ""
    """Where other agents may ask it for tasks, HOST:PORT; empty if nowhere."""
    load: int = 0
    """Thousandths: how many processes its machine runs or would run, as it last said."""
    life: str = ""
    """Which life of the agent it is; empty for one that does not say."""
    terms: LeaseTerms = FIRST_TERMS
    """The longest that it may live by."""
    left: bool = False
    """Whether its stream was open and is not any more."""


class OutputAsked(Struct, frozen=True):
    """Which output, and from where."""

    lease: Lease
    stderr: bool
    offset: int
    follow: bool


class OutputGone(Exception):
    """The output cannot be had; the message says why."""


class Agents(Protocol):
    """The agents that are connected, each under the key `cluster/name` of its node."""

    def open(
        self,
        node: str,
        incarnation: int,
        monotonic: int,
        peer: str = "",
        life: str = "",
        terms: LeaseTerms = FIRST_TERMS,
    ) -> None:
        """An agent is about to register: get ready to hold what it will be given. Others may ask it for tasks at `peer`."""
        ...

    def activate(self, node: str, incarnation: int) -> None:
        """Its registration is durable: what was there before is fenced."""
        ...

    def forget(self, incarnation: int) -> None:
        """It did not register after all."""
        ...

    def close(self, node: str) -> None:
        """Whatever this node was given is void, until it registers again."""
        ...

    def heard(self, node: str, incarnation: int, monotonic: int, load: int = 0) -> bool:
        """A heartbeat came, with the load of its machine; False if it is not from the current registration."""
        ...

    def agree(self, node: str, number: int, wanted: LeaseTerms) -> Offer | None:
        """An agent lives by the terms of this number: what to tell it instead; None if it is to stay with them."""
        ...

    def contact(self, node: str) -> Contact | None:
        """When it was last heard from; None if it has not registered with this server."""
        ...

    def is_silent(self, node: str, monotonic: int) -> bool:
        """Whether it was not heard from for longer than one of its heartbeats, or has not registered with this server."""
        ...

    def start(self, node: str, incarnation: int, starts: Sequence[Start]) -> list[Unsendable]:
        """Hand out leases, in this order, and return those that cannot be.

        Nothing is sent and nothing returned if a newer registration counts, as they are void then.
        """
        ...

    def end(self, token: str) -> None:
        """Say nothing more to agents that registered with a token, by its id."""
        ...

    def wake(self, node: str) -> None:
        """There is something to say: have it send a heartbeat now."""
        ...

    def current(self, incarnation: int) -> str | None:
        """The node that registered so, if that is its current registration."""
        ...

    def output(self, node: str, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """What an agent has of an output now, nothing if it has none; following, until the task is not there any more.

        Raises OutputGone if the agent is not connected, or goes away meanwhile.
        """
        ...
