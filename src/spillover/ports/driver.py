"""What control needs of an external cluster: to see what is there, and to have attempts started and stopped.

A driver watches; it decides nothing. Control compares what a driver sees with the book and asks it for the difference, again and
again, so every method may be called twice for the same thing, and none has to remember what was asked before.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from spillover.core.events import Lease, SeenNode, TaskEnd, Usage
from spillover.core.proposals import Outcome
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.ports.cluster import Start


class Lead(Protocol):
    """The lead of the server that a driver works for."""

    epoch: int

    def leads(self) -> bool:
        """Whether the server surely leads at this moment."""
        ...


class DriverLink(StrEnum):
    """How a driver's connection is."""

    CONNECTING = "connecting"
    """What is there was never listed since the driver began."""
    UP = "up"
    """What it sees is what is there, but for what is on its way."""
    DOWN = "down"
    """The last try to connect failed: what it sees is old."""


class Connection(Struct, frozen=True):
    """How a driver's connection is, and since when."""

    link: DriverLink
    since: int
    """Nanoseconds on the monotonic clock."""
    failures: int = 0
    """Tries in a row that failed."""
    error: str = ""
    """What went wrong the last time, for people."""


class Stage(StrEnum):
    """How far an attempt is, as the cluster sees it."""

    PENDING = "pending"
    """It is there and nothing of it runs, or ever ran."""
    RUNNING = "running"
    """Some of it runs, or ran."""
    ENDED = "ended"


class Hindrance(StrEnum):
    """Why an attempt does not start."""

    UNSCHEDULABLE = "unschedulable"
    """The cluster's own scheduler finds no node for it."""
    IMAGE = "image"
    """Its image cannot be had."""
    REFUSED = "refused"
    """Its pods are refused: by a quota, or at admission."""
    CONFIG = "config"
    """Something that it names is not there: a volume, a secret, a service account."""


class Pending(Struct, frozen=True):
    """Why an attempt does not start, in the cluster's words."""

    why: Hindrance
    message: str
    since: int
    """Nanoseconds UTC."""


class Ending(Struct, frozen=True):
    """How an attempt ended."""

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()
    finished: int | None = None
    """Nanoseconds UTC, by the cluster's clock; None if it does not say."""
    message: str = ""
    tasks: tuple[TaskEnd, ...] = ()
    """How each task ended, by rank, as far as the cluster tells; none of a job with one task."""


class Seen(Struct, frozen=True):
    """An attempt of ours that is there."""

    lease: Lease
    stage: Stage
    going: bool = False
    """Whether it is being deleted."""
    started: int | None = None
    """When the first of it began to run, nanoseconds UTC; None if nothing did."""
    nodes: tuple[NodeName, ...] = ()
    """Where its tasks are, of those that were given a node, in the order of the tasks."""
    uses: tuple[tuple[NodeName, Resources], ...] = ()
    """What it takes of each node now: nothing once it has ended."""
    pending: Pending | None = None
    ending: Ending | None = None
    """Of one that has ended."""
    vacant: bool = False
    """Whether it is being deleted and nothing of it runs, or ever will again: only its objects are there."""
    held: str = ""
    """What keeps it from being gone although it is being deleted, for people; empty if nothing is known."""
    began: tuple[int, ...] = ()
    """Ranks of the tasks that run, or ran, as far as the cluster tells; none of a job with one task."""


class Changes(Struct, frozen=True):
    """What is new since it was last asked for."""

    whole: bool
    """Whether everything is told anew, after a list: what is not named is not there."""
    nodes: tuple[SeenNode, ...] = ()
    """Nodes that changed; `foreign` is what all pods use that are none of ours."""
    gone_nodes: tuple[NodeName, ...] = ()
    attempts: tuple[Seen, ...] = ()
    """Attempts that changed."""
    gone: tuple[Lease, ...] = ()
    """Attempts that are not there any more, and nothing that runs of them."""


class Made(StrEnum):
    """What became of a wish to start an attempt."""

    MADE = "made"
    """It is there: made now, or before under the same lease."""
    REFUSED = "refused"
    """The cluster will never take it, as it is."""
    NOT_NOW = "not_now"
    """The cluster does not take it at present: a quota, too many requests."""
    UNSENT = "unsent"
    """The cluster was not asked: nothing was made."""
    UNKNOWN = "unknown"
    """There was no answer: it may have been made."""


class Answer(Struct, frozen=True):
    """What a cluster says to a wish."""

    made: Made
    message: str = ""


class Patience(Struct, frozen=True):
    """How long things are left as they are, in nanoseconds."""

    bind: int = 30 * SECOND
    """Until an attempt that no node takes, or that a quota refuses, goes back to the queue."""
    start: int = 10 * MINUTE
    """Until one fails whose image or volumes cannot be had."""
    backoff: int = 5 * MINUTE
    """For which a job is not tried there again, after it went back."""
    keep: int = 10 * MINUTE
    """For which what ended is left there, for whoever wants to look at it."""


class Manner(Struct, frozen=True):
    """How a cluster is dealt with."""

    patience: Patience = Patience()
    failed_after: int = 2 * MINUTE
    """Nanoseconds without an answer after which a cluster has failed."""


class DriverError(Exception):
    """Something that cannot be had from a cluster now; the message says why."""


class Driver(Protocol):
    """One external cluster."""

    cluster: ClusterName

    async def run(self, news: Callable[[], None]) -> None:
        """Watch until cancelled; call `news`, which returns at once, when there are changes or the connection is another."""
        ...

    def connection(self) -> Connection:
        """How the connection is."""
        ...

    def take(self) -> Changes:
        """What changed since this was last called; nothing before the first list."""
        ...

    async def start(self, start: Start) -> Answer:
        """Have an attempt run. One of the same lease that is there already counts as made."""
        ...

    async def stop(self, lease: Lease, grace: int) -> None:
        """Have an attempt deleted, all of it, with so many nanoseconds for its processes to end; that it is gone is seen, not returned.

        Raises DriverError if the cluster could not be asked.
        """
        ...

    def output(self, lease: Lease, task: int, offset: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
        """What a task wrote, from a byte on; following, until it has ended. Raises OutputGone (of `ports.cluster`) if it cannot be had."""
        ...

    async def close(self) -> None:
        """Let go of a driver that was not run."""
        ...

    async def check(self) -> Sequence[str]:
        """What keeps this cluster from being used, each in one line that says what to do; nothing if it can be."""
        ...
