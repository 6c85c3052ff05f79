"""Events in the lifecycle of jobs: submission, waiting, stopping and ending."""

from collections.abc import Container
from typing import Final, Self

from msgspec.structs import replace

from spillover.core.events.base import (
    Back,
    Counted,
    Event,
    Evidence,
    JobEvent,
    JobsEvent,
    JobState,
    Reached,
    Stop,
    Usage,
)
from spillover.model import ranges
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.job import After, AfterMembers, Range, Shape, Terms
from spillover.model.reasons import CancelledBy, Reason
from spillover.model.units import format_duration, format_moment, so_many

_BY_PEOPLE: Final = frozenset({Stop.CANCEL, Stop.REQUEUE})
"""Stops that people ask for."""


class JobSubmitted(JobEvent, frozen=True, tag="job_submitted"):
    """A job or an array was accepted."""

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
    """Dependencies that have not ended yet."""
    key: str | None = None
    body: bytes = b""
    """Digest of what was submitted under `key`, so that another body is refused."""
    predicted: int | None = None
    """Runtime of similar jobs, in nanoseconds; null if the job has an estimate, or too few similar jobs are known."""
    blobs: bool = False
    """Whether it needs stored files."""
    held: bool = False
    """Whether the user holds it from the start."""
    throttle: int = 0
    """Most members of the array that are placed at a time; 0 is all."""
    evidence: Evidence | None = None
    """What `predicted` rests on; null without a prediction, and up to release 0.4."""
    named: bool = True
    """Whether its name says what it does; false if it is only that of the program that it runs."""
    traceparent: str = ""
    """The W3C trace context of the request that submitted it; empty if it had none."""
    saved: tuple[str, ...] = ()
    """By rank, the blobs with what the tasks of another job left in their folders, with which it begins; empty for
    empty folders.
    """
    saved_by: str = ""
    """That job."""
    notify: bool = False
    """Whether it names somebody who is told when it begins or ends; its spec has whom."""
    after_members: tuple[AfterMembers, ...] = ()
    """Arrays whose members those of this one wait for, each for that with its own index: job, condition, and the members of this array that wait."""
    command: bytes = b""
    """Digest of the program that it runs (8 bytes, zeros if it is not clear) and of all that says what it runs (8 bytes); empty up
    to release 0.4.
    """

    def __str__(self) -> str:
        size = ranges.size(self.array)
        text = f"{self.user} submitted {self.name}" + (f", an array of {size}" if size else "")
        if self.saved_by:
            text += f", with the folder that {self.saved_by} left"
        if self.throttle:
            text += f" with at most {self.throttle} at a time"
        return f"{text}, held" if self.held else text

    def of_project(self) -> str | None:
        """See Event."""
        return self.project

    def caused_by(self) -> str:
        """See Event."""
        return self.user

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        waits = self.held or self.after or (self.not_before is not None and self.not_before > self.at)
        if self.after_members and not waits:
            waits = not ranges.outside(self.array, [each.members for each in self.after_members])
        return (Reached(self.job, self.at, JobState.HELD if waits else JobState.QUEUED, 1),)

    def counted(self) -> Counted:
        """See Event."""
        return ("submitted",)


class JobsAdmitted(JobsEvent, frozen=True, tag="jobs_admitted"):
    """A cycle set how long queued jobs wait for owned capacity."""

    latest: tuple[int, ...]
    """Latest start on owned capacity, in steady time (see `State.steady`). FOREVER means never rent."""

    def __str__(self) -> str:
        return self.one_or_many("waits for owned capacity", "jobs wait for owned capacity")

    def only(self, jobs: Container[JobId]) -> Self:
        """See Event."""
        own = [pair for pair in zip(self.jobs, self.latest, strict=True) if pair[0] in jobs]
        return replace(self, jobs=tuple([job for job, _ in own]), latest=tuple([latest for _, latest in own]))


class WaitsExpired(JobsEvent, frozen=True, tag="waits_expired"):
    """Jobs may be rented from now on, all for the same reason."""

    why: Reason
    members: int = 0
    """For a single array, how many of its pending members, last ones first; 0 means all."""

    def __str__(self) -> str:
        return self.one_or_many("may be rented", "jobs may be rented") + f": {self.why}"


class MembersDropped(Event, frozen=True, tag="members_dropped"):
    """Pending members of an array will never start."""

    array: JobId
    at: int
    members: tuple[Range, ...]
    state: JobState
    """The terminal state that they count as."""
    who: str
    why: Reason | None = None
    """Why they can never start, if what they wait for ended otherwise; null if they were cancelled or are too late."""

    of_members = True
    also_of_server = True

    def __str__(self) -> str:
        because = "" if self.why is None else f", {self.why}"
        return f"{so_many(ranges.size(self.members), 'pending member')} will not start: {self.state}{because}"

    def about(self) -> tuple[JobId, ...]:
        """See Event."""
        return (self.array,)

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.array, self.at, self.state, 1, why=self.why, members=self.members),)


class MembersFreed(Event, frozen=True, tag="members_freed"):
    """Members of an array no longer wait for those of another one, each for that with its own index."""

    array: JobId
    at: int
    on: JobId
    """The other array."""
    members: tuple[Range, ...]

    of_members = True

    def __str__(self) -> str:
        many = ranges.size(self.members)
        return f"{so_many(many, 'member')} no longer wait{'' if many > 1 else 's'} for {self.on}"

    def about(self) -> tuple[JobId, ...]:
        """See Event. A single member is named, so that the history of its array does not fill with such events."""
        first = self.members[0].first
        return (self.array if ranges.size(self.members) > 1 else member_id(self.array, first),)


class JobStopping(JobEvent, frozen=True, tag="job_stopping"):
    """A placed or running job must stop. It holds its capacity until that is confirmed."""

    at: int
    why: Stop
    who: str

    def caused_by(self) -> str:
        """See Event."""
        return self.who if self.why in _BY_PEOPLE else ""

    def __str__(self) -> str:
        return f"stop requested by {self.who} ({self.why})"


class JobRequeued(JobEvent, frozen=True, tag="job_requeued"):
    """A placed or running job returned to the queue."""

    at: int
    why: Back
    attempt: int
    seq: int
    cost: int
    """Millionths, of all attempts so far."""
    outputs: str = ""
    """The blob that lists the output files of the attempt; empty if there are none."""
    because: str = ""
    """Message of its cluster for people; empty if there is none."""
    backing_off: ClusterName | None = None
    """The cluster that it backs off from; null if none."""
    until: int = 0
    """End of that backoff, nanoseconds UTC."""
    unprepared: tuple[NodeName, ...] = ()
    """Nodes of that cluster that could not prepare a gang; its next attempts use others, if those have room."""
    saved: tuple[str, ...] = ()
    """By rank, the blobs with what tasks left in their folders for later attempts, each empty if nothing was saved;
    empty if none saved anything.
    """
    began: bool = False
    """Whether a process is known to have run in the attempt; false also in older journals."""

    def __str__(self) -> str:
        because = f": {self.because}" if self.because else ""
        until = (
            f"; backs off from {self.backing_off} until {format_moment(self.until)}"
            if self.backing_off
            else ""
        )
        return f"requeued ({self.why}), attempt {self.attempt}{because}{until}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.QUEUED, self.attempt),)


class JobEnded(JobEvent, frozen=True, tag="job_ended"):
    """A job reached a terminal state: its only accepted result."""

    at: int
    state: JobState
    attempt: int
    seq: int
    started: int | None
    """null if no process ran in this attempt."""
    exit_code: int | None
    signal: int | None
    cost: int
    """Millionths, of all attempts."""
    usage: Usage
    why: Reason | None = None
    """null for a success."""
    value: bytes = b""
    """What a Python call returned or raised, if it is small: pickled, or plain data as JSON."""
    value_digest: str = ""
    """The blob with that value if it is large."""
    outputs: str = ""
    """The blob that lists the output files of the attempt; empty if there are none."""
    rank: int = 0
    """The task whose end decided."""
    saved: tuple[str, ...] = ()
    """By rank, the blobs with what tasks left in their folders, for a job that goes on with them, as in `JobRequeued`."""

    def __str__(self) -> str:
        ran = f" after {format_duration(self.usage.ran)}" if self.usage.ran else ""
        return f"{self.state}{ran}" + (f": {self.why}" if self.why is not None else "")

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (
            Reached(
                self.job,
                self.at,
                self.state,
                self.attempt,
                exit_code=self.exit_code,
                signal=self.signal,
                why=self.why,
            ),
        )

    def counted(self) -> Counted:
        """See Event."""
        return ("ended", self.state.value)

    def caused_by(self) -> str:
        """See Event."""
        return self.why.who if isinstance(self.why, CancelledBy) else ""


class BackoffEnded(JobEvent, frozen=True, tag="shun_ended"):
    """A job may be tried again on a cluster that had returned it."""

    at: int
    cluster: ClusterName

    def __str__(self) -> str:
        return f"may be placed on {self.cluster} again"


class JobHeld(JobEvent, frozen=True, tag="job_held"):
    """A person holds a job. If `who` is empty, the hold ended, but the job still waits for a time or for other jobs."""

    at: int
    who: str
    released_by: str = ""
    """The person who ended the hold; empty if it began."""
    throttled: bool = False
    """Whether it is a member that came back to the queue and waits because its array has as many members going as may be."""

    def caused_by(self) -> str:
        """See Event."""
        return self.who or self.released_by

    def __str__(self) -> str:
        if self.who:
            return f"held by {self.who}"
        ended = f"hold ended by {self.released_by}" if self.released_by else "hold ended"
        if self.throttled:
            waits = "waits for another member of its array to end"
            return f"{ended}; {waits}" if self.released_by else waits
        return f"{ended}; still waits for its time or for other jobs"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.HELD),)


class JobReleased(JobEvent, frozen=True, tag="job_released"):
    """A held job joined the queue: it has no hold, and waits for nothing else."""

    at: int
    who: str

    also_of_server = True

    def __str__(self) -> str:
        return f"released by {self.who}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.QUEUED),)


class DependencyEnded(JobEvent, frozen=True, tag="dependency_ended"):
    """A job that another one depends on ended as required."""

    on: JobId

    def __str__(self) -> str:
        return f"no longer waits for {self.on}"


class JobReprioritised(JobEvent, frozen=True, tag="job_reprioritised"):
    """A person changed the priority of a job."""

    at: int
    who: str
    priority: int

    def __str__(self) -> str:
        return f"priority {self.priority}, by {self.who}"


class JobChanged(JobEvent, frozen=True, tag="job_changed"):
    """A person changed what a waiting job asks for, or the walltime of a running one."""

    at: int
    who: str
    changed: tuple[str, ...]
    """What is new: `name`, `queue`, `resources`, `walltime`, `estimate`, `deadline`, `after` or `throttle`."""
    spec: bytes
    """Digest of the whole new spec in the blob store."""
    name: str = ""
    """Empty if it stays."""
    queue: str = ""
    """Empty if it stays."""
    shape: Shape | None = None
    """null if resources and queue stay."""
    terms: Terms | None = None
    """null if walltime and estimate stay."""
    deadline: int | None = None
    """Counts only if `changed` has it."""
    after: tuple[After, ...] = ()
    """Dependencies that have not ended yet. Counts only if `changed` has it."""
    throttle: int = 0
    """Most members of the array that are placed at a time; 0 is all. Counts only if `changed` has it."""
    predicted: int | None = None
    """Runtime of similar jobs, as in `job_submitted`."""
    evidence: Evidence | None = None
    """What `predicted` rests on."""
    named: bool = True
    """Whether its name says what it does."""
    held: bool = False
    """Whether it now has to wait for other jobs, or for its own members."""
    again: bool = False
    """Whether the wait policy decides anew how long it waits for owned capacity."""
    after_members: tuple[AfterMembers, ...] = ()
    """As in `job_submitted`. Counts only if `changed` has `after`."""

    def __str__(self) -> str:
        return f"changed by {self.who}: {', '.join([self._told(each) for each in self.changed])}"

    def _told(self, what: str) -> str:
        """Return one change in words."""
        terms = self.terms or Terms()
        match what:
            case "resources" if self.shape is not None:
                told = str(self.shape.resources)
            case "walltime" | "estimate":
                value = terms.walltime if what == "walltime" else terms.estimate
                told = f"no {what}" if value is None else f"{what} {format_duration(value)}"
            case "deadline":
                told = "no deadline" if self.deadline is None else f"deadline {format_moment(self.deadline)}"
            case "after":
                jobs = [each.job for each in self.after] + [each.job for each in self.after_members]
                told = f"after {', '.join(jobs) or 'no job'}"
            case "throttle":
                told = f"at most {self.throttle} at a time" if self.throttle else "all members at a time"
            case _:
                told = f"{what} {getattr(self, what)}"
        return told

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.HELD),) if self.held else ()


class JobsArchived(JobsEvent, frozen=True, tag="jobs_archived"):
    """Ended jobs are completely in the archive and leave the state."""

    def __str__(self) -> str:
        return self.one_or_many("moved to the archive", "jobs moved to the archive")
