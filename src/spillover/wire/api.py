"""Bodies of the HTTP API, version 1, as `/v1/openapi.json` describes them.

Times are RFC 3339 UTC or null, durations are seconds, costs are numbers in the server's currency.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import JobDoc, Quantity

Time = str
Ref = Annotated[str, Meta(min_length=1, max_length=100)]
"""An id, a unique prefix of one, or a unique name."""


class Jobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to submit together, all or none."""

    jobs: Annotated[list[JobDoc], Meta(extra_json_schema={"minItems": 1, "maxItems": 100_000})]


class ReasonView(Struct, frozen=True):
    """Why a job is where it is."""

    code: str
    message: str
    never: bool
    """True when it does not go away by waiting: no cluster that is known could ever run it, or no cap ever pays for it."""
    details: dict[str, Any] = field(default_factory=dict)
    """The fields of this code."""


class ArrayView(Struct, frozen=True):
    """How far an array is: how many members are in each state."""

    size: int
    counts: dict[str, int]


class JobView(Struct, frozen=True):
    """A job as it is listed."""

    id: str
    name: str
    user: str
    project: str
    queue: str
    state: str
    cluster: str | None
    node: str | None
    attempt: int
    reason: ReasonView | None
    submitted_at: Time
    started_at: Time | None
    finished_at: Time | None
    exit_code: int | None
    signal: int | None
    cost: float
    estimate_s: float | None
    priority: int = 0
    resources: dict[str, float] = field(default_factory=dict)
    """cpu (CPUs), memory (bytes) and gpu, of each task."""
    placed_because: ReasonView | None = None
    """Why it runs, or ran, where it does; null before it was placed."""
    array: ArrayView | None = None
    estimated_cost: float | None = None
    """What it is expected to cost where it is, or else on the rented cluster that is cheapest for it; null if it cannot be
    rented, and once it has ended."""
    cost_at_walltime: float | None = None
    """Likewise at the most: at its walltime, with its grace and the 30 s until it is surely ended, which is what caps hold; null
    without a walltime."""
    held_cost: float | None = None
    """What is held for it while it runs under a cap; null if nothing is."""
    given_walltime_s: float | None = None
    """How long it may run because its cap pays for no more; null if it has a walltime of its own, or needs none."""
    estimate_from: str | None = None
    """Who says how long it is expected to run: `estimate`, `walltime`, `history` or `default`."""
    note: str | None = None
    """That it holds, or would hold, all that is left of a budget, as it has no walltime; null as a rule."""


class SetAsideView(Struct, frozen=True):
    """Work that the server failed on for a reason that nobody foresaw; it is tried again later."""

    work: str
    """What was to be done: the name of a controller, as `archiving`, `cycle` for finding a place, or an alarm, as `deadline`."""
    subject: str
    """The job that it was to be done for; empty if all of that work failed."""
    reason: str
    since: Time
    tries: int
    next_try: Time


class TaskView(Struct, frozen=True):
    """One task of a job that has several."""

    rank: int
    """From 0."""
    node: str
    state: str
    """PLACED, RUNNING, or how it ended; CANCELLED if it was stopped, as when another task failed."""
    started_at: Time | None
    finished_at: Time | None
    exit_code: int | None
    signal: int | None
    ran_s: float | None
    cpu_s: float | None
    peak_memory: int | None
    """Bytes."""
    message: str | None = None
    """What is said of its end; null if nothing."""


class JobDetail(JobView, frozen=True):
    """A job with everything that is known of it."""

    spec: dict[str, Any] = field(default_factory=dict)
    """The job file as it was understood."""
    ran_s: float | None = None
    cpu_s: float | None = None
    peak_memory: int | None = None
    """Bytes."""
    set_aside: list[SetAsideView] = field(default_factory=list)
    """What the server failed to do for it, and tries again."""
    tasks: list[TaskView] = field(default_factory=list)
    """Tasks of the attempt under way, or of the last one, by rank; empty unless it has several. Of more than 1,000, some: those that
    did not succeed come before the others."""
    task_counts: dict[str, int] = field(default_factory=dict)
    """How many of its tasks are in each state; empty unless it has several."""


class JobPage(Struct, frozen=True):
    """Some jobs, newest submission first."""

    jobs: list[JobView]
    next: str | None
    """Cursor of the page after this; null on the last."""


class PastJob(Struct, frozen=True):
    """A job that has ended, with what a simulation of it needs. Times are whole nanoseconds, so that nothing is rounded."""

    id: str
    name: str
    user: str
    project: str
    queue: str
    priority: int
    state: str
    submitted_ns: int
    """UTC, as are the other times."""
    ready_ns: int
    """Since when it could have been placed: nobody held it, and nothing was left that it waited for."""
    started_ns: int | None
    """Of the last attempt; null if it never ran."""
    finished_ns: int
    ran_ns: int
    """How long the last attempt ran."""
    attempt: int
    cluster: str | None
    node: str | None
    cost: float
    """Of all attempts."""
    cpu_milli: int
    """Of each task, as are memory (bytes) and GPUs."""
    memory: int
    gpu: int
    tasks: int
    needs: list[str]
    burst: str
    walltime_ns: int | None
    estimate_ns: int | None
    """As its owner stated."""
    predicted_ns: int | None
    """How long jobs like it had run when it was submitted; null if that was not asked for, or not known."""
    deadline_ns: int | None
    max_cost: float | None
    data: int
    """Bytes that leave the cluster at the end of each attempt."""


class ClusterVerdict(Struct, frozen=True):
    """What one cluster says to a job that waits."""

    cluster: str
    role: str
    reason: ReasonView | None
    """Null when it would take the job now."""


class WhyView(Struct, frozen=True):
    """Why a job is where it is, and what would change that."""

    id: str
    state: str
    reason: ReasonView | None
    sentence: str
    """All of it, as a person would say it."""
    waiting_since: Time | None
    waited_s: float | None
    spills_at: Time | None
    """When it may be rented; null if never, or already."""
    spills_in_s: float | None
    ahead: int | None
    """How many queued jobs come before it."""
    estimate_s: float | None
    estimate_from: str | None
    """`estimate`, `walltime`, `history` or `default`."""
    clusters: list[ClusterVerdict]
    estimated_cost: float | None = None
    """As of a job."""
    cost_at_walltime: float | None = None
    """As of a job."""
    ends_at: Time | None = None
    """When it is expected to end; null unless it is placed. One that has run longer than expected ends a minute from now."""
    more_ahead: bool = False
    """Whether more than `ahead` may come before it: in a long queue the first 5,000 are counted."""


class AmountsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Amounts of resources; what is left out stays as it is."""

    cpu: Quantity | None = None
    """CPUs: 2, 1.5 or 500m."""
    memory: Quantity | None = None
    """Bytes: 512Mi, 2Gi, 2G."""
    gpu: Annotated[int, Meta(ge=0, le=100_000)] | None = None


class MachinesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Machines that a cluster has not."""

    cluster: str
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    resources: AmountsDoc = AmountsDoc()
    """Of each; what is left out is that of the largest machine that the cluster has."""


class WhatIf(Struct, frozen=True, forbid_unknown_fields=True):
    """What to assume. Nothing of it is done."""

    resources: AmountsDoc | None = None
    """What each task of the job asks for; null changes nothing."""
    policy: Annotated[str, Meta(max_length=10_000)] | None = None
    """As `wait=compute(0.1),order=priority`; axes that are not named stay. Null changes nothing."""
    machines: Annotated[list[MachinesDoc], Meta(max_length=100)] = field(default_factory=list)


class WhatIfView(Struct, frozen=True):
    """What would become of a job under an assumption."""

    sentence: str
    """As a person would say it."""
    starts: bool
    """Whether it would start at once."""
    cluster: str | None
    """Where it would start; null if it would not."""
    now: WhyView
    """Why it is where it is."""
    then: WhyView
    """What `why` would say under the assumption."""


class CostView(Struct, frozen=True):
    """What was spent on one project, by one user, on one cluster or in one day, week or month."""

    key: str
    """Its name; of a day its date, in UTC, as 2027-01-31."""
    jobs: int
    """Jobs that were paid for, or that run on rented capacity now."""
    cost: float
    """Of attempts that are over, each counted to the cluster it ran on and the day it was over."""
    running: float
    """What attempts under way have cost by now; of a day, today."""
    held: float
    """What is held for attempts under way by caps."""


class CostReport(Struct, frozen=True):
    """What was spent."""

    by: str
    since: Time | None
    currency: str
    rows: list[CostView]
    """By key."""
    total: CostView


class BudgetView(Struct, frozen=True):
    """A budget in the period that is now."""

    of: str
    """`project` or `user`."""
    name: str
    """`*` stands for all that have spent nothing yet."""
    per: str
    period: str
    """As 2027-01."""
    ends_at: Time | None
    """Null if it never does."""
    limit: float
    spent: float
    """Of attempts that were rented in this period and are over."""
    held: float
    """For attempts under way."""
    left: float
    over: float
    """What attempts cost beyond what was held for them, as their agents did not keep to the walltime."""
    every: bool = False
    """Whether it is one budget for every project, or every user, each on its own."""


class Ids(Struct, frozen=True):
    """Jobs that were submitted or changed, in the order they were given."""

    jobs: list[str]


class Action(Struct, frozen=True, forbid_unknown_fields=True):
    """Something to do to jobs, all or none."""

    act: Literal["cancel", "hold", "release", "requeue"]
    jobs: Annotated[list[Ref], Meta(min_length=1, max_length=100_000)]
    """Ids, unique prefixes or unique names."""


class ResultsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Which results, and how long to wait for the first."""

    members: Annotated[str, Meta(min_length=1, max_length=200_000)] | None = None
    """Of an array, such as `0-99,105`; null for a job that is none."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    timeout: Annotated[float, Meta(ge=0, le=60)] = 0.0
    """Seconds to wait while none of them has ended."""


class ResultView(Struct, frozen=True):
    """How a job ended, and what it returned if it is a Python call."""

    id: str
    state: str
    exit_code: int | None
    signal: int | None
    reason: ReasonView | None
    value: bytes | None
    """What it returned or raised, Base64: plain data as JSON, else pickled; null if it returned nothing, or that is large."""
    value_digest: str | None
    """Of the blob with that if it is large; else null."""


class ResultPage(Struct, frozen=True):
    """Results of those jobs that have ended, by their index."""

    results: list[ResultView]


class Patch(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be changed of a job that has not been placed."""

    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]


class Forecast(Struct, frozen=True):
    """Where and when a job would start, by the real cycle on the real state."""

    name: str
    cluster: str | None
    """Where it would start now, or spill over to; null when nobody can know."""
    node: str | None
    """Null when it would not start now."""
    starts_at: Time | None
    """Null when nobody can know; now when there is room; else when it would spill over."""
    reason: ReasonView
    cost: float | None
    """Estimated; null when its place is not known."""
    spills_at: Time | None
    estimate_s: float | None
    estimated_cost: float | None = None
    """What it would cost on the rented cluster that is cheapest for it, or where it would start; null if it cannot be rented."""
    cost_at_walltime: float | None = None
    """Likewise at the most: at its walltime, with its grace and the 30 s until it is surely ended, which is what caps hold; null
    without a walltime."""
    given_walltime_s: float | None = None
    """How long it could run because its cap pays for no more; null if it has a walltime of its own, or needs none."""
    note: str | None = None
    """That it would hold all that is left of a budget, as it has no walltime; null as a rule."""


class Forecasts(Struct, frozen=True):
    """One forecast for each job, in the order they were given."""

    jobs: list[Forecast]


class AgentView(Struct, frozen=True):
    """One agent."""

    name: str
    cluster: str
    state: str
    """`ready`, `draining`, `lost`, or `unobserved` if it has not registered since this server started."""
    capacity: dict[str, float]
    used: dict[str, float]
    running: int
    leased: int
    """Leases that it holds, running ones included."""
    offers: list[str]
    labels: dict[str, str]
    heartbeat_at: Time | None
    """When it was last heard from; null if not since this server started."""
    ahead: int = 0
    """Prefetched leases, of those that it holds."""
    load: float | None = None
    """How many processes its machine runs or would run, as it last said; null if it has not since this server started."""
    stolen_in: int = 0
    """Leases that it took over from other agents, so far."""
    stolen_out: int = 0
    """Leases that other agents took over from it, so far."""
    drained_by: str | None = None
    """Who drained it; null if nobody did, or it was resumed."""


class AgentAction(Struct, frozen=True, forbid_unknown_fields=True):
    """Something to do to agents."""

    act: Literal["drain", "resume", "forget"]
    """Give it nothing more; give it work again; strike it off the list, if it is lost."""
    agents: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    """Names, or CLUSTER/NAME where two clusters have one of a name."""


class AgentNames(Struct, frozen=True):
    """Agents that something was done to."""

    agents: list[str]
    """Each as CLUSTER/NAME."""


JobsThere: TypeAlias = Literal["finish", "move", "cancel"]
"""What becomes of jobs on a cluster that is removed: they end there, go back to the queue, or are cancelled."""


class ClusterRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to add."""

    cluster: dict[str, Any]
    """As an entry of `clusters` in spill.yaml."""
    check: bool = True
    """Whether to refuse one that cannot be reached now."""


class ClusterAction(Struct, frozen=True, forbid_unknown_fields=True):
    """Something to do to clusters."""

    act: Literal["drain", "resume", "remove"]
    """Give it nothing more; give it work again; be rid of it."""
    clusters: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    jobs: JobsThere = "finish"
    """To `remove`: what becomes of jobs that are there."""


class ClusterNames(Struct, frozen=True):
    """Clusters that something was done to."""

    clusters: list[str]


class ConfigRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Read the configuration again."""

    dry_run: bool = False
    """Whether to only say what that would change."""
    jobs: JobsThere = "finish"
    """What becomes of jobs on clusters that it does not name any more."""


class ConfigChange(Struct, frozen=True):
    """One difference between the configuration and what the server does."""

    what: str
    """`cluster NAME`, `policy`, `budgets`, or the name of a setting."""
    change: str
    """`added`, `changed`, `removed`; `kept` for what stays although the configuration does not name it; `restart` for what needs one."""
    text: str


class ConfigOutcome(Struct, frozen=True):
    """What reading the configuration again changes, or would."""

    changes: list[ConfigChange]
    done: bool
    """False if it was only asked."""


class ClusterView(Struct, frozen=True):
    """One cluster."""

    name: str
    kind: str
    role: str
    state: str
    agents: int
    """How many agents, or nodes of an external cluster, are ready."""
    capacity: dict[str, float]
    used: dict[str, float]
    """By our jobs."""
    running: int
    price: dict[str, float]
    """Of an hour of a CPU, a GiB and a GPU, and where there is such a price of a `node` and of a GB of egress."""
    startup_s: float = 0.0
    """Between renting a machine and running on it."""
    billing: dict[str, float] = field(default_factory=dict)
    """`step_s` and `minimum_s`: how use is rounded before it is priced."""
    node: dict[str, float] | None = None
    """What a machine has that is paid for whole; null where each resource has its price."""
    gangs: bool = False
    """Whether it runs jobs of several tasks."""
    foreign: dict[str, float] = field(default_factory=dict)
    """Used by others, as far as that is seen; empty for agents, whose use is ours."""
    why: str | None = None
    """What is wrong, in the words of whoever found it; null if nothing is."""
    since: Time | None = None
    """When its state came to be so; null if nobody watches it."""
    region: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    life: str = "ready"
    """`requested`, `connecting`, `ready`, `draining` or `unreachable`."""
    configured: bool = True
    """Whether the configuration names it; if not, it was added while the server ran, or is being removed."""
    added_by: str | None = None
    """Who added it while the server ran; null if the configuration named it."""
    drained_by: str | None = None
    """Who drained it; null if nobody did."""
    leaving: str | None = None
    """What becomes of its jobs if it is being removed: `finish`, `move` or `cancel`; null if it is not."""


class EventView(Struct, frozen=True):
    """One line of history."""

    revision: int
    at: Time
    type: str
    job: str | None
    text: str
    data: dict[str, Any] = field(default_factory=dict)


class ServerView(Struct, frozen=True):
    """The server itself."""

    version: str
    epoch: int
    leader: bool
    writable: bool
    message: str | None
    """What is wrong, when it does not accept work."""
    currency: str
    revision: int
    queued: int
    running: int
    policy: dict[str, Any]
    max_inputs: int = 2**30
    """Bytes that all inputs of a job may have."""
    max_outputs: int = 2**30
    """Bytes that all outputs of a task may have."""
    clock: str | None = None
    """What is wrong with the clock of its machine, and what to do; null while it is believed."""


class ClockView(Struct, frozen=True):
    """What the server believes of the clock of its machine."""

    now: Time
    """The time as the server counts it: jobs are due, and things are kept, by this."""
    wall: Time
    """What the clock of its machine shows."""
    state: Literal["followed", "held", "behind"]
    """Whether the server's time follows it; `held` if it jumped ahead too far to be believed, `behind` if it was set back."""
    differs_s: float
    """How far the machine's clock is ahead of the server's time; below 0 if it is behind."""
    agree: int
    """Other machines whose clocks agree with it, of those that agents connect from."""
    disagree: int
    message: str
    """What this means, and what to do."""


class Overview(Struct, frozen=True):
    """All of it at a glance, as of one moment."""

    at: Time
    """Ages are counted up to here, on the server's clock."""
    server: ServerView
    ended_a_minute: int
    """Jobs that ended in the last minute; less at first, as a server begins to count when it starts."""
    cost_an_hour: float
    """What an hour would cost of what is rented now."""
    clusters: list[ClusterView]
    agents: list[AgentView]
    """As many as were asked for."""
    agents_in_all: int
    running: list[JobView]
    """Placed and running jobs, the one that has its place longest first; as many as were asked for."""
    running_in_all: int
    queued: list[JobView]
    """The head of the queue, in the order in which jobs are tried; as many as were asked for, arrays as one."""
    set_aside: list[SetAsideView] = field(default_factory=list)
    """Work that the server failed on and tries again, the oldest first; 100 at the most."""
    set_aside_in_all: int = 0


class PolicyAxis(Struct, frozen=True):
    """What decides one axis."""

    axis: str
    policy: str
    """Name and options, as `compute(0.076,max_queue=30)`."""
    name: str
    options: dict[str, Any]
    """Durations are seconds, as far as the options are known."""
    installed: bool
    """Whether a package of your own brings it."""
    failures: int
    """How often it failed since this server started."""
    error: str | None
    """What went wrong last: of this policy, or of the one that was disabled; null if nothing did."""
    disabled: str | None = None
    """The policy that was chosen, and was disabled; null as a rule."""


class PolicyView(Struct, frozen=True):
    """What decides now."""

    policy: str
    """All of it in a line, as `spill policy set` takes it."""
    axes: list[PolicyAxis]
    depth: int
    unknown_runtime_s: float
    since: Time | None
    """Null if it was never anything else."""
    who: str | None
    """Who set it; `spillover` is the server itself."""
    how: str | None
    """`set` by a person, `configured` in spill.yaml, or `disabled` by the server."""
    configured: str
    """What spill.yaml says, in a line."""
    differs: bool
    """Whether something else decides than spill.yaml says."""


class PolicyPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Policies to decide by from now on."""

    policy: Annotated[str, Meta(max_length=10_000)] | None
    """As `wait=compute(0.1),order=priority`; axes that are not named stay. Null goes back to what spill.yaml says."""
    dry_run: bool = False
    """Only check it, and say what would change."""


class PolicyOutcome(Struct, frozen=True):
    """What changed, or would change."""

    before: str
    after: str
    changes: list[str]
    """One line for each axis that differs, or that is decided by its fallback no longer as one; none if nothing changes."""
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
    """One line for each axis that differs."""
    error: str | None
    """Why it was disabled; null if it was not."""


class FileView(Struct, frozen=True):
    """One file that a job brought back."""

    path: str
    """Relative to the folder that it ran in."""
    digest: str
    """Of the blob with its bytes."""
    size: int
    executable: bool


class FilesView(Struct, frozen=True):
    """Files that an attempt of a job brought back."""

    job: str
    attempt: int | None
    """Null if no attempt brought anything."""
    attempts: list[int]
    """Those that brought files back."""
    files: list[FileView]


class Digests(Struct, frozen=True, forbid_unknown_fields=True):
    """Blobs, by the SHA-256 of their bytes."""

    digests: Annotated[list[Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]], Meta(max_length=100_000)]


class BlobKept(Struct, frozen=True):
    """A blob that is there now."""

    digest: str
    fresh: bool
    """False if it was there before."""


class TokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to make."""

    role: Literal["agent", "submit", "admin"]
    project: str | None = None
    """The only one whose jobs it may see and submit; null is all."""
    user: str | None = None
    """Who its holder is; null lets the holder say so."""
    cluster: str | None = None
    """The only one that agents may join with it; null is all."""
    expires_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Seconds from now; null is never."""
    note: Annotated[str, Meta(max_length=200)] = ""


class NewToken(Struct, frozen=True):
    """A token that was made; its text is told here, and never again."""

    id: str
    token: str
    expires_at: Time | None


class TokenRef(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, by its id."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]


class TokenView(Struct, frozen=True):
    """A token as it is listed, without its secret."""

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
    """When it was last shown; null if not since this server started."""
    note: str


class AgentsAddress(Struct, frozen=True):
    """Where agents find their service."""

    host: str | None
    """Null is the host by which this was asked."""
    port: int
    cluster: str | None = None
    """The one to join where none is named: that of the token, or the only one; null if there are several."""
    clusters: list[str] = field(default_factory=list)
    """All that agents may join with this token."""


class Health(Struct, frozen=True):
    """Alive, or ready."""

    status: str
    message: str | None = None


class FieldProblem(Struct, frozen=True):
    """One thing that is wrong with what was sent."""

    path: str
    message: str


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    problems: list[FieldProblem] = field(default_factory=list)
    retry_after_s: float | None = None
