"""The book: everything that was decided, as `apply` left it.

Records are slim, because a million jobs may be queued: what jobs have in common (shape, terms, names) is shared, and what few
jobs have is kept in `Extra`.
"""

from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from spillover.core.events import JobState, Lease, Stop, Usage
from spillover.core.samples import About, Sample
from spillover.core.sharing import KeptUsing, Sharing, Using
from spillover.core.tally import Tally
from spillover.model.budget import Budget, Caps
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import After, Range, Shape, Terms
from spillover.model.policy import PolicySet
from spillover.model.reasons import Reason
from spillover.model.resources import Resources
from spillover.model.tokens import Token
from spillover.model.units import SECOND


class Kind(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What jobs of one lane have in common; shared by all of them."""

    shape: Shape
    queue: str
    project: str


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
    at: int
    why: Reason
    stopping: Stop | None = None
    by: str = ""
    """Who asked for it to be stopped."""
    others: tuple[NodeName, ...] = ()
    """Where the other tasks of a gang are."""
    thief: NodeName | None = None
    """Who asked for its lease, which stays here until it is given up; None as a rule."""


class Running(Struct, frozen=True, tag="running", array_like=True, gc=False):
    """Its process runs."""

    cluster: ClusterName
    node: NodeName
    at: int
    """When it was placed."""
    since: int
    why: Reason
    stopping: Stop | None = None
    by: str = ""
    jumped: int = 0
    """How far clocks had jumped when it began: what they jumped since then, it has not run."""
    others: tuple[NodeName, ...] = ()
    """Where the other tasks of a gang run."""


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

MOST_SHARED = 100_000

Shared = TypeVar("Shared", str, bytes, Kind, Terms)


class Members(Struct, array_like=True, gc=False):
    """How far an array is."""

    size: int
    pending: tuple[Range, ...]
    live: int = 0
    """Members that are jobs of their own and have not ended."""
    ended: dict[JobState, int] = field(default_factory=dict)
    due: int = 0
    """How many pending members may be rented, when not all of them may; 0 says nothing."""


class Hold(Struct, frozen=True, array_like=True, gc=False):
    """Money that is held for an attempt on rented capacity."""

    amount: int
    """Millionths."""
    limit: int | None
    """Nanoseconds that it may run; None if it has a walltime of its own, or needs none."""
    purses: tuple[str, ...]
    """Keys of the purses that it is held in."""


class Paid(Struct, frozen=True, array_like=True, gc=False):
    """What one attempt cost."""

    at: int
    """When it was over, nanoseconds UTC."""
    cluster: ClusterName
    amount: int
    """Millionths."""


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
    """Latest start on owned capacity, in steady time; None until a cycle has looked at it."""
    due: Reason | None = None
    """Why it may be rented; None while it waits for owned capacity."""
    extra: Extra = field(default_factory=lambda: NO_EXTRA)
    predicted: int | None = None
    """Nanoseconds that jobs like it had run when it was submitted; None if it says itself how long it runs, or none were known."""

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
        """The lease that is valid now."""
        return Lease(self.id, self.attempt, self.seq)


STATE_OF: dict[type, JobState] = {
    Waiting: JobState.HELD,
    Queued: JobState.QUEUED,
    Placed: JobState.PLACED,
    Running: JobState.RUNNING,
    Spread: JobState.RUNNING,
}


class Node(Struct, array_like=True):
    """One machine with its agent, and what our book says of it."""

    cluster: ClusterName
    name: NodeName
    incarnation: int
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    """How many leases it takes ahead of room."""
    status: str = "ready"
    """As in the agent table of `transitions`."""
    used: Resources = Resources()
    holding: dict[JobId, Resources] = field(default_factory=dict)
    """Leases that have their room."""
    ahead: dict[JobId, Resources] = field(default_factory=dict)
    """Leases handed out ahead of room, in the order in which they get it."""
    pace: int = 0
    """Mean nanoseconds that its recent tasks ran; 0 while none has ended."""
    number: int = 0
    """Order of joining: nodes are looked at in this order."""
    token: str = ""
    """Id of the token that it registered with; empty for the server's own."""
    turn: int = 0
    """Of all leases that were handed out ahead of room, which was its last; 0 if none was."""
    drained: str = ""
    """Who drained it, for as long as nobody resumes it; empty as a rule."""
    taken: int = 0
    """Leases that it took over from others, so far."""
    given: int = 0
    """Leases that others took over from it, so far."""

    @property
    def key(self) -> str:
        """Unique over all clusters."""
        return f"{self.cluster}/{self.name}"


class Purse(Struct, array_like=True, gc=False):
    """What is spent and held of a budget in one period."""

    key: str
    """`project/vision/month/2027-01`."""
    until: int
    """When the period ends, nanoseconds UTC."""
    spent: int = 0
    """Millionths, of attempts that are over and were held here."""
    held: int = 0
    """Millionths, of attempts under way."""
    over: int = 0
    """Millionths that attempts cost beyond what was held for them: their agents did not keep to the walltime."""


class Facts(Struct, array_like=True):
    """Single facts that are checkpointed as one record."""

    epoch: int = 0
    now: int = 0
    """Time of the last step; never decreases."""
    jumped: int = 0
    """Nanoseconds in which nothing could be decided, so far."""
    numbered: int = 0
    """Jobs submitted so far."""
    archived: int = 0
    """Jobs archived so far."""
    incarnations: int = 0
    """Registrations of agents so far."""
    cycles: int = 0
    """Cycles that decided something."""
    clusters: tuple[ClusterSpec, ...] = ()
    policies: PolicySet = PolicySet()
    tally: Tally = field(default_factory=Tally)
    budgets: tuple[Budget, ...] = ()
    overruns: int = 0
    """Attempts that cost more than was held for them, so far."""
    learned: int = 0
    """Ended jobs whose runtimes were learned from, so far."""
    sampled: int = 0
    """Samples of runtimes that were begun, so far."""
    sharing: Sharing | None = None
    """How the use of projects is measured; None while no order asks for it."""
    sums: tuple[str, ...] = ()
    """The tally in a checkpoint, hexadecimal, as its numbers have 64 bits at the most; empty in the book."""
    ahead: int = SECOND // 10
    """Nanoseconds of work that a node is given ahead of room: what it does while a message travels."""
    turns: int = 0
    """Leases that were handed out ahead of room, so far."""

    @property
    def kept(self) -> "Facts":
        """As a checkpoint keeps it."""
        return replace(self, tally=Tally(), sums=tuple([f"{each:x}" for each in astuple(self.tally)]))


class PolicyNote(Struct, frozen=True, array_like=True):
    """One change of the policies."""

    at: int
    """Nanoseconds UTC."""
    who: str
    how: str
    """`set` or `reset` by a person, `configured` in spill.yaml, or `disabled` by the server."""
    before: PolicySet
    after: PolicySet
    axis: str = ""
    """Of the policy that was disabled."""
    took: int = 0
    """Nanoseconds that it took in one step; 0 if it could not be loaded."""
    error: str = ""
    """Why it could not be loaded."""
    settled: tuple[str, ...] = ()
    """Axes that had been disabled and that somebody set to what the fallback is."""


class PolicyBook(Struct, array_like=True):
    """How the policies became what they are; checkpointed as one record, so that it outlives old events."""

    configured: PolicySet = PolicySet()
    """As spill.yaml last said."""
    notes: tuple[PolicyNote, ...] = ()
    """The last changes, oldest first."""
    disabled: dict[str, PolicyNote] = field(default_factory=dict)
    """By axis, for as long as the fallback decides it."""


class State:
    """The whole book, with the indexes that deciding needs to look things up."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[str, Node] = {}
        self.clusters: dict[ClusterName, ClusterSpec] = {}
        self.keys: dict[str, JobId] = {}
        """Idempotency keys of jobs that are not archived yet."""
        self.waiters: dict[JobId, dict[JobId, None]] = {}
        """For each job that others wait for the end of, those others."""
        self.members: dict[JobId, dict[JobId, None]] = {}
        """For each array that has any, its members that are jobs of their own and have not ended."""
        self.purses: dict[str, Purse] = {}
        """By key; those of periods that are over are forgotten when nothing is held in them."""
        self.history: dict[About, Sample] = {}
        """What was learned from jobs that ended."""
        self.samples: dict[str, Sample] = {}
        """The same by the keys of their records."""
        self.usage: dict[str, Using] = {}
        """What each project uses and has used, while an order asks for it."""
        self.holders = 0
        """Projects that use something now, of those."""
        self.uses = 0
        """How often any of that changed since this state was made."""
        self.caps = Caps()
        """The budgets, ready to be asked."""
        self.policies = PolicyBook()
        self.tokens: dict[str, Token] = {}
        """By id, in the order they were made; also those that have ended, for a while."""
        self.loosened = False
        """Whether a cap leaves more than when somebody who keeps up with the state last looked."""
        self.queued = 0
        """Queued jobs, pending members of arrays counted one by one."""
        self.running = 0
        self.live: dict[str, int] = {}
        """Jobs of each project that have not ended, members of arrays counted one by one."""
        self.alive = 0
        """Those of all projects."""
        self.dirty: dict[tuple[str, str], None] = {}
        """Records that differ from the last checkpoint."""
        self.moved: dict[str, None] = {}
        """Nodes whose record changed since somebody who keeps up with the state last looked."""
        self._shared: dict[Any, Any] = {}

    def share(self, value: Shared) -> Shared:
        """The one copy of a value that many jobs have."""
        return self.shared().setdefault(value, value)  # type: ignore[no-any-return]

    def shared(self) -> dict[Any, Any]:
        """Each value that many jobs have, by itself."""
        if len(self._shared) >= MOST_SHARED:
            self._shared.clear()  # sharing saves memory; it must not become what uses it
        return self._shared

    def count_live(self, project: str, count: int) -> None:
        """Count jobs that came or, below 0, that have ended."""
        self.alive += count
        left = self.live.get(project, 0) + count
        if left:
            self.live[project] = left
        else:
            del self.live[project]

    def steady(self, now: int) -> int:
        """Time as waits count it: without the spans in which nothing could be decided."""
        return now - self.facts.jumped

    def no_longer_waits(self, job: JobId, on: JobId) -> None:
        """One job less waits for the end of another."""
        if waiters := self.waiters.get(on):
            waiters.pop(job, None)
            if not waiters:
                del self.waiters[on]

    def is_rented(self, cluster: ClusterName) -> bool:
        """Whether work there is paid for by use."""
        spec = self.clusters.get(cluster)
        return spec is not None and spec.role is Role.RENTED

    def cluster_of(self, job: Job) -> ClusterSpec | None:
        """The cluster of a placed job, as it was when it was placed: that is what it pays; None if it has no place."""
        phase = job.phase
        if type(phase) is not Placed and type(phase) is not Running:
            return None
        return job.extra.placed_on or self.clusters.get(phase.cluster)

    def can_rent(self) -> bool:
        """Whether any cluster is rented."""
        return any(spec.role is Role.RENTED for spec in self.facts.clusters)

    def record(
        self, kind: str, key: str
    ) -> "Facts | Job | Node | Purse | PolicyBook | Sample | KeptUsing | Token | None":
        """One record as a checkpoint keeps it; None if it is gone."""
        match kind:
            case "job":
                return self.jobs.get(JobId(key))
            case "node":
                return self.nodes.get(key)
            case "purse":
                return self.purses.get(key)
            case "history":
                return self.samples.get(key)
            case "usage":
                return self.usage[key].kept if key in self.usage else None
            case "policies":
                return self.policies
            case "token":
                return self.tokens.get(key)
            case _:
                return self.facts.kept

    def touch_job(self, job: JobId) -> None:
        """Remember that a job's record has to be written at the next checkpoint."""
        self.dirty["job", job] = None

    def touch_node(self, node: str) -> None:
        """Remember that a node's record has to be written at the next checkpoint."""
        self.dirty["node", node] = None
        self.moved[node] = None

    def touch_purse(self, key: str) -> None:
        """Remember that a purse has to be written at the next checkpoint."""
        self.dirty["purse", key] = None

    def touch_policies(self) -> None:
        """Remember that the changes of policies have to be written at the next checkpoint."""
        self.dirty["policies", ""] = None

    def touch_token(self, token: str) -> None:
        """Remember that a token has to be written at the next checkpoint."""
        self.dirty["token", token] = None

    def touch_facts(self) -> None:
        """Remember that the single facts have to be written at the next checkpoint."""
        self.dirty["facts", ""] = None
