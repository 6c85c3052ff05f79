"""Proposals: requests and observations. `decide` turns each one into events, or refuses it."""

from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.core.agent_proposals import (
    AgentGone,
    AskSteal,
    Drain,
    Forget,
    GangOverdue,
    HandBack,
    Interrupt,
    Prepared,
    Reclaim,
    Register,
    Result,
    Resume,
    Started,
    Yield,
    Yielded,
)
from spillover.core.cluster_proposals import (
    AddCluster,
    ClearedCluster,
    DrainCluster,
    OpenedCluster,
    RemoveCluster,
    ResumeCluster,
    SeeBound,
    SeeCluster,
    SeeNodes,
    UpdateCluster,
)
from spillover.core.events import JobState, Lease, Outcome, Usage
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
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import JobId, NodeKey, NodeName
from spillover.model.job import JobSpec, On, Range
from spillover.model.policy import PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.reservation import AdvanceReservation
from spillover.model.tokens import SignInMethod, TokenRole
from spillover.model.units import SECOND

__all__ = [
    "DRIVER",
    "Act",
    "AddCluster",
    "AgentGone",
    "Archived",
    "AskSteal",
    "CancelReservation",
    "Change",
    "ChangeJob",
    "Changed",
    "ClearedCluster",
    "Configure",
    "CreateToken",
    "Dependency",
    "DisablePolicy",
    "Done",
    "Drain",
    "DrainCluster",
    "Forget",
    "GangOverdue",
    "HandBack",
    "Interrupt",
    "Jump",
    "LookAtBudgets",
    "MoveReservation",
    "NewJob",
    "OpenedCluster",
    "Outcome",
    "Prepared",
    "Proposal",
    "QueueBounds",
    "Reclaim",
    "Refusal",
    "RefusalKind",
    "Register",
    "Registered",
    "RemoveCluster",
    "RemoveSecret",
    "Reply",
    "Reserve",
    "Result",
    "Resume",
    "ResumeCluster",
    "RevokeToken",
    "SeeBound",
    "SeeCluster",
    "SeeNodes",
    "SetPolicies",
    "SetPriority",
    "SetSecret",
    "StartEpoch",
    "Started",
    "Submit",
    "Submitted",
    "UpdateCluster",
    "Verdict",
    "Yield",
    "Yielded",
]

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
    same: bool = False
    """Whether each member of an array waits for the member of that array with the same index, not for all of them."""
    ended: tuple[Range, ...] = ()
    """With `same`, the members that had ended when the archive was read."""
    well: tuple[Range, ...] = ()
    """Those of them that succeeded."""


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
    command: bytes = b""
    """Digests of what it runs, as in `JobSubmitted`."""


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


def unusable(result: Result, why: str) -> Result:
    """Return an empty result to replace one that cannot be used, so that the job and its lease still end."""
    return Result(result.node, result.lease, Outcome.UNUSABLE, None, None, Usage(), 0, why)


class LookAtBudgets(Struct, frozen=True):
    """Record which of these budget periods have reached 80 or 100 % of their limits."""

    keys: tuple[str, ...]


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
