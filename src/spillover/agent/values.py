"""What the parts of an agent hand to each other: leases with their work, exits, results, instructions.

They are plain values, free of the wire and of the operating system, so that `state.py` can be tested with them alone.
"""

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Verdict, Yield
from spillover.model.files import File
from spillover.model.job import Work
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND


class Phase(IntEnum):
    """How far a lease has come; the numbers are those of the wire."""

    WAITING = 0
    RUNNING = 1
    ENDED = 2


class Task(Struct, frozen=True):
    """What is to be run under a lease, and how long it may take."""

    work: Work
    need: Resources
    env: dict[str, str] = {}
    workdir: str = "/"
    walltime: int = 0
    """Nanoseconds; 0 is no limit."""
    grace: int = 10 * SECOND
    """Nanoseconds between TERM and KILL; 0 kills at once."""
    lost_after: int = 5 * MINUTE
    """Nanoseconds that the task outlives an unreachable server once its start is acknowledged."""
    inputs: tuple[File, ...] = ()
    """Put into a folder of its own, which it runs in, before it starts."""
    outputs: tuple[str, ...] = ()
    """Paths and patterns below that folder of what is brought back when it ended."""
    outputs_limit: int = 0
    """Bytes that they may have together; 0 if the server says nothing."""


class Source(Struct, frozen=True):
    """Where the task of a lease is that was taken over from another agent."""

    address: str
    """HOST:PORT of that agent."""
    ticket: bytes
    """What to show there."""
    lease: Lease
    """Under which it had the task."""
    digest: bytes = b""
    """SHA-256 of the task, see `wire.tasks`; empty if the server does not say."""


class Grant(Struct, frozen=True):
    """A lease and its work, or where that is."""

    lease: Lease
    task: Task | None = None
    source: Source | None = None


class Welcome(Struct, frozen=True):
    """The answer to a registration."""

    epoch: int
    incarnation: int
    keep: frozenset[Lease]
    """Of the leases that were named, those that remain ours."""
    heartbeat: int
    """Nanoseconds between two heartbeats."""
    short_term: int
    """Nanoseconds that a lease lasts without an acknowledged start."""
    log_retention: int = 0
    now: int = 0
    """Nanoseconds UTC, as the server counts them; 0 if it does not say."""
    """Nanoseconds that output is kept; 0 is for ever."""
    keep_output: bool = False
    """Whether the server wants a copy of the output of every task that ended."""
    stream: bool = False
    """Whether the server takes heartbeats on the stream on which it hands out leases."""
    spread: int = 0
    """Nanoseconds within which agents are to come back, each at a time that it draws, after the server was away."""


class NewTerms(Struct, frozen=True):
    """Terms that take the place of those of the registration."""

    number: int
    """By which the server is told that they are lived by."""
    heartbeat: int
    short_term: int


class Renewal(Struct, frozen=True):
    """The answer to a heartbeat."""

    epoch: int
    fenced: bool = False
    stops: tuple[tuple[Lease, bool], ...] = ()
    """Leases to stop, and whether to kill them without grace."""
    drain: bool = False
    revoked: tuple[Lease, ...] = ()
    yields: tuple[tuple[Lease, bytes], ...] = ()
    """Leases that another agent wants, each with the ticket for its task."""
    overdue: frozenset[Lease] = frozenset()
    """Of those to stop, those whose walltime or deadline has passed: one whose process has exited is left to bring its files away."""
    terms: NewTerms | None = None
    """What to live by from now on; None leaves it as it is."""


class Exit(Struct, frozen=True):
    """How a process ended, as the operating system told it."""

    ended: int
    """Monotonic nanoseconds."""
    spawned: bool = True
    """False if no process could be made, or none was made because it was stopped before."""
    code: int | None = None
    """None after a signal."""
    signal: int | None = None
    usage: Usage = Usage()
    message: str = ""
    value: bytes = b""
    """What a call returned or raised, if it is small."""
    value_digest: str = ""
    """Where that is if it is not."""
    lost: bool = False
    """Whether it was ended by no fault of its own, together with the process that it shared."""
    out_of_memory: bool = False
    """Whether it was killed for using more memory than it asked for."""
    outputs: str = ""
    """Digest of the list of files that it brought back; empty if there are none."""
    unkept: bool = False
    """Whether it ended well, and not all of these could be brought back."""


class TaskResult(Struct, frozen=True):
    """How a task ended; kept until the server has answered it."""

    lease: Lease
    outcome: Outcome
    ended: int
    """Monotonic nanoseconds; may be negative for one that ended before the machine started."""
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()
    message: str = ""
    value: bytes = b""
    value_digest: str = ""
    outputs: str = ""
    """As in `Exit`."""


class Report(Struct, frozen=True):
    """One message with everything that was ready to be told."""

    incarnation: int
    started: tuple[tuple[Lease, int], ...]
    """Each with the monotonic time of its start."""
    results: tuple[TaskResult, ...]
    released: tuple[Lease, ...]
    leaving: bool = False
    """Whether the agent was told to stop and wants nothing more."""
    yielded: tuple[tuple[Lease, Yield], ...] = ()
    """Answers for leases that other agents want."""


class Answered(Struct, frozen=True):
    """The answer to a report."""

    epoch: int
    fenced: bool
    verdicts: tuple[tuple[Lease, Verdict], ...]
    started: tuple[Lease, ...]
    yielded: tuple[Lease, ...] = ()
    """Those whose answers are durable."""


class StartTask(Struct, frozen=True):
    """Make a process, or have one that is there make a call."""

    lease: Lease
    task: Task
    slot: int = -1
    """Tasks of one slot share their room and begin one after the other; -1 for one that has room of its own."""


class Recall(Struct, frozen=True):
    """Have a task back that was started behind others and has not begun."""

    lease: Lease


class Prefetch(Struct, frozen=True):
    """Have the inputs of a task here that waits."""

    task: Task


class Signal(Struct, frozen=True):
    """Send TERM, or KILL, to all processes of a task; before it has one, make none."""

    lease: Lease
    kill: bool


class ForgetResult(Struct, frozen=True):
    """The server has answered this result: it need not be kept."""

    lease: Lease
    verdict: Verdict


class HandOver(Struct, frozen=True):
    """Whoever shows this ticket may have the task of a lease that was given up."""

    lease: Lease
    ticket: bytes


class Fetch(Struct, frozen=True):
    """Get the task of a lease that was taken over."""

    lease: Lease
    source: Source


class Reconnect(Struct, frozen=True):
    """This registration is over: register anew, once all tasks have stopped if it was fenced."""

    why: str
    fenced: bool = False


Instruction: TypeAlias = Prefetch | StartTask | Recall | Signal | ForgetResult | HandOver | Fetch | Reconnect
