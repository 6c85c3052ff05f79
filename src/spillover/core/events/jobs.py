"""Events of jobs: how they come, wait, stop and end."""

from spillover.core.events.base import Back, Event, JobState, Stop, Usage
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import After, Range, Shape, Terms
from spillover.model.reasons import Reason


class JobSubmitted(Event, frozen=True, tag="job_submitted"):
    """A job or an array was accepted."""

    job: JobId
    at: int
    user: str
    name: str
    project: str
    queue: str
    priority: int
    spec: bytes
    """Digest of the whole spec in the blob store."""
    shape: Shape
    terms: Terms
    deadline: int | None = None
    not_before: int | None = None
    array: tuple[Range, ...] = ()
    after: tuple[After, ...] = ()
    """Only jobs that have not ended yet."""
    key: str | None = None
    body: bytes = b""
    """Digest of what was submitted under `key`, so that another body is refused."""
    predicted: int | None = None
    """Nanoseconds that jobs like it ran before; null if it says itself how long it runs, or too few are known."""
    blobs: bool = False
    """Whether it needs files that are kept for it."""


class JobsAdmitted(Event, frozen=True, tag="jobs_admitted"):
    """A cycle gave queued jobs the time until which they wait for owned capacity."""

    jobs: tuple[JobId, ...]
    latest: tuple[int, ...]
    """Latest start on owned capacity, in steady time (see `State.steady`); FOREVER never rents."""


class WaitsExpired(Event, frozen=True, tag="waits_expired"):
    """Jobs may be rented from now on, each for a reason of its own."""

    jobs: tuple[JobId, ...]
    why: Reason
    members: int = 0
    """Of a single array, how many of its pending members, the last ones first; 0 is all."""


class MembersDropped(Event, frozen=True, tag="members_dropped"):
    """Pending members of an array will never start."""

    array: JobId
    at: int
    members: tuple[Range, ...]
    state: JobState
    """The terminal state that they count under."""
    who: str


class JobStopping(Event, frozen=True, tag="job_stopping"):
    """A placed or running job is to be stopped; it holds its capacity until that is confirmed."""

    job: JobId
    at: int
    why: Stop
    who: str


class JobRequeued(Event, frozen=True, tag="job_requeued"):
    """A placed or running job went back to its place in the queue."""

    job: JobId
    at: int
    why: Back
    attempt: int
    seq: int
    cost: int
    """Millionths that the attempt cost all the same."""
    outputs: str = ""
    """The blob that lists the files that the attempt brought back; empty if there are none."""
    because: str = ""
    """What its cluster says of it, for people; empty if nothing."""
    backing_off: ClusterName | None = None
    """The cluster that it is not tried on for a while; null is none."""
    until: int = 0
    """Until when, nanoseconds UTC."""


class JobEnded(Event, frozen=True, tag="job_ended"):
    """A job reached a terminal state; its one accepted result."""

    job: JobId
    at: int
    state: JobState
    attempt: int
    seq: int
    started: int | None
    """None if no process ever ran in this attempt."""
    exit_code: int | None
    signal: int | None
    cost: int
    """Millionths, of all attempts."""
    usage: Usage
    why: Reason | None = None
    """None for a success."""
    value: bytes = b""
    """What a Python call returned or raised, if it is small: pickled, or plain data as JSON."""
    value_digest: str = ""
    """The blob with that if it is not."""
    outputs: str = ""
    """The blob that lists the files that the attempt brought back; empty if there are none."""


class BackoffEnded(Event, frozen=True, tag="shun_ended"):
    """A job may be tried again on a cluster that had given it back."""

    job: JobId
    at: int
    cluster: ClusterName


class JobHeld(Event, frozen=True, tag="job_held"):
    """Somebody holds a queued job."""

    job: JobId
    at: int
    who: str


class JobReleased(Event, frozen=True, tag="job_released"):
    """A held job went (back) to the queue: nobody holds it, nothing is left that it waits for."""

    job: JobId
    at: int
    who: str


class DependencyEnded(Event, frozen=True, tag="dependency_ended"):
    """A job that another waits for ended as it should."""

    job: JobId
    on: JobId


class JobReprioritised(Event, frozen=True, tag="job_reprioritised"):
    """Somebody changed a priority."""

    job: JobId
    at: int
    who: str
    priority: int


class JobsArchived(Event, frozen=True, tag="jobs_archived"):
    """Ended jobs are in the archive up to their last word, and leave the state."""

    jobs: tuple[JobId, ...]
