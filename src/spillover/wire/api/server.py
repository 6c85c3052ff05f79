"""Bodies about the server: costs, events, policies, tokens, health and errors."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from spillover.wire.api.clusters import AgentView, ClusterView
from spillover.wire.api.jobs import JobView, SetAsideView, Time
from spillover.wire.api.pools import PoolSummary


class CostView(Struct, frozen=True):
    """The cost of one project, user, cluster, day, week or month."""

    key: str
    """Its name; for a day, its date in UTC, such as 2027-01-31."""
    jobs: int
    """Jobs that had a cost, or run on rented capacity now."""
    cost: float
    """Cost of ended attempts, by the cluster that they ran on and the day on which they ended."""
    running: float
    """Cost so far of running attempts; by day, it counts for today."""
    held: float
    """Amount that caps hold for running attempts."""


class CostReport(Struct, frozen=True):
    """Costs of rented capacity, as attempts pay for it."""

    by: str
    since: Time | None
    currency: str
    rows: list[CostView]
    """Sorted by key."""
    total: CostView
    machines: float | None = None
    """What machines of pools cost in the same days, of which the rows count the shares that tasks paid; null without pools, or for a token of one project."""


class Hours(Struct, frozen=True):
    """Amounts of resources over time."""

    cpu: float
    """CPU hours."""
    gpu: float
    """GPU hours."""
    memory: float
    """GiB hours."""


class UsageView(Struct, frozen=True):
    """What one group of jobs used: attempts that have ended, and those that run, up to now."""

    key: dict[str, str]
    """The value of each asked key; for a day, its date in UTC, such as 2027-01-31."""
    jobs: int
    """Jobs whose last attempt is among these."""
    owned: Hours
    """What they asked for, for as long as they ran, on owned capacity."""
    rented: Hours
    """The same on rented capacity."""
    measured: Hours
    """The part of both in attempts whose use was measured. Use of GPUs is not."""
    unused: Hours
    """The part of `measured` that was not used: CPU time, and memory above the peak."""
    cost: float


class UsageReport(Struct, frozen=True):
    """What jobs used."""

    by: list[str]
    since: Time | None
    currency: str
    rows: list[UsageView]
    """Sorted by their keys."""
    total: UsageView


class BudgetView(Struct, frozen=True):
    """A budget in the current period."""

    of: str
    """`project` or `user`."""
    name: str
    """`*` stands for all projects or users that have spent nothing yet."""
    per: str
    period: str
    """Such as 2027-01."""
    ends_at: Time | None
    """End of the period; null if it never ends."""
    limit: float
    spent: float
    """Cost of ended attempts that were rented in this period."""
    held: float
    """Amount held for running attempts."""
    left: float
    over: float
    """Cost of attempts beyond their hold, because their agents did not enforce the walltime."""
    every: bool = False
    """Whether every project, or every user, has such a budget of its own."""
    runs_out_at: Time | None = None
    """When it will be used up if spending goes on as in the period so far; null if it lasts, or is used up already."""


class QueueAmounts(Struct, frozen=True):
    """Limits of a queue, each null if there is none, or what is in use."""

    running: int | None
    """Placed and running jobs; each member of an array counts."""
    cpu: float | None
    memory: int | None
    """Bytes."""
    gpu: int | None
    queued: int | None
    """Jobs that wait, with those that are held; each member of an array counts."""


class QueueSizeView(Struct, frozen=True):
    """The largest job of a queue, all tasks together; null is any size."""

    cpu: float | None
    memory: int | None
    """Bytes."""
    gpu: int | None
    tasks: int | None


class QueueDefaultsView(Struct, frozen=True):
    """What a job of a queue gets that asks for nothing else; null is nothing."""

    walltime_s: float | None
    estimate_s: float | None
    cpu: float | None
    """Of each task, like the next two."""
    memory: int | None
    """Bytes."""
    gpu: int | None
    priority: int
    burst: str
    max_cost: float | None
    """In the configured currency."""


class QueueView(Struct, frozen=True):
    """A named queue."""

    name: str
    description: str
    default: bool
    """Whether jobs that name no queue go there."""
    running: int
    """Placed and running jobs; each member of an array counts."""
    queued: int
    """Jobs that wait, with those that are held; each member of an array counts."""
    used: QueueAmounts
    limits: QueueAmounts
    """For all of its jobs together."""
    user_limits: QueueAmounts
    """For the jobs of each user."""
    walltime_s: float | None
    """The longest walltime; null is any."""
    size: QueueSizeView
    priority: int
    """Added to the priority of its jobs."""
    projects: list[str]
    """Projects that may use it; empty is all."""
    users: list[str]
    """Users who may use it; empty is all."""
    clusters: list[str]
    """Clusters that its jobs may run on; empty is all."""
    defaults: QueueDefaultsView


class EventView(Struct, frozen=True):
    """One event of the history."""

    revision: int
    at: Time
    type: str
    job: str | None
    text: str
    data: dict[str, Any] = field(default_factory=dict)
    user: str | None = None
    """The person who caused it; null if the server, a cluster or an agent did."""


class AuditView(Struct, frozen=True):
    """Something that a person did."""

    revision: int
    """Of its event."""
    at: Time
    user: str
    type: str
    """The type of its event."""
    job: str | None
    project: str | None
    text: str


class AuditPage(Struct, frozen=True):
    """A page of what people did, newest first."""

    entries: list[AuditView]
    next: str | None
    """Cursor of the next page; null on the last page."""


class ServerView(Struct, frozen=True):
    """The server itself."""

    version: str
    epoch: int
    leader: bool
    writable: bool
    message: str | None
    """Why it does not accept work; null if it does."""
    currency: str
    revision: int
    queued: int
    running: int
    policy: dict[str, Any]
    max_inputs: int = 2**30
    """Most bytes of all inputs of a job."""
    max_outputs: int = 2**30
    """Most bytes of all outputs of a task."""
    clock: str | None = None
    """What is wrong with the clock of its machine, and what to do; null while the server trusts it."""


class ClockView(Struct, frozen=True):
    """Whether the server trusts the clock of its machine."""

    now: Time
    """The server's time, which decides on deadlines and retention."""
    wall: Time
    """The time of the machine's clock."""
    state: Literal["followed", "held", "behind"]
    """`followed`; `held` if it jumped ahead too far to be trusted; `behind` if it was set back."""
    differs_s: float
    """How far the machine's clock is ahead of the server's time; below 0 if it is behind."""
    agree: int
    """Other machines with agents whose clocks agree with it."""
    disagree: int
    message: str
    """What this means, and what to do."""


class Overview(Struct, frozen=True):
    """A snapshot of server, clusters, agents and jobs."""

    at: Time
    """The server's time; ages count up to it."""
    server: ServerView
    ended_a_minute: int
    """Jobs that ended in the last minute, or since the server started if that is later."""
    cost_an_hour: float
    """Cost per hour of all capacity that is rented now."""
    clusters: list[ClusterView]
    agents: list[AgentView]
    """Up to the requested number."""
    agents_in_all: int
    running: list[JobView]
    """Placed and running jobs, longest placed first, up to the requested number."""
    running_in_all: int
    queued: list[JobView]
    """Head of the queue, in the order in which jobs are tried, up to the requested number; an array counts as one."""
    set_aside: list[SetAsideView] = field(default_factory=list)
    """Failed work that the server will retry, oldest first; at most 100."""
    set_aside_in_all: int = 0
    pools: list[PoolSummary] = field(default_factory=list)
    """Pools, in the order of their clusters."""


class PolicyAxis(Struct, frozen=True):
    """The policy of one axis."""

    axis: str
    policy: str
    """Name and options, such as `compute(0.076,max_queue=30)`."""
    name: str
    options: dict[str, Any]
    """Durations are in seconds where the option is known."""
    installed: bool
    """Whether it comes from an installed package."""
    failures: int
    """Failures since this server started."""
    error: str | None
    """Last error of this policy, or of the one that was disabled; null if there is none."""
    disabled: str | None = None
    """The chosen policy, if the server disabled it; else null."""


class PolicyView(Struct, frozen=True):
    """The policies in effect."""

    policy: str
    """All policies in one line, as `spill policy set` accepts it."""
    axes: list[PolicyAxis]
    depth: int
    unknown_runtime_s: float
    since: Time | None
    """When they were set; null if they never changed."""
    who: str | None
    """Who set them; `spillover` is the server itself."""
    how: str | None
    """`set` by a person, `configured` in spill.yaml, or `disabled` by the server."""
    configured: str
    """The policies of spill.yaml, in one line."""
    differs: bool
    """Whether the policies in effect differ from spill.yaml."""


class PolicyPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Policies to set."""

    policy: Annotated[str, Meta(max_length=10_000)] | None
    """Such as `wait=compute(0.1),order=priority`; other axes stay as they are. Null restores those of spill.yaml."""
    dry_run: bool = False
    """Whether to only check the policies and report what would change."""


class PolicyOutcome(Struct, frozen=True):
    """What changed, or would change."""

    before: str
    after: str
    changes: list[str]
    """One line for each axis that changes, also if a fallback becomes the chosen policy; empty if nothing changes."""
    done: bool
    """False for a dry run."""


class PolicyRecord(Struct, frozen=True):
    """One change of the policies."""

    at: Time
    who: str
    how: str
    """`set` or `reset` by a person, `configured` in spill.yaml, or `disabled` by the server."""
    before: str
    after: str
    changes: list[str]
    """One line for each axis that changed."""
    error: str | None
    """Why a policy was disabled; null if none was."""


class FrontierProject(Struct, frozen=True):
    """What a policy would mean for one project."""

    project: str
    jobs: int
    wait_s: float
    """Mean wait of its jobs under the policies of the time, in the simulation."""
    wait_then_s: float
    """Under this policy."""
    cost: float
    cost_then: float
    verdict: str
    """`wins`, `loses`, or what else the back-test says of it."""


class FrontierPoint(Struct, frozen=True):
    """What one wait policy would have done with the last jobs."""

    policy: str
    """As `spill policy set` takes it, such as `wait=break_even(0.1)`."""
    cost: float
    """Rent, in the configured currency."""
    mean_wait_s: float
    p99_wait_s: float
    max_wait_s: float
    mean_completion_s: float
    """Wait and runtime."""
    dominated: bool
    """Whether another point costs no more and completes jobs no later."""
    projects: list[FrontierProject]


class FrontierRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to simulate."""

    span_s: Annotated[float, Meta(gt=0, le=366 * 86400)] = 7 * 86400
    """Those submitted in so many seconds before now."""


class FrontierView(Struct, frozen=True):
    """The frontier of cost and completion time for the last jobs of this server."""

    state: str
    """`none` until somebody asked for one, `computing`, `ready`, or `failed`. While another is computed, the rest is that of the last."""
    message: str = ""
    """Why it failed."""
    started_at: Time | None = None
    computed_at: Time | None = None
    asked_since: Time | None = None
    """The jobs are those submitted since then."""
    jobs: int = 0
    first_at: Time | None = None
    last_at: Time | None = None
    now: FrontierPoint | None = None
    """The policies of the time, simulated in the same way."""
    points: list[FrontierPoint] = []
    """From never waiting to only waiting."""
    wait_error: float | None = None
    """By how much the simulated mean wait differs from what happened, as a share; null if that is not known."""
    cost_error: float | None = None
    remarks: list[str] = []
    """What the simulation leaves out."""


class TokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to create."""

    role: Literal["agent", "read", "submit", "maintain", "admin"]
    project: str | None = None
    """The only project that the token gives access to; null for all."""
    user: str | None = None
    """The user of the token; null lets its holder name one."""
    cluster: str | None = None
    """The only cluster that agents may join with it; null for all."""
    expires_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Seconds from now; null for never."""
    note: Annotated[str, Meta(max_length=200)] = ""


class NewToken(Struct, frozen=True):
    """A new token. This is the only response that contains its text."""

    id: str
    token: str
    expires_at: Time | None


class TokenRef(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, by its id."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]


class TokenView(Struct, frozen=True):
    """A token in a list, without its secret."""

    id: str
    role: str
    state: str
    """`valid`, `expired` or `revoked`."""
    project: str | None
    user: str | None
    cluster: str | None
    created_at: Time
    created_by: str
    expires_at: Time | None
    revoked_at: Time | None
    revoked_by: str | None
    used_at: Time | None
    """When it was last used; null if not since this server started."""
    note: str
    sign_in: str | None = None
    """How somebody signed in, which made this token: `token`, `link` or `oidc`; null if it was created."""


class Health(Struct, frozen=True):
    """Whether the server is alive, or ready."""

    status: str
    message: str | None = None


class FieldProblem(Struct, frozen=True, omit_defaults=True):
    """One problem of the request, or of a file that the server reads for it."""

    path: str
    message: str
    source: str = ""
    """The file on the server; empty if the problem is in the request."""
    line: int | None = None
    """The line in that file, counted from 1; null if unknown."""


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error in the format of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    problems: list[FieldProblem] = field(default_factory=list)
    retry_after_s: float | None = None
    untouched: bool = False
    """True if the server certainly changed nothing, though it answers 503."""
