"""What somebody asks for or has seen. `decide` turns each into events, or refuses it."""

from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.core.events import Lease, SeenNode, TaskEnd, Usage
from spillover.core.events import Outcome as Outcome  # noqa: PLC0414 - whoever proposes a result finds it here
from spillover.model.budget import Budget
from spillover.model.cluster import ClusterHealth, ClusterSpec, Leave
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.job import JobSpec, On
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.units import SECOND

DRIVER: Final = NodeKey("")
"""Who speaks for all nodes of an external cluster: no agent has this key."""


class RefusalKind(StrEnum):
    """What a refusal means to the one who asked."""

    INVALID = "invalid"
    """Never valid: mend it."""
    UNKNOWN = "unknown"
    """There is no such thing."""
    CONFLICT = "conflict"
    """Not possible in the state that things are in."""
    STALE = "stale"
    """It rests on something that has changed: look again and retry."""
    FULL = "full"
    """So many jobs wait already: retry when some have started."""
    PROJECT_FULL = "project_full"
    """So many jobs of a project wait already: likewise."""
    INTERNAL = "internal"
    """It could not be decided, or what was decided could not be written: a fault of ours, or data that nobody thought of."""


class Refusal(Struct, frozen=True):
    """A proposal that changed nothing."""

    kind: RefusalKind
    message: str


class Dependency(Struct, frozen=True):
    """A job to wait for, as its id was resolved."""

    job: JobId
    on: On = On.SUCCESS
    succeeded: bool | None = None
    """How it ended, when the archive says so; None if it is not in the archive."""


class NewJob(Struct, frozen=True):
    """One job of a submission; its id was drawn by whoever proposes it."""

    job: JobId
    spec: JobSpec
    digest: bytes
    """Of the encoded spec."""
    after: tuple[Dependency, ...] = ()
    """Jobs of the same submission may be named."""
    key: str | None = None
    body: bytes = b""


class Submit(Struct, frozen=True):
    """Take all of these jobs, or none."""

    jobs: tuple[NewJob, ...]
    user: str
    archived: int | None = None
    """How many jobs had been archived when the archive was asked for keys; None if it was not asked."""
    bounds: "QueueBounds | None" = None
    """How many jobs may wait; None is any number."""


class QueueBounds(Struct, frozen=True):
    """How many jobs may wait to be placed, held ones included and members of arrays counted one by one."""

    queued: int | None = None
    """In all; None is any number."""
    queued_per_project: int | None = None
    """Of each project; likewise."""


class Act(StrEnum):
    """What a person can do to a job."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"


class Change(Struct, frozen=True):
    """Do something to jobs, all or none."""

    act: Act
    jobs: tuple[JobId, ...]
    who: str


class SetPriority(Struct, frozen=True):
    """Change the priority of a job that has not been placed."""

    job: JobId
    priority: int
    who: str


class Register(Struct, frozen=True):
    """An agent connected, with what it still holds."""

    cluster: ClusterName
    node: NodeName
    incarnation: int
    """Drawn by the server, higher than any before."""
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    held: tuple[Lease, ...]
    """Leases that it has: waiting, running, or with a result that was not answered yet."""
    token: str = ""
    """Id of the token that it showed; empty for the server's own."""
    admin: bool = True
    """Whether that token may do everything."""
    waiting: tuple[Lease, ...] = ()
    """Of the leases that it has, those not started: what its queue has no room for any more is taken back."""


class Started(Struct, frozen=True):
    """An agent says that a task runs."""

    node: NodeKey
    lease: Lease
    age: int
    """Nanoseconds since it started, when the agent said so."""
    ranks: tuple[int, ...] = ()
    """Of the driver of an external cluster, which speaks for all tasks of a gang: those that run; empty if it cannot tell."""


class Result(Struct, frozen=True):
    """An agent says how a task ended."""

    node: NodeKey
    lease: Lease
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    usage: Usage
    age: int
    """Nanoseconds since it ended, when the agent said so."""
    message: str = ""
    value: bytes = b""
    """What a Python call returned or raised, if it is small."""
    value_digest: str = ""
    """The blob with that if it is not."""
    outputs: str = ""
    """The blob that lists the files that it brought back; empty if there are none."""
    tasks: tuple[TaskEnd, ...] = ()
    """Of the driver of an external cluster, which speaks for all tasks of a gang: how each ended, as far as it can tell."""


def unusable(told: Result, why: str) -> Result:
    """A result in place of one that cannot be used, with nothing of what that one says: its job ends, and its lease with it."""
    return Result(told.node, told.lease, Outcome.UNUSABLE, None, None, Usage(), 0, why)


class HandBack(Struct, frozen=True):
    """An agent, or the server for it, gives up leases that never started."""

    node: NodeKey
    leases: tuple[Lease, ...]
    because: str = ""
    """Why, for people; empty if there is nothing to say."""
    backoff: int = 0
    """Nanoseconds for which these jobs are not tried on that cluster again."""


class Reclaim(Struct, frozen=True):
    """Leases ran out: their agent did not renew them in time."""

    node: NodeKey
    leases: tuple[Lease, ...]


class AskSteal(Struct, frozen=True):
    """An idle agent could run what another one has not begun."""

    cluster: ClusterName
    node: NodeName
    """Who holds the lease."""
    lease: Lease
    thief: NodeName


class Yield(StrEnum):
    """What an agent says of a lease that another one wants."""

    RELEASED = "released"
    """It was not started and never will be under that lease."""
    STARTED = "started"
    UNKNOWN = "unknown"
    """Not held here, and refused should it come."""


class Yielded(Struct, frozen=True):
    """An agent answers for a lease that another one wants."""

    node: NodeKey
    lease: Lease
    answer: Yield


class Drain(Struct, frozen=True):
    """Give an agent nothing more."""

    cluster: ClusterName
    node: NodeName
    who: str = ""
    """Who wants that until it is resumed; empty if the agent itself was told to stop."""


class Resume(Struct, frozen=True):
    """Give an agent work again that somebody drained."""

    cluster: ClusterName
    node: NodeName
    who: str


class Forget(Struct, frozen=True):
    """Strike a lost agent off the list."""

    cluster: ClusterName
    node: NodeName
    who: str


class AgentGone(Struct, frozen=True):
    """An agent was not heard from for too long; its leases are proposed apart, as they run out."""

    cluster: ClusterName
    node: NodeName
    incarnation: int


class SeeNodes(Struct, frozen=True):
    """These nodes of a cluster were seen, as they are now."""

    cluster: ClusterName
    nodes: tuple[SeenNode, ...]
    gone: tuple[NodeName, ...] = ()
    whole: bool = False
    """Whether these are all there are: others are gone."""


class SeeCluster(Struct, frozen=True):
    """An external cluster is so."""

    cluster: ClusterName
    health: ClusterHealth
    why: str = ""
    unsent: tuple[Lease, ...] = ()
    """Of one that has failed: leases that it surely never heard of."""


class SeeBound(Struct, frozen=True):
    """Tasks of an external cluster are on these nodes."""

    cluster: ClusterName
    leases: tuple[Lease, ...]
    nodes: tuple[tuple[NodeName, ...], ...]
    """For each lease the nodes of its tasks, as far as they were given any, in the order of the tasks."""


class AddCluster(Struct, frozen=True):
    """Use one more cluster."""

    spec: ClusterSpec
    who: str
    form: str = ""
    """Its entry of spill.yaml as JSON; empty if the configuration names it."""
    identity: str = ""
    """As of `StartEpoch`: for a cluster that others run."""


class UpdateCluster(Struct, frozen=True):
    """Use a cluster as it is configured now."""

    spec: ClusterSpec
    who: str
    form: str = ""
    """As of `AddCluster`."""
    restated: bool = False
    """Whether what only its driver knows is another: then it is written down although deciding sees no difference."""


class OpenedCluster(Struct, frozen=True):
    """The server has opened a cluster."""

    cluster: ClusterName


class DrainCluster(Struct, frozen=True):
    """Give a cluster nothing more."""

    cluster: ClusterName
    who: str


class ResumeCluster(Struct, frozen=True):
    """Give a cluster work again, and do not remove it."""

    cluster: ClusterName
    who: str


class RemoveCluster(Struct, frozen=True):
    """Drain a cluster, and be rid of it once nothing of ours is there."""

    cluster: ClusterName
    who: str
    how: Leave = Leave.FINISH
    form: str = ""
    """Its entry of spill.yaml as JSON, if the configuration named it so far and does not any more; else empty."""


class ClearedCluster(Struct, frozen=True):
    """Look whether a cluster that is being removed can go."""

    cluster: ClusterName


class Configure(Struct, frozen=True):
    """Decide by what a configuration says beyond clusters."""

    who: str
    policies: PolicySet
    budgets: tuple[Budget, ...] = ()
    ahead: int = SECOND // 10
    """As of `StartEpoch`."""


class Archived(Struct, frozen=True):
    """The archive holds these ended jobs durably."""

    jobs: tuple[JobId, ...]


class CreateToken(Struct, frozen=True):
    """Let somebody in with a new token; its id and secret were drawn by whoever proposes it."""

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


class RevokeToken(Struct, frozen=True):
    """Let nobody in with a token any more."""

    token: str
    who: str


class StartEpoch(Struct, frozen=True):
    """This server leads from now on."""

    epoch: int
    clusters: tuple[ClusterSpec, ...]
    policies: PolicySet
    gap: int = 0
    """Nanoseconds in which no server decided, to be taken out of waits."""
    budgets: tuple[Budget, ...] = ()
    ahead: int = SECOND // 10
    """Nanoseconds of work that agents prefetch."""
    identity: str = ""
    """A word, drawn by whoever proposes it, that the book is known by elsewhere if it has none yet; empty if it needs none."""


class Jump(Struct, frozen=True):
    """The wall clock jumped forward."""

    by: int
    who: str = ""
    """Who had it followed; empty as a rule."""


class SetPolicies(Struct, frozen=True):
    """Decide by other policies."""

    policies: PolicySet
    who: str
    over: PolicySet | None = None
    """The ones that they were made from, so that nothing that somebody else set meanwhile is undone; None does not care."""
    named: tuple[str, ...] = ()
    """Axes that somebody named, also where they stay as they are."""
    reset: bool = False
    """Whether that goes back to what spill.yaml says."""


class DisablePolicy(Struct, frozen=True):
    """Decide without a policy that is too slow, or that is not there any more."""

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
    | Register
    | Started
    | Result
    | HandBack
    | Reclaim
    | AskSteal
    | Yielded
    | Drain
    | Resume
    | Forget
    | AgentGone
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
    | RevokeToken
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


class Submitted(Struct, frozen=True):
    """The ids of a submission, in its order; a job that was there under its key keeps its id."""

    jobs: tuple[JobId, ...]


class Registered(Struct, frozen=True):
    """Which of the leases that an agent named it may keep; all others it must stop."""

    keep: tuple[Lease, ...]


class Done(Struct, frozen=True):
    """It was done; nothing more to say."""


Reply: TypeAlias = Submitted | Registered | Verdict | Done | Refusal
