"""Records of jobs: their properties and their phases.

Records are small, because a million jobs may be queued. Values that many jobs have in common (shape, terms, names) are
shared. Values that few jobs have are in `Extra`.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field

from spillover.core.events import Evidence, JobState, Lease, Stop, TaskEnd, Usage
from spillover.core.records.money import Hold, Paid
from spillover.core.records.tasks import Gang, JobTask, asked_by
from spillover.model import ranges
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, node_key
from spillover.model.inside import Granted, held_with
from spillover.model.job import After, AfterMembers, Range, Shape, Terms
from spillover.model.ranges import Ranges
from spillover.model.reasons import Reason
from spillover.model.resources import Resources


class Kind(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What the jobs of one lane have in common; they share one instance."""

    shape: Shape
    queue: str
    project: str
    backing_off: tuple[ClusterName, ...] = ()
    """Clusters that they back off from, sorted; usually none."""


class Waiting(Struct, frozen=True, tag="held", array_like=True, gc=False):
    """Not to be scheduled yet: held by a person, or waiting for its time, for other jobs or for its own members."""

    by: str | None
    """The person who holds it; None if it only waits for its time, for other jobs or for its own members."""


class Queued(Struct, frozen=True, tag="queued", array_like=True, gc=False):
    """To be scheduled."""


class Placed(Struct, frozen=True, tag="placed", array_like=True, gc=False):
    """Leased to a node, but not started."""

    cluster: ClusterName
    node: NodeName
    """The node of the first task."""
    at: int
    why: Reason
    stopping: Stop | None = None
    by: str = ""
    """Who asked to stop it: a person, or `spillover`."""
    others: tuple[NodeName, ...] = ()
    """Nodes of the other tasks in checkpoints of release 0.4 or older; empty since then, see `Job.tasks`."""
    thief: NodeName | None = None
    """The agent that asked for its lease, which stays here until it is given up; usually None."""
    revoked: bool = False
    """Whether its agent is asked to return the lease, unless the task has started."""

    @property
    def key(self) -> NodeKey:
        """The node of its first task."""
        return node_key(self.cluster, self.node)


class Running(Struct, frozen=True, tag="running", array_like=True, gc=False):
    """Its process runs."""

    cluster: ClusterName
    node: NodeName
    """The node of the first task."""
    at: int
    """When it was placed."""
    since: int
    why: Reason
    stopping: Stop | None = None
    by: str = ""
    jumped: int = 0
    """Sum of clock jumps at its start. Later jumps do not count as runtime."""
    others: tuple[NodeName, ...] = ()
    """As in `Placed`."""

    @property
    def key(self) -> NodeKey:
        """The node of its first task."""
        return node_key(self.cluster, self.node)


class Spread(Struct, frozen=True, tag="spread", array_like=True, gc=False):
    """An array all of whose members have become separate jobs."""

    since: int


class Ended(Struct, frozen=True, tag="ended", array_like=True, gc=False):
    """Ended for good."""

    state: JobState
    at: int
    started: int | None
    cluster: ClusterName | None
    node: NodeName | None
    placed: Reason | None
    """Why it ran where it did; None if it never ran."""
    exit_code: int | None
    signal: int | None
    usage: Usage
    why: Reason | None
    ready: int | None = None
    """When it could first have been placed, nanoseconds UTC, shifted by clock jumps; None if it was never placed."""
    value: bytes = b""
    value_digest: str = ""
    """What a Python call returned or raised, as in `JobEnded`."""


Phase: TypeAlias = Waiting | Queued | Placed | Running | Spread | Ended

QUEUED = Queued()


class Members(Struct, array_like=True, gc=False):
    """The progress of an array."""

    size: int
    pending: tuple[Range, ...]
    live: int = 0
    """Members that have become separate jobs and have not ended."""
    ended: dict[JobState, int] = field(default_factory=dict)
    due: int = 0
    """How many pending members may be rented, if not all of them may; 0 otherwise."""
    most: int = 0
    """Most live members at a time; 0 is all."""
    after: tuple[AfterMembers, ...] = ()
    """Arrays for whose members some of these wait. Such members are not among `pending`."""

    @property
    def blocked(self) -> Ranges:
        """Members that wait for those of other arrays."""
        if len(self.after) == 1:
            return self.after[0].members
        return ranges.merged(part for each in self.after for part in each.members)

    @property
    def unplaced(self) -> Ranges:
        """Members that may still be placed, now or later."""
        return ranges.union(self.pending, self.blocked) if self.after else self.pending

    @property
    def wait_for_members(self) -> bool:
        """Whether the others can be placed only after other members have ended: of this array, or of another one."""
        return self.throttled or (not self.pending and bool(self.after))

    @property
    def throttled(self) -> bool:
        """Whether as many members are live as may be, so that the others wait for one to end."""
        return 0 < self.most <= self.live


class ClusterBackoff(Struct, frozen=True, array_like=True, gc=False):
    """A cluster that returned a job."""

    cluster: ClusterName
    until: int
    """When the job may be tried there again, nanoseconds UTC."""
    because: str


class Tried(Struct, frozen=True, array_like=True, gc=False):
    """An earlier attempt that ran."""

    at: int
    """When it returned to the queue, nanoseconds UTC."""
    cluster: ClusterName
    ran: int
    """Nanoseconds, without clock jumps."""
    tasks: int = 1


class Extra(Struct, array_like=True, gc=False):
    """Values that few jobs have."""

    deadline: int | None = None
    not_before: int | None = None
    after: tuple[After, ...] = ()
    """Jobs that it still waits for."""
    key: str | None = None
    body: bytes = b""
    members: Members | None = None
    hold: Hold | None = None
    """The cost hold of the current attempt; None unless a cap limits it."""
    paid: tuple[Paid, ...] = ()
    """Earlier attempts that cost something."""
    returned: int = 0
    """How many times its wait policy returned it from rented capacity."""
    placed_on: ClusterSpec | None = None
    """Its cluster at the time of placement, if that was changed since, or if it pays its share of machines."""
    came_back: int = 0
    """Its `seq` when it last returned that way, after which its wait starts again; 0 if it never did."""
    blobs: bool = False
    """Whether it needs stored files. For members, the array has this flag, because it ends after them."""
    outputs: tuple[tuple[int, str], ...] = ()
    """Attempts with output files, each with the blob that lists them."""
    backoffs: tuple[ClusterBackoff, ...] = ()
    """Clusters that it backs off from, sorted by name."""
    gang: Gang | None = None
    """The tasks of the current or last attempt, if there are several. Use `Job.tasks` to read them."""
    granted: tuple[Granted | None, ...] = ()
    """By rank, the cores and GPUs that tasks of the current or last attempt have for themselves; empty if none has."""
    interrupted: int = 0
    """How many times its rented machine was taken back or ended."""
    unprepared: tuple[NodeKey, ...] = ()
    """Nodes that could not prepare it; it uses others, if those have room."""
    attempted: int = 0
    """Nanoseconds from the placement of each earlier attempt to its return to the queue. They are no wait."""
    requeued: int = 0
    """When it last returned to the queue, nanoseconds UTC; 0 if it never did."""
    tried: tuple[Tried, ...] = ()
    """Earlier attempts that ran, of which usage counts the time."""
    saved: tuple[str, ...] = ()
    """By rank, the blobs with what tasks of earlier attempts left in their folders; empty if there is nothing."""
    traceparent: str = ""
    """The W3C trace context of the request that submitted it; empty if it had none. For members, that of the array."""
    notify: bool = False
    """Whether its spec names somebody who is told when it begins or ends. For members, the array has this flag."""
    limited: int = 0
    """The `seq` of the attempt whose walltime was changed while it ran; 0 if none was."""


NO_EXTRA = Extra()
"""Shared by all jobs without extra values; never changed."""


class Job(Struct, array_like=True, gc=False):
    """A job, an array, or a member of an array that has been placed."""

    id: JobId
    number: int
    """Order of submission."""
    user: str
    name: str
    kind: Kind
    terms: Terms
    spec: bytes
    """Digest of the whole spec."""
    submitted: int
    arrived: int
    """When it could first have been placed, in steady time. Its wait counts from here."""
    priority: int
    phase: Phase
    attempt: int = 1
    seq: int = 0
    lost: int = 0
    """Number of lost attempts."""
    exits: int = 0
    """Number of attempts that ended with an exit code and were retried."""
    cost: int = 0
    """Millionths, of finished attempts."""
    latest: int | None = None
    """Latest start on owned capacity, in steady time; None until admitted. Use `State.latest` to read it."""
    due: Reason | None = None
    """Why it may be rented; None while it waits for owned capacity."""
    extra: Extra = field(default_factory=lambda: NO_EXTRA)
    predicted: int | None = None
    """Runtime of similar jobs at submission, in nanoseconds; None if it has an estimate or too few were known."""
    round: int = 0
    """The round in which `latest` was set; in a later round, it is void while the job waits. See `State.latest`."""
    evidence: Evidence | None = None
    """What `predicted` rests on; None without a prediction, or of an older release."""
    named: bool = True
    """Whether its name says what it does; false if it is only that of the program that it runs, such as `sleep`."""
    command: bytes = b""
    """Digests of what it runs, as in `JobSubmitted`; empty if it was submitted to an older release, and in simulations."""

    @property
    def state(self) -> JobState:
        """The state that users see."""
        return STATE_OF[type(self.phase)] if type(self.phase) is not Ended else self.phase.state

    @property
    def partly_due(self) -> bool:
        """Whether only some of an array's pending members may be rented."""
        return self.extra.members is not None and self.extra.members.due > 0

    @property
    def waits_for_members(self) -> bool:
        """Whether it is an array that waits for a member to end: one of its own, or of another array."""
        return self.extra.members is not None and self.extra.members.wait_for_members

    @property
    def walltime(self) -> int | None:
        """Nanoseconds that the current attempt may run: its walltime, or what its cap pays for; None is no limit."""
        own = self.terms.walltime
        return own if own is not None or self.extra.hold is None else self.extra.hold.limit

    @property
    def is_limited(self) -> bool:
        """Whether its walltime was changed after its agents got its tasks."""
        return self.extra.limited == self.seq and self.seq > 0

    @property
    def waiting_since(self) -> int:
        """When it came to the queue the last time, nanoseconds UTC."""
        return self.extra.requeued or self.submitted

    def waited(self, until: int) -> int:
        """Return the nanoseconds up to a time that it waited, before all attempts together, but not within one."""
        return max(0, until - self.submitted - self.extra.attempted)

    @property
    def lease(self) -> Lease:
        """The valid lease; of a gang, that of the first task."""
        return Lease(self.id, self.attempt, self.seq)

    def lease_of(self, rank: int) -> Lease:
        """Return the valid lease of one task."""
        return Lease(self.id, self.attempt, self.seq, rank)

    def saved(self, rank: int) -> str:
        """Return the blob with what earlier attempts left in the folder of a task; empty if there is nothing."""
        return self.extra.saved[rank] if rank < len(self.extra.saved) else ""

    def granted(self, rank: int) -> Granted | None:
        """Return the cores and GPUs that a task has for itself; None if it has none by name."""
        return self.extra.granted[rank] if self.extra.granted else None

    def held_by(self, rank: int) -> Resources:
        """Return what a task holds while it is placed."""
        return held_with(asked_by(self.kind.shape, rank), self.granted(rank))

    @property
    def shape(self) -> Shape:
        """What it asks of machines; of elastic size, with the number of tasks of the current or last attempt."""
        shape, gang = self.kind.shape, self.extra.gang
        return shape if gang is None or not shape.most else shape.sized(len(gang.tasks))

    @property
    def tasks(self) -> Sequence[JobTask]:
        """The tasks of the current or last attempt, by rank; none while it is not placed."""
        if (gang := self.extra.gang) is not None:
            return gang.tasks
        match self.phase:
            case Placed(node=node):
                return (JobTask(0, node),)
            case Running(node=node, since=since):
                return (JobTask(0, node, JobState.RUNNING, since),)
            case Ended(node=node) as ended if node is not None:
                return (JobTask(0, node, ended.state, ended.started, _end_of(ended)),)
            case _:
                return ()


def _end_of(ended: Ended) -> TaskEnd:
    """Return how the only task of a job ended."""
    return TaskEnd(0, ended.at, ended.state, None, ended.exit_code, ended.signal, ended.usage)


STATE_OF: dict[type, JobState] = {
    Waiting: JobState.HELD,
    Queued: JobState.QUEUED,
    Placed: JobState.PLACED,
    Running: JobState.RUNNING,
    Spread: JobState.RUNNING,
}
