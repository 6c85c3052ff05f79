"""Jobs, as the book keeps them: what each is, and the phase of its life that it is in.

Records are slim, because a million jobs may be queued: what jobs have in common (shape, terms, names) is shared, and what few
jobs have is kept in `Extra`.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field

from spillover.core.events import JobState, Lease, Stop, TaskEnd, Usage
from spillover.core.money import Hold, Paid
from spillover.core.tasks import Gang, JobTask
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, node_key
from spillover.model.job import After, Range, Shape, Terms
from spillover.model.reasons import Reason


class Kind(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What jobs of one lane have in common; shared by all of them."""

    shape: Shape
    queue: str
    project: str
    backing_off: tuple[ClusterName, ...] = ()
    """Clusters that they are not tried on for now, sorted; none as a rule."""


class Waiting(Struct, frozen=True, tag="held", array_like=True, gc=False):
    """Not to be scheduled yet: held by somebody, before its time, or after other jobs."""

    by: str | None
    """Who holds it; None if only time or other jobs keep it."""


class Queued(Struct, frozen=True, tag="queued", array_like=True, gc=False):
    """To be scheduled."""


class Placed(Struct, frozen=True, tag="placed", array_like=True, gc=False):
    """Leased to a node, no process yet."""

    cluster: ClusterName
    node: NodeName
    """That of the first task."""
    at: int
    why: Reason
    stopping: Stop | None = None
    by: str = ""
    """Who asked for it to be stopped."""
    others: tuple[NodeName, ...] = ()
    """Where the other tasks are, in a checkpoint of release 0.4 or before; empty ever since: see `Job.tasks`."""
    thief: NodeName | None = None
    """Who asked for its lease, which stays here until it is given up; None as a rule."""
    revoked: bool = False
    """Whether its agent is asked to hand the lease back, unless the task has started."""

    @property
    def key(self) -> NodeKey:
        """The node of its first task."""
        return node_key(self.cluster, self.node)


class Running(Struct, frozen=True, tag="running", array_like=True, gc=False):
    """Its process runs."""

    cluster: ClusterName
    node: NodeName
    """That of the first task."""
    at: int
    """When it was placed."""
    since: int
    why: Reason
    stopping: Stop | None = None
    by: str = ""
    jumped: int = 0
    """How far clocks had jumped when it began: what they jumped since then, it has not run."""
    others: tuple[NodeName, ...] = ()
    """As of `Placed`."""

    @property
    def key(self) -> NodeKey:
        """The node of its first task."""
        return node_key(self.cluster, self.node)


class Spread(Struct, frozen=True, tag="spread", array_like=True, gc=False):
    """An array all of whose members are jobs of their own now."""

    since: int


class Ended(Struct, frozen=True, tag="ended", array_like=True, gc=False):
    """Over for good."""

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
    """Since when it could have been placed, nanoseconds UTC, without the time that nobody decided; None if it never was placed."""
    value: bytes = b""
    value_digest: str = ""
    """What a Python call returned or raised, as in `JobEnded`."""


Phase: TypeAlias = Waiting | Queued | Placed | Running | Spread | Ended

QUEUED = Queued()


class Members(Struct, array_like=True, gc=False):
    """How far an array is."""

    size: int
    pending: tuple[Range, ...]
    live: int = 0
    """Members that are jobs of their own and have not ended."""
    ended: dict[JobState, int] = field(default_factory=dict)
    due: int = 0
    """How many pending members may be rented, when not all of them may; 0 says nothing."""


class ClusterBackoff(Struct, frozen=True, array_like=True, gc=False):
    """A cluster that gave a job back."""

    cluster: ClusterName
    until: int
    """When it is tried there again, nanoseconds UTC."""
    because: str


class Extra(Struct, array_like=True, gc=False):
    """What few jobs have."""

    deadline: int | None = None
    not_before: int | None = None
    after: tuple[After, ...] = ()
    """Jobs it still waits for."""
    key: str | None = None
    body: bytes = b""
    members: Members | None = None
    hold: Hold | None = None
    """What is held for the attempt under way; None as a rule: only where a cap limits it."""
    paid: tuple[Paid, ...] = ()
    """Earlier attempts that cost something."""
    returned: int = 0
    """How often its wait policy brought it back from rented capacity."""
    placed_on: ClusterSpec | None = None
    """Its cluster as it was when the attempt under way was placed; None while it still is so."""
    came_back: int = 0
    """Its `seq` when it was last brought back so, since when its wait is counted anew; 0 if it never was."""
    blobs: bool = False
    """Whether it needs files that are kept for it; of an array, which ends after its members, the array says so."""
    outputs: tuple[tuple[int, str], ...] = ()
    """Attempts that brought files back, each with the blob that lists them."""
    backoffs: tuple[ClusterBackoff, ...] = ()
    """Clusters that it is not tried on for now, sorted by name."""
    gang: Gang | None = None
    """The tasks of the attempt under way, or of the last one, if there are several. Ask `Job.tasks` for them."""


NO_EXTRA = Extra()
"""Shared by all jobs that have none; never written to."""


class Job(Struct, array_like=True, gc=False):
    """One job, one array, or one member of an array that was placed at least once."""

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
    """Since when it could have been placed, in steady time: its wait counts from here."""
    priority: int
    phase: Phase
    attempt: int = 1
    seq: int = 0
    lost: int = 0
    """Attempts that were lost."""
    exits: int = 0
    """Attempts that ended with an exit code that was retried."""
    cost: int = 0
    """Millionths, of attempts that are over."""
    latest: int | None = None
    """Latest start on owned capacity, in steady time; None until a cycle has looked at it. Ask `State.latest` for it."""
    due: Reason | None = None
    """Why it may be rented; None while it waits for owned capacity."""
    extra: Extra = field(default_factory=lambda: NO_EXTRA)
    predicted: int | None = None
    """Nanoseconds that jobs like it had run when it was submitted; None if it says itself how long it runs, or none were known."""
    round: int = 0
    """In which round `latest` was given: while it waits for owned capacity in a later one, that says nothing. See `State.latest`."""

    @property
    def state(self) -> JobState:
        """The state that people see."""
        return STATE_OF[type(self.phase)] if type(self.phase) is not Ended else self.phase.state

    @property
    def partly_due(self) -> bool:
        """Whether only some of an array's pending members may be rented."""
        return self.extra.members is not None and self.extra.members.due > 0

    @property
    def walltime(self) -> int | None:
        """Nanoseconds that the attempt under way may run: its own limit, or what its cap pays for; None is no limit."""
        own = self.terms.walltime
        return own if own is not None or self.extra.hold is None else self.extra.hold.limit

    @property
    def lease(self) -> Lease:
        """The lease that is valid now; of a gang, that of the first task."""
        return Lease(self.id, self.attempt, self.seq)

    def lease_of(self, rank: int) -> Lease:
        """The lease of one task that is valid now."""
        return Lease(self.id, self.attempt, self.seq, rank)

    @property
    def tasks(self) -> Sequence[JobTask]:
        """The tasks of the attempt under way, or of the one that ended last, by rank; none while it has no place."""
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
    """How the only task of a job ended."""
    return TaskEnd(0, ended.at, ended.state, None, ended.exit_code, ended.signal, ended.usage)


STATE_OF: dict[type, JobState] = {
    Waiting: JobState.HELD,
    Queued: JobState.QUEUED,
    Placed: JobState.PLACED,
    Running: JobState.RUNNING,
    Spread: JobState.RUNNING,
}
