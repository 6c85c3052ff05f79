"""Defines what the parts of an agent pass to each other: leases with their tasks, exits, results, instructions.

These are plain values, independent of the protocol and the operating system, so that tests of `state.py` need nothing
else.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Verdict, Yield
from spillover.model.files import File
from spillover.model.ids import JobId
from spillover.model.job import Environment, PythonCall, SecretUse, Work
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND


class Phase(IntEnum):
    """Progress of a lease. The numbers are those of the protocol."""

    WAITING = 0
    RUNNING = 1
    ENDED = 2


class CallInImage(Struct, frozen=True):
    """A Python call in a container. It is work of its own kind: no warm worker can make it."""

    call: PythonCall
    image: str


class Task(Struct, frozen=True):
    """What to run under a lease, and its limits."""

    work: Work | CallInImage
    need: Resources
    env: dict[str, str] = {}
    workdir: str = "/"
    walltime: int = 0
    """Nanoseconds; 0 is no limit."""
    grace: int = 10 * SECOND
    """Nanoseconds between TERM and KILL; 0 kills at once."""
    lost_after: int = 5 * MINUTE
    """Nanoseconds that the task outlasts an unreachable server once its start is acknowledged."""
    inputs: tuple[File, ...] = ()
    """Files to put into the task's own folder, in which it runs, before it starts."""
    outputs: tuple[str, ...] = ()
    """Paths and patterns below that folder, of files to upload when the task ended."""
    outputs_limit: int = 0
    """Most bytes of all outputs together; 0 if the server sets no limit."""
    tasks: int = 0
    """Number of tasks of a gang; 0 if it is none. The agent prepares the tasks of a gang, and starts them all at one word."""
    restarts: bool = False
    """Whether it may start again in its place after it failed, if the server says so."""
    cpus: str = ""
    """CPUs that it has for itself, as a list such as `0-7,16`; empty if it shares those that are left."""
    gpus: tuple[str, ...] = ()
    """Ids of its GPUs; empty if the agent chooses."""
    binds_memory: bool = False
    """Whether its memory must be of the NUMA node of these CPUs."""
    name: str = ""
    """Of its job."""
    queue: str = "default"
    project: str = "default"
    array: tuple[int, int, int] | None = None
    """Lowest index, highest index and size of its array; None if it is no member of one."""
    stdout: str = ""
    """File for its output, relative to `workdir`, with patterns such as `%A`; empty is the log alone."""
    stderr: str = ""
    """The same for its errors."""
    append: bool = False
    """Whether it appends to these files; otherwise they are truncated."""
    signal: str = ""
    """Name of the signal that it gets before its walltime, such as `USR1`; empty is none."""
    signal_before: int = 0
    """Nanoseconds before its walltime."""
    stdin: File | None = None
    """Its standard input, to fetch before it starts; None is nothing."""
    terminal: bool = False
    """Whether it runs in a terminal."""
    given: str = ""
    """Path of its standard input, once that was fetched; empty is nothing."""
    keep_state: bool = False
    """Whether it has a folder that later attempts get."""
    state_limit: int = 0
    """Most bytes of that folder; 0 if the server sets no limit."""
    saved: str = ""
    """Digest of what earlier attempts left in it; empty if there is nothing."""
    environment: Environment | None = None
    """The Python environment that it runs in; None is that of the agent."""
    python: str = ""
    """The interpreter of that environment, once it is there; empty is the agent's."""
    secrets: tuple[SecretUse, ...] = ()
    """Secrets to fetch when it starts. Their values are in `env` then, or in files, and must not get to a disk."""

    @property
    def has_folder(self) -> bool:
        """Whether it runs in a folder of its own."""
        return bool(self.inputs or self.outputs)

    @property
    def has_files(self) -> bool:
        """Whether something is fetched before it starts, or files move after it ended."""
        fetched = self.stdin is not None or self.environment is not None or bool(self.secrets)
        return self.has_folder or self.keep_state or fetched

    @property
    def files(self) -> tuple[File, ...]:
        """All files to fetch before it starts."""
        return self.inputs if self.stdin is None else (*self.inputs, self.stdin)

    @property
    def is_granted(self) -> bool:
        """Whether the server says what it has for itself, so that no other task may take its place."""
        return bool(self.cpus or self.gpus)


class Source(Struct, frozen=True):
    """Where to fetch the task of a lease that was taken over from another agent."""

    address: str
    """HOST:PORT of that agent."""
    ticket: bytes
    """The proof that this agent may read the task."""
    lease: Lease
    """The lease under which that agent had the task."""
    digest: bytes = b""
    """SHA-256 of the task, see `wire.tasks`; empty if the server sends none."""


class Grant(Struct, frozen=True):
    """A lease with its task, or with the source of the task."""

    lease: Lease
    task: Task | None = None
    source: Source | None = None


class Readiness(NamedTuple):
    """What a prepared task of a gang has for itself and the others."""

    shell: int = 0
    """A free port for remote shells."""
    port: int = 0
    """Of rank 0: another free port, for the program."""
    token: bytes = b""
    """Of rank 0: a secret for the whole gang."""


class GangStart(Struct, frozen=True):
    """The word that all tasks of a gang are prepared, and may start."""

    job: JobId
    attempt: int
    seq: int
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


class Welcome(Struct, frozen=True):
    """The answer to a registration."""

    epoch: int
    incarnation: int
    keep: frozenset[Lease]
    """Those of the listed leases that the agent still holds."""
    heartbeat: int
    """Nanoseconds between two heartbeats."""
    short_term: int
    """Nanoseconds that a lease lasts without an acknowledged start."""
    log_retention: int = 0
    """Nanoseconds for which output is kept; 0 is for ever."""
    now: int = 0
    """The server's time in nanoseconds UTC; 0 if it sends none."""
    keep_output: bool = False
    """Whether the server wants a copy of the output of every ended task."""
    stream: bool = False
    """Whether the server takes heartbeats on the stream on which it sends leases."""
    spread: int = 0
    """Nanoseconds over which agents spread their reconnects, each at a random time, after a server outage."""


class NewTerms(Struct, frozen=True):
    """Terms that replace those of the registration."""

    number: int
    """Sent back in heartbeats, so that the server knows which terms the agent uses."""
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
    """Those of `stops` whose walltime or deadline has passed. If the process has exited, its files are still uploaded.
    """
    terms: NewTerms | None = None
    """New terms; None keeps the current ones."""
    walltimes: tuple[tuple[Lease, int], ...] = ()
    """Leases whose walltime has changed, in nanoseconds from the first start; 0 is no limit."""


class Exit(Struct, frozen=True):
    """How a process ended, as the operating system reported it."""

    ended: int
    """Monotonic nanoseconds."""
    spawned: bool = True
    """False if no process was created, because that failed or because the task was stopped first."""
    code: int | None = None
    """None after a signal."""
    signal: int | None = None
    usage: Usage = Usage()
    message: str = ""
    value: bytes = b""
    """What a call returned or raised, if small."""
    value_digest: str = ""
    """Digest of the blob with that value, if it is large."""
    lost: bool = False
    """Whether it ended through no fault of its own, with a process that it shared."""
    out_of_memory: bool = False
    """Whether it was killed for using more memory than it requested."""
    outputs: str = ""
    """Digest of the list of uploaded files; empty if there are none."""
    unkept: bool = False
    """Whether it exited with 0 but not all of its outputs could be uploaded."""
    saved: str = ""
    """Digest of what it left in its folder for later attempts; empty if nothing was saved."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of a task that nothing stopped."""
        if self.lost:
            return Outcome.LOST
        if self.out_of_memory:
            return Outcome.OUT_OF_MEMORY
        if self.unkept:
            return Outcome.UNKEPT
        return Outcome.EXITED if self.spawned else Outcome.NOT_STARTED


class TaskResult(Struct, frozen=True):
    """How a task ended. The agent keeps it until the server has answered."""

    lease: Lease
    outcome: Outcome
    ended: int
    """Monotonic nanoseconds; negative if the task ended before the machine started."""
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()
    message: str = ""
    value: bytes = b""
    value_digest: str = ""
    outputs: str = ""
    """As in `Exit`."""
    run: int = 0
    """How often the task was started again under its lease before."""
    saved: str = ""
    """As in `Exit`."""


class Report(Struct, frozen=True):
    """One message with everything that was ready to report."""

    incarnation: int
    started: tuple[tuple[Lease, int], ...]
    """Each with the monotonic time of its start."""
    results: tuple[TaskResult, ...]
    released: tuple[Lease, ...]
    leaving: bool = False
    """Whether the agent is stopping and wants no more work."""
    yielded: tuple[tuple[Lease, Yield], ...] = ()
    """Answers about leases that other agents want."""
    prepared: tuple[tuple[Lease, Readiness], ...] = ()
    """Prepared tasks of gangs."""
    waiting: frozenset[Lease] = frozenset()
    """Those of `results` whose tasks have kept their capacity and can start again."""
    taken_back: int = 0
    """When the machine will be taken back, nanoseconds UTC; 0 if it will not."""


class Answered(Struct, frozen=True):
    """The answer to a report."""

    epoch: int
    fenced: bool
    verdicts: tuple[tuple[Lease, Verdict], ...]
    started: tuple[Lease, ...]
    yielded: tuple[Lease, ...] = ()
    """Leases whose yield answers are durable."""


class StartTask(Struct, frozen=True):
    """Create a process, or have an existing one make a call."""

    lease: Lease
    task: Task
    slot: int = -1
    """Tasks of one slot share capacity and run one after the other; -1 for a task with capacity of its own."""


class Restart(Struct, frozen=True):
    """Start a task of a gang again, after writing the files about its gang again."""

    lease: Lease
    task: Task
    slot: int
    start: GangStart


class Prepare(Struct, frozen=True):
    """Prepare a task of a gang, so that it can start at once when the others are prepared too."""

    lease: Lease
    task: Task


class Discard(Struct, frozen=True):
    """Delete what was prepared for a task that does not start."""

    lease: Lease


class Recall(Struct, frozen=True):
    """Return a task that was queued behind others and has not begun."""

    lease: Lease


class Prefetch(Struct, frozen=True):
    """Fetch the inputs of a waiting task."""

    task: Task


class Signal(Struct, frozen=True):
    """Send TERM or KILL to all processes of a task. If it has none yet, create none."""

    lease: Lease
    kill: bool


class Notify(Struct, frozen=True):
    """Send a task the signal that it wants before its walltime. It does not stop the task."""

    lease: Lease


class ForgetResult(Struct, frozen=True):
    """Delete a result that the server has answered."""

    lease: Lease
    verdict: Verdict


class HandOver(Struct, frozen=True):
    """Let the holder of this ticket fetch the task of a lease that was given up."""

    lease: Lease
    ticket: bytes


class Fetch(Struct, frozen=True):
    """Fetch the task of a lease that was taken over."""

    lease: Lease
    source: Source


class Reconnect(Struct, frozen=True):
    """End this registration and register again; if fenced, after all tasks have stopped."""

    why: str
    fenced: bool = False


Instruction: TypeAlias = (
    Prefetch
    | Prepare
    | Discard
    | StartTask
    | Restart
    | Recall
    | Signal
    | Notify
    | ForgetResult
    | HandOver
    | Fetch
    | Reconnect
)
