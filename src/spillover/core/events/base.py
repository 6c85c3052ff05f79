"""What events are made of, and what each says of itself."""

from collections.abc import Container
from enum import StrEnum
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Range
from spillover.model.reasons import Reason


class JobState(StrEnum):
    """The life of a job."""

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
    """Its wait policy brings it back from rented capacity."""
    TASK_FAILED = "task_failed"
    """Another task of its gang did not end well."""


class Outcome(StrEnum):
    """How a task ended, in its agent's eyes."""

    EXITED = "exited"
    WALLTIME = "walltime"
    """The agent stopped it at its walltime."""
    STOPPED = "stopped"
    """The agent stopped it because it was told to."""
    LOST = "lost"
    """It was running when its agent died, or could not be kept."""
    NOT_STARTED = "not_started"
    """No process could be made of it: the message says why."""
    OUT_OF_MEMORY = "out_of_memory"
    """It was killed because it used more memory than it asked for."""
    UNKEPT = "unkept"
    """It ended well, and what it made could not be brought back: the message says why."""
    UNUSABLE = "unusable"
    """It ended, and what was reported of that cannot be used: the message says why."""
    RELEASED = "released"
    """Its agent gave it back before it began."""


class Back(StrEnum):
    """Why a placed job went back to the queue."""

    RELEASED = "released"
    """Handed back unharmed; the attempt is kept."""
    LOST = "lost"
    EXIT = "exit"
    """Its exit code is retried."""
    REQUESTED = "requested"
    """Somebody asked for it."""
    RETURNED = "returned"
    """Its wait policy brought it back from rented capacity: it waits anew."""


class Unmoved(StrEnum):
    """Why a lease that another agent asked for stays where it is."""

    STARTED = "started"
    """Its task runs."""
    UNKNOWN = "unknown"
    """Its agent has never seen it, and will hand it back should it come."""
    VOID = "void"
    """Its agent registered anew, so that the question was not put to it."""


class Lease(Struct, frozen=True, array_like=True, gc=False):
    """The right of one agent to run one task."""

    job: JobId
    attempt: int
    seq: int
    """Rises at every change of owner."""
    task: int = 0


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """What a task used, as its agent measured it."""

    ran: int = 0
    """Nanoseconds on the agent's monotonic clock."""
    cpu: int = 0
    """Nanoseconds of CPU, user and system, with its children."""
    peak_memory: int = 0
    """Bytes, of the largest process."""


class TaskEnd(Struct, frozen=True, array_like=True, gc=False):
    """How one task of a gang ended."""

    rank: int
    at: int
    state: JobState
    outcome: Outcome | None = None
    """None if nothing was told of it but how its job ended."""
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()
    message: str = ""
    """What is said of it, for people; empty if nothing."""


class PeriodRef(Struct, frozen=True, array_like=True, gc=False):
    """Where a hold is counted: a budget in one period."""

    key: str
    """Of the period."""
    until: int
    """When its period ends, nanoseconds UTC."""


class Reached(NamedTuple):
    """A job came to a state, or moved within it."""

    job: JobId
    at: int
    """Nanoseconds UTC."""
    state: JobState
    attempt: int = 0
    """0 if it is the same as before."""
    cluster: ClusterName | None = None
    """None if it has no place, or keeps the one it has."""
    node: NodeName | None = None
    exit_code: int | None = None
    signal: int | None = None
    why: Reason | None = None
    members: tuple[Range, ...] = ()
    """Of an array, members that came to the state without ever having been placed; none if the job itself did."""


CounterName: TypeAlias = Literal["submitted", "placed", "ended", "disabled", "cycles"]
"""A counter of the metrics."""
Counted: TypeAlias = tuple[()] | tuple[CounterName, *tuple[str, ...]]
"""A counter and its labels; empty for what is not counted."""


class Event(Struct, frozen=True, array_like=True, gc=False):
    """Base of all events, and what is asked of any of them.

    Who tells of events (history, watches, metrics, the index) asks these and knows no type of event; `str` is its sentence for people.
    Who acts on events (`apply`, the scheduling index, the runner) has a table or a match of its own.
    """

    hidden: ClassVar[tuple[str, ...]] = ()
    """Fields that nobody is shown."""
    of_members: ClassVar[bool] = False
    """Whether it is also about members of its job that it does not name one by one."""

    def about(self) -> tuple[JobId, ...]:
        """The jobs that it is about; of members of an array that are dropped, the array."""
        return ()

    def only(self, jobs: Container[JobId]) -> Self:
        """What of it is about some of its jobs, of which there is one at least."""
        del jobs
        return self

    def of_project(self) -> str | None:
        """The project of its job; None if it does not say."""
        return None

    def reached(self) -> tuple[Reached, ...]:
        """The states that it brings jobs to, or in which it moves them."""
        return ()

    def counted(self) -> Counted:
        """The counter of the metrics that it adds one to."""
        return ()


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

    def told(self, one: str, many: str) -> str:
        """What happened to one job, or to several."""
        return one if len(self.jobs) == 1 else f"{len(self.jobs)} {many}"
