"""The connection to an external cluster: what exists there, and how to start and stop attempts.

A driver watches and decides nothing. Control repeatedly compares what the driver sees with the state, and asks for
the difference. So every method may be called twice for the same thing, and no method needs to remember earlier calls.
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
    """The leadership of the server that a driver works for."""

    epoch: int

    def leads(self) -> bool:
        """Return whether the server certainly leads right now."""
        ...


class DriverLink(StrEnum):
    """State of a driver's connection."""

    CONNECTING = "connecting"
    """The driver has not listed the objects since it started."""
    UP = "up"
    """The driver sees all objects, apart from changes in transit."""
    DOWN = "down"
    """The last attempt to connect failed, and what the driver sees is old."""


class Connection(Struct, frozen=True):
    """State of a driver's connection, and since when."""

    link: DriverLink
    since: int
    """Nanoseconds on the monotonic clock."""
    failures: int = 0
    """Failures in a row."""
    error: str = ""
    """The last error, for users."""


class Stage(StrEnum):
    """Progress of an attempt, as the cluster sees it."""

    PENDING = "pending"
    """Its objects exist, and no task ever ran."""
    RUNNING = "running"
    """A task runs or ran."""
    ENDED = "ended"


class Hindrance(StrEnum):
    """Why an attempt does not start."""

    UNSCHEDULABLE = "unschedulable"
    """The cluster's scheduler finds no node for it."""
    IMAGE = "image"
    """Its image cannot be pulled."""
    REFUSED = "refused"
    """A quota or an admission check refuses its pods."""
    CONFIG = "config"
    """It names an object that does not exist, such as a volume, a secret or a service account."""
    UNANSWERED = "unanswered"
    """The server could not ask the driver to start it, or got no answer. Only the server sets this."""


class Pending(Struct, frozen=True):
    """Why an attempt does not start, in the cluster's words."""

    why: Hindrance
    message: str
    since: int
    """Nanoseconds UTC."""


class Gap(Struct, frozen=True):
    """What is missing of a gang that does not run as a whole."""

    size: int
    """How many tasks should run, or have succeeded."""
    bound: int
    """How many of them have a node, or have succeeded."""
    running: int
    """How many of them run, or have succeeded."""
    made: int
    """When the attempt was created, nanoseconds UTC on the cluster's clock."""
    since: int
    """When the missing tasks were created, or the tasks before them ended, nanoseconds UTC on the cluster's clock."""


class Ending(Struct, frozen=True):
    """How an attempt ended."""

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()
    finished: int | None = None
    """Nanoseconds UTC on the cluster's clock; None if unknown."""
    message: str = ""
    tasks: tuple[TaskEnd, ...] = ()
    """How each task ended, by rank, as far as known; empty for a job with one task."""


class Seen(Struct, frozen=True):
    """One of our attempts that exists on the cluster."""

    lease: Lease
    stage: Stage
    going: bool = False
    """Whether it is being deleted."""
    started: int | None = None
    """When its first task started, nanoseconds UTC; None if none did."""
    nodes: tuple[NodeName, ...] = ()
    """Nodes of its tasks, in the order of tasks, as far as they have one."""
    uses: tuple[tuple[NodeName, Resources], ...] = ()
    """What it uses of each node now; nothing once it has ended."""
    pending: Pending | None = None
    ending: Ending | None = None
    """How it ended; None if it has not."""
    vacant: bool = False
    """Whether it is being deleted and no task runs or will run again: only objects are left."""
    held: str = ""
    """What delays its deletion, for users; empty if unknown."""
    began: tuple[int, ...] = ()
    """Ranks of tasks that run or ran, as far as known; empty for a job with one task."""
    gap: Gap | None = None
    """What is missing of a gang; None if nothing is, and for a job with one task."""
    stranded: bool = False
    """Whether it is being deleted, and all tasks that may still run are on nodes that do not answer."""
    used: Usage = Usage()
    """The CPU time and memory of an attempt that is being deleted, as far as they were measured."""


class Changes(Struct, frozen=True):
    """Changes since the last call."""

    whole: bool
    """Whether this is a complete list: anything else no longer exists."""
    nodes: tuple[SeenNode, ...] = ()
    """Nodes that changed; `foreign` is the usage of all pods that are not ours."""
    gone_nodes: tuple[NodeName, ...] = ()
    attempts: tuple[Seen, ...] = ()
    """Attempts that changed."""
    gone: tuple[Lease, ...] = ()
    """Attempts that no longer exist, and of which nothing runs."""


class Made(StrEnum):
    """Result of a request to start an attempt."""

    MADE = "made"
    """It exists: created now, or before under the same lease."""
    REFUSED = "refused"
    """The cluster will never accept it in this form."""
    NOT_NOW = "not_now"
    """The cluster does not accept it now, for example because of a quota or too many requests."""
    UNSENT = "unsent"
    """The request was not sent, and nothing was created."""
    UNKNOWN = "unknown"
    """There was no answer; it may have been created."""


class Answer(Struct, frozen=True):
    """The cluster's answer to a start request."""

    made: Made
    message: str = ""


class Patience(Struct, frozen=True):
    """How long to wait before acting, in nanoseconds."""

    bind: int = 30 * SECOND
    """Until an attempt that fits on no node, or exceeds a quota, returns to the queue."""
    start: int = 10 * MINUTE
    """Until an attempt fails whose image or volumes are not available."""
    backoff: int = 5 * MINUTE
    """How long a job that returned to the queue backs off from this cluster."""
    keep: int = 10 * MINUTE
    """How long an ended attempt stays on the cluster for inspection."""
    prepare: int = 10 * MINUTE
    """Until a gang of which not all tasks run returns to the queue."""


class Manner(Struct, frozen=True):
    """How the server treats a cluster."""

    patience: Patience = Patience()
    failed_after: int = 2 * MINUTE
    """Nanoseconds without an answer after which a cluster counts as failed."""


class DriverError(Exception):
    """A request to a cluster failed for now; the message says why."""


class Driver(Protocol):
    """Watches one external cluster, and creates and deletes objects there."""

    cluster: ClusterName

    async def run(self, news: Callable[[], None]) -> None:
        """Watch until cancelled; call `news`, which does not block, after changes of objects or of the connection."""
        ...

    def connection(self) -> Connection:
        """Return the state of the connection."""
        ...

    def take(self) -> Changes:
        """Return changes since the last call; nothing before the first complete list."""
        ...

    async def start(self, start: Start) -> Answer:
        """Start an attempt; one that exists under the same lease counts as made."""
        ...

    async def stop(self, lease: Lease, grace: int) -> None:
        """Delete an attempt completely, with a grace in nanoseconds for its processes; `take` reports when it is gone.

        Raises DriverError if the request could not be sent.
        """
        ...

    def output(self, lease: Lease, task: int, offset: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
        """Stream what a task wrote, from an offset; with `follow`, until it ends. Raises `ports.cluster.OutputGone`."""
        ...

    async def close(self) -> None:
        """Close a driver that was never run."""
        ...

    async def check(self) -> Sequence[str]:
        """Return why this cluster cannot be used, one line for each problem with what to do; empty if it can."""
        ...
