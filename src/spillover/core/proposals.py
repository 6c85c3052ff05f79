"""Proposals: requests and observations. `decide` turns each one into events, or refuses it."""

from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.core.events import JobState, Lease, SeenNode, TaskEnd, Usage
from spillover.core.events import Outcome as Outcome  # noqa: PLC0414 - re-exported for callers that propose results
from spillover.core.pool_proposals import (
    AdmitMachine,
    DropMachineCosts,
    OpenPool,
    PausePool,
    ResumePool,
    SeeGone,
    SeeMade,
    SeeNotice,
    SeePrices,
    SeeRefused,
    SeeRunning,
    SeeUnwanted,
)
from spillover.model.budget import Budget
from spillover.model.cluster import ClusterHealth, ClusterSpec, Leave
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.inside import Inside
from spillover.model.job import JobSpec, On
from spillover.model.policy import PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.tokens import SignInMethod, TokenRole
from spillover.model.units import SECOND

DRIVER: Final = NodeKey("")
"""The sender of messages for all nodes of an external cluster. No agent has this key."""


class RefusalKind(StrEnum):
    """What a refusal means to the caller."""

    INVALID = "invalid"
    """The request is never valid; correct it."""
    UNKNOWN = "unknown"
    """There is no such thing."""
    CONFLICT = "conflict"
    """Not possible in the present state."""
    STALE = "stale"
    """The request depends on something that has changed; read again and retry."""
    FULL = "full"
    """The queue is full; retry when some jobs have started."""
    PROJECT_FULL = "project_full"
    """The queue of the project is full; retry when some of its jobs have started."""
    QUEUE_FULL = "queue_full"
    """A named queue is full; retry when some of its jobs have started."""
    INTERNAL = "internal"
    """The server failed to decide the request or to write the decision: a bug, or unforeseen data."""


class Refusal(Struct, frozen=True):
    """The answer to a proposal that changed nothing."""

    kind: RefusalKind
    message: str


class Dependency(Struct, frozen=True):
    """A job to wait for, with its full id."""

    job: JobId
    on: On = On.SUCCESS
    succeeded: bool | None = None
    """How it ended according to the archive; None if it is not in the archive."""


class NewJob(Struct, frozen=True):
    """One job of a submission. The proposer drew its id."""

    job: JobId
    spec: JobSpec
    digest: bytes
    """Digest of the encoded spec."""
    after: tuple[Dependency, ...] = ()
    """May name jobs of the same submission."""
    key: str | None = None
    body: bytes = b""
    named: bool = True
    """Whether its name says what it does; false if it is only that of the program that it runs."""
    traceparent: str = ""
    """The W3C trace context of the request; empty if it had none."""
    saved: tuple[str, ...] = ()
    saved_by: str = ""
    """What another job left in its folders, by rank, and that job, as in `JobSubmitted`."""


class Submit(Struct, frozen=True):
    """Accept all of these jobs, or none."""

    jobs: tuple[NewJob, ...]
    user: str
    archived: int | None = None
    """Number of archived jobs when the archive was searched for keys; None if it was not searched."""
    bounds: "QueueBounds | None" = None
    """Limits of the queue; None is no limit."""


class QueueBounds(Struct, frozen=True):
    """The most jobs that may wait, including held jobs; members of arrays count one by one."""

    queued: int | None = None
    """In total; None is no limit."""
    queued_per_project: int | None = None
    """In each project; None is no limit."""


class Act(StrEnum):
    """What a person can do to a job."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"


class Change(Struct, frozen=True):
    """Act on jobs, all or none."""

    act: Act
    jobs: tuple[JobId, ...]
    who: str
    states: frozenset[JobState] | None = None
    """Change only what is in one of these states, and leave the others alone; None changes all or none."""


class SetPriority(Struct, frozen=True):
    """Change the priority of a job that has not been placed."""

    job: JobId
    priority: int
    who: str


class ChangeJob(Struct, frozen=True):
    """Change what a waiting job asks for, or the walltime of a running one."""

    job: JobId
    was: bytes
    """Digest of the spec that the new one was made from."""
    spec: JobSpec
    digest: bytes
    """Digest of the new spec, encoded."""
    changed: tuple[str, ...]
    """What is new, as in `JobChanged`."""
    who: str
    after: tuple[Dependency, ...] = ()
    """What it waits for from now on, if `changed` has it."""
    named: bool = True
    """Whether its name says what it does."""


class Register(Struct, frozen=True):
    """An agent connected, and reports what it still holds."""

    cluster: ClusterName
    node: NodeName
    incarnation: int
    """Drawn by the server, higher than any before."""
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    held: tuple[Lease, ...]
    """Its leases: waiting, running, or with a result that the server has not confirmed."""
    token: str = ""
    """Id of its token; empty for the server's own token."""
    admin: bool = True
    """Whether that token has all rights."""
    waiting: tuple[Lease, ...] = ()
    """The leases that it has not started. The server takes back those for which its queue has no room any more."""
    inside: Inside | None = None
    """Its sockets, cores, GPUs and links; None if it reports none."""
    gangs: bool = True
    """Whether it can run tasks of gangs; agents before 0.5 cannot."""


class Started(Struct, frozen=True):
    """An agent reports that a task runs."""

    node: NodeKey
    lease: Lease
    age: int
    """Nanoseconds between its start and the report."""
    ranks: tuple[int, ...] = ()
    """The running tasks of a gang, if the driver of an external cluster reports for all of them; empty if unknown."""


class Result(Struct, frozen=True):
    """An agent reports how a task ended."""

    node: NodeKey
    lease: Lease
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    usage: Usage
    age: int
    """Nanoseconds between its end and the report."""
    message: str = ""
    value: bytes = b""
    """What a Python call returned or raised, if it is small."""
    value_digest: str = ""
    """The blob with that value if it is large."""
    outputs: str = ""
    """The blob that lists its output files; empty if there are none."""
    tasks: tuple[TaskEnd, ...] = ()
    """The known ends of tasks of a gang, if the driver of an external cluster reports for all of them."""
    backoff: int = 0
    """Nanoseconds for which a gang that could not start as a whole backs off from that external cluster."""
    run: int = 0
    """How often the task was started again under its lease before."""
    waits: bool = False
    """Whether its agent keeps its capacity, and can start it again."""
    saved: str = ""
    """The blob with what it left in its folder for later attempts; empty if nothing was saved."""


def unusable(result: Result, why: str) -> Result:
    """Return an empty result to replace one that cannot be used, so that the job and its lease still end."""
    return Result(result.node, result.lease, Outcome.UNUSABLE, None, None, Usage(), 0, why)


class HandBack(Struct, frozen=True):
    """An agent, or the server on its behalf, returns leases that never started."""

    node: NodeKey
    leases: tuple[Lease, ...]
    because: str = ""
    """Reason for people; empty if there is none."""
    backoff: int = 0
    """Nanoseconds for which these jobs back off from that cluster."""


class Reclaim(Struct, frozen=True):
    """Leases expired, because their agent did not renew them in time."""

    node: NodeKey
    leases: tuple[Lease, ...]


class Prepared(Struct, frozen=True):
    """An agent reports that a task of a gang can start. It is not decided: only the whole gang starts."""

    lease: Lease
    port: int = 0
    """Of rank 0: a free port for the program."""
    shell: int = 0
    """A free port for remote shells."""
    token: bytes = b""
    """Of rank 0: a secret for the whole gang."""


class GangOverdue(Struct, frozen=True):
    """Some nodes of a gang have not prepared their tasks in time, so that it could not start."""

    lease: Lease
    """Of its first task."""
    external: bool = False
    """Whether the driver of an external cluster says so, which may also lose tasks of a gang that ran as a whole."""


class AskSteal(Struct, frozen=True):
    """An idle agent could run a task that another agent has not started."""

    cluster: ClusterName
    node: NodeName
    """The agent that holds the lease."""
    lease: Lease
    thief: NodeName


class Yield(StrEnum):
    """The answer of an agent about a lease that another agent wants."""

    RELEASED = "released"
    """Not started, and never will be under that lease."""
    STARTED = "started"
    UNKNOWN = "unknown"
    """Not held here; refused if it arrives later."""


class Yielded(Struct, frozen=True):
    """An agent answers about a lease that another agent wants."""

    node: NodeKey
    lease: Lease
    answer: Yield


class Drain(Struct, frozen=True):
    """Give an agent no more work."""

    cluster: ClusterName
    node: NodeName
    who: str = ""
    """The person who drains it until it is resumed; empty if the agent itself is shutting down."""
    reason: str = ""
    """Why, for people; empty if nobody said."""


class Interrupt(Struct, frozen=True):
    """The machine of an agent will be taken back. Its tasks stop, and return to the queue."""

    cluster: ClusterName
    node: NodeName
    until: int
    """When the machine will be gone, nanoseconds UTC."""


class Resume(Struct, frozen=True):
    """Give work again to an agent that a person drained."""

    cluster: ClusterName
    node: NodeName
    who: str


class Forget(Struct, frozen=True):
    """Remove a lost agent from the state."""

    cluster: ClusterName
    node: NodeName
    who: str


class AgentGone(Struct, frozen=True):
    """An agent sent no heartbeat for too long. Its leases are proposed separately as they expire."""

    cluster: ClusterName
    node: NodeName
    incarnation: int
    left: bool = False
    """Whether it signed off."""


class LookAtBudgets(Struct, frozen=True):
    """Record which of these budget periods have reached 80 or 100 % of their limits."""

    keys: tuple[str, ...]


class SeeNodes(Struct, frozen=True):
    """Nodes of a cluster as they are now."""

    cluster: ClusterName
    nodes: tuple[SeenNode, ...]
    gone: tuple[NodeName, ...] = ()
    whole: bool = False
    """Whether these are all nodes of the cluster: then others are gone."""


class SeeCluster(Struct, frozen=True):
    """The health of an external cluster was observed."""

    cluster: ClusterName
    health: ClusterHealth
    why: str = ""
    unsent: tuple[Lease, ...] = ()
    """For a failed cluster, leases that surely never reached it."""


class SeeBound(Struct, frozen=True):
    """Tasks of an external cluster are bound to these nodes."""

    cluster: ClusterName
    leases: tuple[Lease, ...]
    nodes: tuple[tuple[NodeName, ...], ...]
    """For each lease, the nodes of its tasks in order, as far as they are bound."""


class AddCluster(Struct, frozen=True):
    """Use one more cluster."""

    spec: ClusterSpec
    who: str
    form: str = ""
    """Its entry in spill.yaml as JSON; empty if the configuration file has it."""
    identity: str = ""
    """As in `StartEpoch`, for an external cluster."""


class UpdateCluster(Struct, frozen=True):
    """Use a cluster with its new configuration."""

    spec: ClusterSpec
    who: str
    form: str = ""
    """As in `AddCluster`."""
    restated: bool = False
    """Whether settings changed that only its driver uses: then the update is recorded even if `spec` is the same."""


class OpenedCluster(Struct, frozen=True):
    """The server has opened a cluster."""

    cluster: ClusterName


class DrainCluster(Struct, frozen=True):
    """Give a cluster no more work."""

    cluster: ClusterName
    who: str


class ResumeCluster(Struct, frozen=True):
    """Give a cluster work again, and cancel its removal."""

    cluster: ClusterName
    who: str


class RemoveCluster(Struct, frozen=True):
    """Drain a cluster, and remove it when none of our jobs are left there."""

    cluster: ClusterName
    who: str
    how: Leave = Leave.FINISH
    form: str = ""
    """Its entry in spill.yaml as JSON, if it was just removed from the configuration file; otherwise empty."""


class ClearedCluster(Struct, frozen=True):
    """Check whether a cluster that is being removed can go."""

    cluster: ClusterName


class Configure(Struct, frozen=True):
    """Use the settings of a configuration other than clusters."""

    who: str
    policies: PolicySet
    budgets: tuple[Budget, ...] = ()
    ahead: int = SECOND // 10
    """As in `StartEpoch`."""
    queues: tuple[QueueSpec, ...] = ()


class Archived(Struct, frozen=True):
    """These ended jobs are durable in the archive."""

    jobs: tuple[JobId, ...]


class CreateToken(Struct, frozen=True):
    """Create a token. The proposer drew its id and secret."""

    token: str
    role: TokenRole
    digest: bytes
    who: str
    project: str | None = None
    user: str | None = None
    cluster: str | None = None
    expires: int | None = None
    """Nanoseconds UTC; None is never."""
    note: str = ""


class SignIn(Struct, frozen=True):
    """Sign a person in. The proposer checked who it is, and drew the id and secret of the token."""

    token: str
    digest: bytes
    who: str
    role: TokenRole
    how: SignInMethod
    expires: int
    """Nanoseconds UTC; the token expires earlier if its parent does."""
    parent: str = ""
    project: str | None = None
    user: str | None = None
    called: str = ""
    note: str = ""


class RevokeToken(Struct, frozen=True):
    """Revoke a token."""

    token: str
    who: str


class SetSecret(Struct, frozen=True):
    """Set a secret. The proposer stored its value under this version."""

    project: str
    name: str
    version: int
    who: str
    users: tuple[str, ...] | None = None
    """Whose jobs may use it; empty for all members of the project, None to leave that as it is."""


class RemoveSecret(Struct, frozen=True):
    """Remove a secret."""

    project: str
    name: str
    who: str


class Reserve(Struct, frozen=True):
    """Make an advance reservation. The proposer chose its nodes and its name."""

    reservation: AdvanceReservation


class MoveReservation(Struct, frozen=True):
    """Give a reservation other nodes."""

    name: str
    instead_of: tuple[NodeName, ...]
    """The nodes that it had when others were chosen; if they differ by now, nothing happens."""
    nodes: tuple[NodeName, ...]


class CancelReservation(Struct, frozen=True):
    """Cancel an advance reservation."""

    name: str
    who: str
    project: str | None = None
    """The only project whose reservations the person may cancel; None means all."""


class StartEpoch(Struct, frozen=True):
    """This server leads from now on."""

    epoch: int
    clusters: tuple[ClusterSpec, ...]
    policies: PolicySet
    gap: int = 0
    """Nanoseconds during which no server made decisions; waits leave them out."""
    budgets: tuple[Budget, ...] = ()
    ahead: int = SECOND // 10
    """How much work agents prefetch, in nanoseconds."""
    identity: str = ""
    """Drawn by the proposer: the label for objects on external clusters, if the state has none; empty if not needed."""
    queues: tuple[QueueSpec, ...] = ()
    restored: bool = False
    """Whether the data are a backup; the epoch is then above all that began after it."""


class Jump(Struct, frozen=True):
    """The wall clock jumped forward."""

    by: int
    who: str = ""
    """The person who made the server accept the clock; usually empty."""


class SetPolicies(Struct, frozen=True):
    """Use other policies."""

    policies: PolicySet
    who: str
    over: PolicySet | None = None
    """The policies on which the change is based, so that it undoes no change by others; None skips that check."""
    named: tuple[str, ...] = ()
    """Axes that the person named, including unchanged ones."""
    reset: bool = False
    """Whether this restores the policies of spill.yaml."""


class DisablePolicy(Struct, frozen=True):
    """Stop using a policy that is too slow or no longer installed."""

    axis: str
    name: str
    took: int = 0
    """Nanoseconds in one step; 0 if it could not be loaded."""
    error: str = ""
    """Why it could not be loaded; empty if it was slow."""


Proposal: TypeAlias = (
    Submit
    | Change
    | SetPriority
    | ChangeJob
    | Register
    | Started
    | Result
    | HandBack
    | Reclaim
    | GangOverdue
    | AskSteal
    | Yielded
    | Drain
    | Interrupt
    | Resume
    | Forget
    | AgentGone
    | LookAtBudgets
    | SeeNodes
    | SeeCluster
    | SeeBound
    | AddCluster
    | UpdateCluster
    | OpenedCluster
    | DrainCluster
    | ResumeCluster
    | RemoveCluster
    | ClearedCluster
    | Configure
    | Archived
    | CreateToken
    | SignIn
    | RevokeToken
    | Reserve
    | MoveReservation
    | CancelReservation
    | SetSecret
    | RemoveSecret
    | OpenPool
    | SeeMade
    | SeeRefused
    | SeeRunning
    | SeeGone
    | SeeUnwanted
    | AdmitMachine
    | SeeNotice
    | SeePrices
    | PausePool
    | ResumePool
    | DropMachineCosts
    | StartEpoch
    | Jump
    | SetPolicies
    | DisablePolicy
)


class Verdict(StrEnum):
    """What became of a result."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    FENCED = "fenced"
    RESTART = "restart"
    """The task starts again under the same lease."""


class Submitted(Struct, frozen=True):
    """The ids of a submission, in order. A job that already exists under its key keeps its id."""

    jobs: tuple[JobId, ...]


class Registered(Struct, frozen=True):
    """The leases that an agent may keep. It must stop all others."""

    keep: tuple[Lease, ...]


class Done(Struct, frozen=True):
    """Success without further data."""


class Changed(Struct, frozen=True):
    """The jobs that a change of some jobs concerned; of arrays, also single members."""

    jobs: tuple[JobId, ...]


Reply: TypeAlias = Submitted | Registered | Verdict | Done | Changed | Refusal
