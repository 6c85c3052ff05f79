"""What events are made of."""

from enum import StrEnum

from msgspec import Struct

from spillover.model.ids import JobId


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


class PeriodRef(Struct, frozen=True, array_like=True, gc=False):
    """Where a hold is counted: a budget in one period."""

    key: str
    """Of the period."""
    until: int
    """When its period ends, nanoseconds UTC."""


class Event(Struct, frozen=True, array_like=True, gc=False):
    """Base of all events."""
