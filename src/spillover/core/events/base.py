"""Common parts of events, and the interface of every event."""

from collections.abc import Container
from enum import StrEnum
from typing import ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Range
from spillover.model.reasons import Reason


class JobState(StrEnum):
    """The states of a job."""

    HELD = "HELD"
    QUEUED = "QUEUED"
    PLACED = "PLACED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"


class Stop(StrEnum):
    """Why a placed job is being stopped."""

    CANCEL = "cancel"
    WALLTIME = "walltime"
    DEADLINE = "deadline"
    REQUEUE = "requeue"
    RETURN = "return"
    """Its wait policy returns it from rented capacity to the queue."""
    TASK_FAILED = "task_failed"
    """Another task of its gang failed."""
    TASK_SUCCEEDED = "task_succeeded"
    """The first task of its gang succeeded, and the job ends with that one."""
    UNPREPARED = "unprepared"
    """Not all nodes of its gang prepared their tasks in time."""
    INTERRUPT = "interrupt"
    """Its rented machine is taken back or ended."""


class Outcome(StrEnum):
    """How a task ended, as its agent reports it."""

    EXITED = "exited"
    WALLTIME = "walltime"
    """The agent stopped it at its walltime."""
    STOPPED = "stopped"
    """The agent stopped it on request."""
    LOST = "lost"
    """It was running when its agent died, or the agent lost track of it."""
    NOT_STARTED = "not_started"
    """Its process could not be started; the message says why."""
    OUT_OF_MEMORY = "out_of_memory"
    """It was killed because it used more memory than it asked for."""
    UNKEPT = "unkept"
    """It succeeded, but its output files could not be stored; the message says why."""
    UNUSABLE = "unusable"
    """It ended, but its report cannot be used; the message says why."""
    RELEASED = "released"
    """Its agent returned it before it began."""
    NO_SECRET = "no_secret"  # noqa: S105 - not a password
    """It was not started, because it may not have one of its secrets, or there is none; the message says why."""


class Back(StrEnum):
    """Why a placed job returned to the queue."""

    RELEASED = "released"
    """Returned without having started; the attempt keeps its number."""
    LOST = "lost"
    EXIT = "exit"
    """Its exit code is retried."""
    REQUESTED = "requested"
    """A person asked for it."""
    RETURNED = "returned"
    """Its wait policy returned it from rented capacity; its wait starts again."""
    UNPREPARED = "unprepared"
    """A node could not prepare its task of the gang, so that no task started. It uses one of `retry.lost`."""
    INTERRUPTED = "interrupted"
    """Its rented machine was taken back or ended. It uses none of its retries."""


class Unmoved(StrEnum):
    """Why a lease that another agent asked for stays where it is."""

    STARTED = "started"
    """Its task runs."""
    UNKNOWN = "unknown"
    """Its agent has not received it, and will return it if it arrives."""
    VOID = "void"
    """Its agent registered again, so it did not get the request."""


class Lease(Struct, frozen=True, array_like=True, gc=False):
    """The right of one agent to run one task."""

    job: JobId
    attempt: int
    seq: int
    """Rises with every change of owner."""
    task: int = 0


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """What a task used, as its agent measured it."""

    ran: int = 0
    """Runtime in nanoseconds on the agent's monotonic clock."""
    cpu: int = 0
    """CPU time in nanoseconds, user and system, including children."""
    peak_memory: int = 0
    """Peak memory of the largest process in bytes."""
    gpu: int = 0
    """Time in nanoseconds for which its GPUs were busy, in sum."""
    gpu_measured: int = 0
    """Time of its GPUs in nanoseconds, in sum, for which `gpu` counts; 0 if their use was not measured."""
    gpu_memory: int = 0
    """Peak memory in use of one of its GPUs in bytes."""


class Like(StrEnum):
    """What earlier runs have in common with a job that is expected to run about as long."""

    NAME = "name"
    """They were of the same user, had the same name and ran the same program, with other arguments."""
    JOB = "job"
    """They were runs of the very same job: of the same user, with the same name and command."""
    SHAPE = "shape"
    """They were of the same user, asked for the same resources and have the same walltime."""
    PROGRAM = "program"
    """They were of the same user and ran the same program, in other ways, under no name of their own."""


class Evidence(Struct, frozen=True, array_like=True, gc=False):
    """What a predicted runtime rests on."""

    like: Like
    runs: int
    """Number of recent runs of such jobs."""
    within: int
    """How many of them took no longer than predicted."""


class TaskEnd(Struct, frozen=True, array_like=True, gc=False):
    """How one task of a gang ended."""

    rank: int
    at: int
    state: JobState
    outcome: Outcome | None = None
    """None if the task was not reported separately from its job."""
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()
    message: str = ""
    """Message for people; empty if there is none."""
    outputs: str = ""
    """The blob that lists the output files of the first task; empty if there are none."""
    value: bytes = b""
    value_digest: str = ""
    """What the Python call of the first task returned or raised, as in `JobEnded`."""
    saved: str = ""
    """The blob with what it left in its folder for later attempts; empty if nothing was saved."""
    backoff: int = 0
    """Nanoseconds for which its gang backs off from its cluster, if the task never started and was given back."""


class PeriodRef(Struct, frozen=True, array_like=True, gc=False):
    """A budget period that counts a hold."""

    key: str
    """Key of the period."""
    until: int
    """When the period ends, nanoseconds UTC."""


class Reached(NamedTuple):
    """A job reached a state, or moved within it."""

    job: JobId
    at: int
    """Nanoseconds UTC."""
    state: JobState
    attempt: int = 0
    """0 if it did not change."""
    cluster: ClusterName | None = None
    """None if it has no place, or if its place did not change."""
    node: NodeName | None = None
    exit_code: int | None = None
    signal: int | None = None
    why: Reason | None = None
    members: tuple[Range, ...] = ()
    """Members of an array that reached the state without being placed; empty if the job itself reached it."""


CounterName: TypeAlias = Literal["submitted", "placed", "ended", "disabled", "cycles"]
"""A counter of the metrics."""
Counted: TypeAlias = tuple[()] | tuple[CounterName, *tuple[str, ...]]
"""A counter and its labels; empty for events that are not counted."""


SERVER: Final = frozenset({"spillover", "the pool"})
"""Names under which the server itself acts."""


class Event(Struct, frozen=True, array_like=True, gc=False):
    """Base of all events, with the questions that every event answers.

    Code that reports events (history, watches, metrics, the index of the journal) uses this interface and knows no
    event types. `str` gives a sentence for people. Code that acts on events (`apply`, the scheduling index, the runner)
    has its own table.
    """

    hidden: ClassVar[tuple[str, ...]] = ()
    """Fields that are never shown."""
    of_members: ClassVar[bool] = False
    """Whether it also concerns members of its job that it does not name."""
    also_of_server: ClassVar[bool] = False
    """Whether the server causes such events too, under one of its names."""

    def about(self) -> tuple[JobId, ...]:
        """Return the jobs that it is about; for dropped members, their array."""
        return ()

    def only(self, jobs: Container[JobId]) -> Self:
        """Return the part that is about some of its jobs, at least one."""
        del jobs
        return self

    def of_project(self) -> str | None:
        """Return the project of its job; None if the event does not have it."""
        return None

    def reached(self) -> tuple[Reached, ...]:
        """Return the states that jobs reach, or in which they move."""
        return ()

    def counted(self) -> Counted:
        """Return the counter that it increments."""
        return ()

    def caused_by(self) -> str:
        """Return the person who caused it; empty if the server, a cluster or an agent did."""
        who: str = getattr(self, "who", "")
        return "" if self.also_of_server and who in SERVER else who


class JobEvent(Event, frozen=True):
    """Base of events about one job."""

    job: JobId

    def about(self) -> tuple[JobId, ...]:
        """See Event."""
        return (self.job,)


class JobsEvent(Event, frozen=True):
    """Base of events about several jobs."""

    jobs: tuple[JobId, ...]

    def about(self) -> tuple[JobId, ...]:
        """See Event."""
        return self.jobs

    def only(self, jobs: Container[JobId]) -> Self:
        """See Event."""
        return replace(self, jobs=tuple([job for job in self.jobs if job in jobs]))

    def one_or_many(self, one: str, many: str) -> str:
        """Return the text for one job, or for several."""
        return one if len(self.jobs) == 1 else f"{len(self.jobs)} {many}"
