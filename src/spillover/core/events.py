"""What happened. The journal holds these and nothing else; `apply` is the only code that reads them into state.

An event carries outcomes (cost, attempt, latest start), so applying it only assigns. A new meaning is a new event type; a field
is only ever added at the end, with a default.
"""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field

from spillover.model.budget import Budget
from spillover.model.cluster import ClusterSpec, Health, Leave, Taint
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import After, Range, Shape, Terms
from spillover.model.policy import PolicySet
from spillover.model.reasons import Reason
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole


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


# --- jobs


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


class JobPlaced(Event, frozen=True, tag="job_placed"):
    """A lease was granted."""

    job: JobId
    at: int
    cluster: ClusterName
    node: NodeName
    attempt: int
    seq: int
    why: Reason


class GangPlaced(Event, frozen=True, tag="gang_placed"):
    """Leases for all tasks of a job were granted, on one cluster."""

    job: JobId
    at: int
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """Where each task runs, in their order; the first one speaks for the job."""
    attempt: int
    seq: int
    why: Reason


class MemberPlaced(Event, frozen=True, tag="member_placed"):
    """A pending member of an array became a job of its own, and a lease for it was granted."""

    array: JobId
    index: int
    at: int
    cluster: ClusterName
    node: NodeName
    seq: int
    why: Reason


class MembersDropped(Event, frozen=True, tag="members_dropped"):
    """Pending members of an array will never start."""

    array: JobId
    at: int
    members: tuple[Range, ...]
    state: JobState
    """The terminal state that they count under."""
    who: str


class CostHeld(Event, frozen=True, tag="cost_held"):
    """Money is held for a job that was just rented: what it can cost at the most. It is let go when the attempt is over."""

    job: JobId
    at: int
    amount: int
    """Millionths."""
    limit: int | None
    """Nanoseconds that it may run, as its cap pays for no more; None if it has a walltime of its own, or needs none."""
    periods: tuple[PeriodRef, ...]
    """Budgets that it is held in; none if only its own `max_cost` limits it."""


class JobStarted(Event, frozen=True, tag="job_started"):
    """Its process runs."""

    job: JobId
    at: int
    attempt: int
    seq: int


class StealAsked(Event, frozen=True, tag="steal_asked"):
    """An idle agent wants a lease that another one holds and has not started. It stays there until that one answers."""

    job: JobId
    at: int
    cluster: ClusterName
    node: NodeName
    """Who holds it."""
    thief: NodeName
    """Who wants it, of the same cluster."""
    attempt: int
    seq: int


class StealRefused(Event, frozen=True, tag="steal_refused"):
    """A lease that another agent wanted stays where it is."""

    job: JobId
    at: int
    why: Unmoved


class LeaseMoved(Event, frozen=True, tag="lease_moved"):
    """An agent gave up a lease that it had not started, and the one that asked for it has it now."""

    job: JobId
    at: int
    cluster: ClusterName
    node: NodeName
    """Who had it."""
    thief: NodeName
    """Who has it."""
    attempt: int
    seq: int
    """Of the lease as it is now."""


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


# --- clusters and agents


class ClustersConfigured(Event, frozen=True, tag="clusters_configured"):
    """The clusters of this server, in the order they are tried."""

    clusters: tuple[ClusterSpec, ...]


class ClusterAdded(Event, frozen=True, tag="cluster_added"):
    """A cluster was added while the server runs; it is tried after the others."""

    spec: ClusterSpec
    """What deciding knows of it."""
    at: int
    who: str
    form: str = ""
    """Its entry of spill.yaml as JSON, if the configuration does not name it; else empty."""
    anew: bool = False
    """Whether everybody who waits is given a new wait: it is the first that is rented, or the only one that somebody asks for."""


class ClusterUpdated(Event, frozen=True, tag="cluster_updated"):
    """A cluster is configured otherwise. What is placed there pays what it was placed for."""

    spec: ClusterSpec
    """What deciding knows of it."""
    at: int
    who: str
    form: str = ""
    """As of `cluster_added`."""
    anew: bool = False
    """Likewise."""


class ClusterOpened(Event, frozen=True, tag="cluster_opened"):
    """The server has opened a cluster that was added: it watches it, or takes its agents."""

    cluster: ClusterName
    at: int


class ClusterDraining(Event, frozen=True, tag="cluster_draining"):
    """A cluster is given nothing more; what runs there goes on."""

    cluster: ClusterName
    at: int
    who: str
    leaving: Leave | None = None
    """What becomes of its jobs, if it is being removed; null if it is only drained."""
    form: str = ""
    """Its entry of spill.yaml as JSON, if it is being removed because the configuration does not name it any more."""


class ClusterResumed(Event, frozen=True, tag="cluster_resumed"):
    """A cluster that was drained, or was being removed, may be given work again."""

    cluster: ClusterName
    at: int
    who: str


class ClusterRemoved(Event, frozen=True, tag="cluster_removed"):
    """Nothing of ours is left on a cluster that was to be removed: it is gone."""

    cluster: ClusterName
    at: int
    anew: bool = False
    """Whether everybody who waits is given a new wait, as it was the last that is rented."""


class BudgetsConfigured(Event, frozen=True, tag="budgets_configured"):
    """The budgets of this server."""

    budgets: tuple[Budget, ...]


class AgentRegistered(Event, frozen=True, tag="agent_registered"):
    """An agent is connected and may be given work."""

    cluster: ClusterName
    node: NodeName
    at: int
    incarnation: int
    capacity: Resources
    offers: tuple[str, ...]
    """Words, sorted."""
    labels: dict[str, str]
    queue: int
    """How many leases it takes beyond those that its capacity runs."""
    token: str = ""
    """Id of the token that it showed; empty for the server's own."""


class AgentDraining(Event, frozen=True, tag="agent_draining"):
    """An agent finishes what it has and is given nothing more."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str = ""
    """Who asked for it, which holds until somebody resumes it; empty if the agent was told to stop, which ends when it registers."""


class AgentResumed(Event, frozen=True, tag="agent_resumed"):
    """An agent that somebody drained may be given work again."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str


class AgentLost(Event, frozen=True, tag="agent_lost"):
    """An agent has not been heard from for too long, or said good-bye."""

    cluster: ClusterName
    node: NodeName
    at: int


class AgentForgotten(Event, frozen=True, tag="agent_forgotten"):
    """An agent that is not there and holds nothing is struck off the list."""

    cluster: ClusterName
    node: NodeName
    at: int
    who: str


class AgentsConfigured(Event, frozen=True, tag="agents_configured"):
    """How much work agents are given ahead of room."""

    ahead: int
    """Nanoseconds."""


# --- external clusters


class SeenNode(Struct, frozen=True, array_like=True, gc=False):
    """One node of a cluster, as it was seen."""

    name: NodeName
    capacity: Resources
    """What tasks may use of it."""
    foreign: Resources
    """What is used by tasks that are none of ours."""
    tasks: int = -1
    """How many of our tasks it takes at a time; -1 is any number."""
    offers: tuple[str, ...] = ()
    """Words, sorted."""
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    """Whether it may be given tasks: it answers, and nobody has cordoned it."""


class NodeUse(Struct, frozen=True, array_like=True, gc=False):
    """What of a node others use, of which all else is as it was."""

    name: NodeName
    foreign: Resources
    tasks: int
    """As of `SeenNode`."""


class NodesSeen(Event, frozen=True, tag="nodes_seen"):
    """Nodes of a cluster are there, are not what they were, or are gone."""

    cluster: ClusterName
    at: int
    nodes: tuple[SeenNode, ...]
    """Those that are new, or not what they were: name, capacity, foreign, tasks, offers, labels, taints, ready."""
    used: tuple[NodeUse, ...] = ()
    """Those where nothing changed but what others use: name, foreign, tasks; any that was not seen since the server started is ready."""
    same: tuple[NodeName, ...] = ()
    """Those that are as the book says, were not seen since the server started, and are ready."""
    gone: tuple[NodeName, ...] = ()
    """Those that are not there any more; one that our tasks are on is kept in the book until they are not."""


class ClusterChanged(Event, frozen=True, tag="cluster_changed"):
    """A cluster answers, or does not any more."""

    cluster: ClusterName
    at: int
    health: Health
    why: str
    """For people; empty if it is ready."""


class TasksBound(Event, frozen=True, tag="tasks_bound"):
    """A cluster's own scheduler put tasks on other nodes than the book had in mind."""

    cluster: ClusterName
    at: int
    jobs: tuple[JobId, ...]
    nodes: tuple[tuple[NodeName, ...], ...]
    """For each job where its tasks are, all of them; the first one speaks for the job."""
    running: tuple[JobId, ...] = ()
    """Those of the jobs that run; the others have not started yet."""


# --- who may ask


class TokenCreated(Event, frozen=True, tag="token_created"):
    """A token lets its holder in from now on."""

    token: str
    """Its id."""
    at: int
    who: str
    role: TokenRole
    """`agent`, `submit` or `admin`."""
    digest: bytes
    """SHA-256 of its secret; the secret itself is nowhere."""
    project: str | None = None
    """The only one whose jobs it may see and submit; null is all."""
    user: str | None = None
    """Who its holder is; null lets the holder say so."""
    cluster: str | None = None
    """The only one that agents may join with it; null is all."""
    expires: int | None = None
    """Nanoseconds UTC; null is never."""
    note: str = ""
    """What it is for, in the words of who made it."""


class TokenRevoked(Event, frozen=True, tag="token_revoked"):
    """A token lets nobody in any more."""

    token: str
    """Its id."""
    at: int
    who: str


# --- the engine itself


class EpochStarted(Event, frozen=True, tag="epoch_started"):
    """A server took the lead. Nothing is placed on an agent before it has registered anew."""

    epoch: int
    at: int


class Identified(Event, frozen=True, tag="identified"):
    """What is made elsewhere for this book is known by a word from now on, for as long as the book is kept."""

    identity: str
    """That word."""


class ClockJumped(Event, frozen=True, tag="clock_jumped"):
    """Time went by in which nothing could be decided: waits are shifted by it."""

    by: int
    """Nanoseconds."""
    who: str = ""
    """Who had a clock followed that had jumped too far to be believed; empty as a rule."""


class PolicyChanged(Event, frozen=True, tag="policy_changed"):
    """Another set of policies decides from now on."""

    at: int
    who: str
    policies: PolicySet
    configured: bool = False
    """Whether spill.yaml says so; what people set stays until that file says something else than it did."""
    named: tuple[str, ...] = ()
    """Axes that somebody named: what was disabled there is settled, also where the fallback is what they want."""
    reset: bool = False
    """Whether they went back to what spill.yaml says."""


class PolicyDisabled(Event, frozen=True, tag="policy_disabled"):
    """A policy is too slow, or not there any more: its axis falls back to waiting in the order of submission."""

    at: int
    axis: str
    """`order`, `backfill`, `wait`, `place` or `route`."""
    name: str
    """Of the policy."""
    took: int
    """Nanoseconds that it took in one step of the live loop; 0 if it could not be loaded."""
    error: str = ""
    """Why it could not be loaded; empty if it was slow."""


class Decided(Event, frozen=True, tag="decided"):
    """A cycle decided something; what follows up to the next such event is its plan."""

    now: int
    seed: int
    policy: bytes
    """Digest of the policies that decided."""
    plan: bytes
    """Digest of the plan."""
    rules: int = 0
    """By which rules the cycle was run: `RULES` of the release that wrote it; 0 up to release 0.4.0."""


AnyEvent: TypeAlias = (
    JobSubmitted
    | JobsAdmitted
    | WaitsExpired
    | JobPlaced
    | GangPlaced
    | MemberPlaced
    | MembersDropped
    | CostHeld
    | JobStarted
    | StealAsked
    | StealRefused
    | LeaseMoved
    | JobStopping
    | JobRequeued
    | JobEnded
    | BackoffEnded
    | JobHeld
    | JobReleased
    | DependencyEnded
    | JobReprioritised
    | JobsArchived
    | ClustersConfigured
    | ClusterAdded
    | ClusterUpdated
    | ClusterOpened
    | ClusterDraining
    | ClusterResumed
    | ClusterRemoved
    | BudgetsConfigured
    | AgentRegistered
    | AgentDraining
    | AgentResumed
    | AgentLost
    | AgentForgotten
    | AgentsConfigured
    | NodesSeen
    | ClusterChanged
    | TasksBound
    | TokenCreated
    | TokenRevoked
    | EpochStarted
    | Identified
    | ClockJumped
    | PolicyChanged
    | PolicyDisabled
    | Decided
)
