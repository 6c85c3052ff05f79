"""Bodies about jobs: submissions, lists, reasons, what-ifs, results and files."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import JobDoc, Quantity

Time = str

Ref = Annotated[str, Meta(min_length=1, max_length=100)]

"""An id, a unique prefix of one, or a unique name."""


class Jobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to submit together, all or none."""

    jobs: Annotated[list[JobDoc], Meta(extra_json_schema={"minItems": 1, "maxItems": 100_000})]


class ReasonView(Struct, frozen=True):
    """Why a job is in its state."""

    code: str
    message: str
    never: bool
    """True if waiting does not help: no known cluster could ever run the job, or its budget can never pay for it."""
    details: dict[str, Any] = field(default_factory=dict)
    """Fields that depend on the code."""


class ArrayView(Struct, frozen=True):
    """The number of members of an array in each state."""

    size: int
    counts: dict[str, int]


class ExpectedStart(Struct, frozen=True):
    """When a waiting job is expected to start, if nobody submits more jobs and no machine fails."""

    p50: Time | None
    """It starts by then in half of all cases; null if it is not expected to start."""
    p90: Time | None
    """It starts by then in nine of ten cases."""


class JobView(Struct, frozen=True):
    """A job in a list."""

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
    """Why the scheduler placed it there; null before it was placed."""
    array: ArrayView | None = None
    estimated_cost: float | None = None
    """Expected cost on its cluster, else on the cheapest rented cluster; null if it cannot be rented or has ended."""
    cost_at_walltime: float | None = None
    """Highest possible cost: walltime, grace and 30 s to end. Caps hold this amount. Null without a walltime."""
    held_cost: float | None = None
    """Amount that caps hold for it while it runs; null if none."""
    given_walltime_s: float | None = None
    """Walltime that its cap allows; null if it has a walltime of its own, or no cap."""
    estimate_from: str | None = None
    """Source of the expected runtime: `estimate`, `walltime`, `history` or `default`."""
    nodes: int = 0
    """The number of nodes on which the tasks of a gang are; `node` is that of the first. 0 for other jobs."""
    note: str | None = None
    """A warning that it holds, or would hold, the rest of a budget because it has no walltime; usually null."""
    expected_start: ExpectedStart | None = None
    """Null unless it waits. In a list, only with `starts`, or if the server has computed it shortly before."""
    walltime_s: float | None = None
    """How long each attempt may run: its walltime, or what its cap allows; null without a limit."""
    estimate_because: str | None = None
    """The earlier runs that say how long it takes; null if there are too few, or if it has ended."""


class SetAsideView(Struct, frozen=True):
    """Work that failed with an unexpected error and that the server will retry."""

    work: str
    """The failed work: a controller such as `archiving`, `cycle` for scheduling, or an alarm such as `deadline`."""
    subject: str
    """The job it was for; empty if all work of this kind failed."""
    reason: str
    since: Time
    tries: int
    next_try: Time


class TaskView(Struct, frozen=True):
    """One task of a job with several tasks."""

    rank: int
    """From 0."""
    node: str
    state: str
    """PLACED, RUNNING, or how it ended; CANCELLED if it was stopped, such as after another task failed."""
    started_at: Time | None
    finished_at: Time | None
    exit_code: int | None
    signal: int | None
    ran_s: float | None
    cpu_s: float | None
    peak_memory: int | None
    """Bytes."""
    message: str | None = None
    """A message about its end; null if there is none."""
    group: str | None = None
    """The name of its group; null if the job has none."""
    group_task: int | None = None
    """Its number in the group, from 0; null if the job has none."""
    cpus: str | None = None
    """CPUs that it has for itself, such as `0-7,16`; null if it shares those that no task has for itself."""
    gpus: list[str] = field(default_factory=list)
    """Ids of its GPUs; empty if it has none, or if its agent chooses them."""
    restarts: int = 0
    """How often it failed and was started again in its place."""


class Efficiency(Struct, frozen=True):
    """How much of what was asked for was used, where agents measured it."""

    cpu: float | None
    """Part of the CPU time that was used, up to 1; null if it was not measured."""
    memory: float | None
    """Part of the memory that was used at its peak, up to 1; null if it was not measured, or none was asked for."""
    cpu_asked_s: float
    """CPU seconds: CPUs times runtime, where their use was measured."""
    cpu_used_s: float
    memory_asked: int | None
    """Bytes, of each task; null if none was asked for."""
    memory_used: int | None
    """Highest peak of a task in bytes; null if it was not measured."""
    gpu_asked_s: float
    """GPU seconds: GPUs times runtime. Their use is not measured."""
    members: int = 0
    """Members of an array that have run, of which these are sums; 0 for other jobs."""
    hints: list[str] = field(default_factory=list)
    """What to ask for next time, if much was wasted."""


class JobDetail(JobView, frozen=True):
    """A job with all details."""

    spec: dict[str, Any] = field(default_factory=dict)
    """The job file with defaults filled in."""
    ran_s: float | None = None
    cpu_s: float | None = None
    peak_memory: int | None = None
    """Bytes."""
    set_aside: list[SetAsideView] = field(default_factory=list)
    """Work for this job that failed and that the server will retry."""
    tasks: list[TaskView] = field(default_factory=list)
    """Tasks of the current or last attempt, by rank; empty for a single task. At most 1,000, unsuccessful ones first."""
    task_counts: dict[str, int] = field(default_factory=dict)
    """Number of its tasks in each state; empty for a single task."""
    cpus: str | None = None
    """Of a single task: the CPUs that it has for itself, such as `0-7,16`; null if it shares CPUs."""
    gpus: list[str] = field(default_factory=list)
    """Of a single task: the ids of its GPUs; empty if it has none, or if its agent chooses them."""
    interruptions: int = 0
    """How many times its machine was taken back while it ran; 0 for jobs of the archive."""
    waited_s: float | None = None
    """How long it waited before the start of its last attempt, without the time of earlier ones; null if that is not known."""
    efficiency: Efficiency | None = None
    """What the last attempt used of what it asked for, or all members of an array; null if nothing was measured."""


class JobPage(Struct, frozen=True):
    """A page of jobs, newest submission first."""

    jobs: list[JobView]
    next: str | None
    """Cursor of the next page; null on the last page."""


class PastJob(Struct, frozen=True):
    """A finished job with the data that a simulation needs. Times are integers in nanoseconds, to avoid rounding."""

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
    """When it became ready to be placed: not held, and without unfinished dependencies."""
    started_ns: int | None
    """Start of the last attempt; null if it never ran."""
    finished_ns: int
    ran_ns: int
    """Runtime of the last attempt."""
    attempt: int
    cluster: str | None
    node: str | None
    cost: float
    """Cost of all attempts."""
    cpu_milli: int
    """For each task, like memory (bytes) and GPUs."""
    memory: int
    gpu: int
    tasks: int
    needs: list[str]
    burst: str
    walltime_ns: int | None
    estimate_ns: int | None
    """As stated by its owner."""
    predicted_ns: int | None
    """Runtime predicted from similar jobs when it was submitted; null if not requested or unknown."""
    deadline_ns: int | None
    max_cost: float | None
    data: int
    """Bytes transferred out of the cluster at the end of each attempt."""


class ClusterVerdict(Struct, frozen=True):
    """Why a queued job does not start on one cluster."""

    cluster: str
    role: str
    reason: ReasonView | None
    """Null if the job could start there now."""


class WhyView(Struct, frozen=True):
    """Why a job is in its state, and what would change that."""

    id: str
    state: str
    reason: ReasonView | None
    sentence: str
    """The whole explanation in one sentence."""
    waiting_since: Time | None
    """When it came to the queue the last time; null if it does not wait."""
    waited_s: float | None
    """How long it waited before all attempts together, without the time of attempts; null if it does not wait."""
    spills_at: Time | None
    """When it may be rented; null if never, or already."""
    spills_in_s: float | None
    ahead: int | None
    """Number of queued jobs before it."""
    estimate_s: float | None
    estimate_from: str | None
    """`estimate`, `walltime`, `history` or `default`."""
    clusters: list[ClusterVerdict]
    estimated_cost: float | None = None
    """As in the job."""
    cost_at_walltime: float | None = None
    """As in the job."""
    ends_at: Time | None = None
    """Expected end; null unless it is placed. A minute from now if it has run longer than expected."""
    more_ahead: bool = False
    """Whether more jobs than `ahead` may come before it: in a long queue, the server counts only the first 5,000."""
    expected_start: ExpectedStart | None = None
    """Null unless it waits, and if the server does not know: then `expected_start_note` says why."""
    expected_start_note: str | None = None
    """Why the server does not know when a waiting job will start; else null."""
    estimate_because: str | None = None
    """As in the job."""


class AmountsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Amounts of resources; a missing amount stays as it is."""

    cpu: Quantity | None = None
    """CPUs: 2, 1.5 or 500m."""
    memory: Quantity | None = None
    """Bytes: 512Mi, 2Gi, 2G."""
    gpu: Annotated[int, Meta(ge=0, le=100_000)] | None = None


class MachinesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Hypothetical machines of a cluster."""

    cluster: str
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    resources: AmountsDoc = AmountsDoc()
    """Of each machine; a missing amount is that of the cluster's largest machine."""


class OtherJob(Struct, frozen=True):
    """Another job, in an explanation."""

    id: str | None
    """Null for a job of another project, for a token of one project."""
    name: str
    user: str
    ends_at: Time | None = None
    """When it is expected to end, if it runs."""


class SmallChange(Struct, frozen=True):
    """A change with which a waiting job would start now, as the scheduler decided on a snapshot."""

    what: str
    """`cpu`, `memory`, `gpu`, `size` (all three), `tasks`, `walltime`, `where`, `burst`, `priority`, `hold`, `max_cost`, `budget`, `queue` or `machines`."""
    sentence: str
    """For example: with 6Gi of memory instead of 8Gi, it would start on onprem."""
    cluster: str
    """Where it would start."""
    why: str
    """Why there, in words."""
    changes: dict[str, Any] | None
    """What `PATCH /v1/jobs/{job}` takes to make this change; null if the job cannot be changed that way."""


class ChangesView(Struct, frozen=True):
    """What keeps a waiting job from starting, and the smallest changes that would let it start now."""

    id: str
    state: str
    sentence: str
    """Why it waits."""
    ahead: list[OtherJob]
    """The first few jobs that are tried before it."""
    ahead_in_all: int
    more_ahead: bool
    """Whether there may be more than these."""
    ends: list[OtherJob]
    """Jobs that end before it starts, on the machines where it then starts, if each runs as long as expected."""
    expected_start: ExpectedStart | None
    changes: list[SmallChange]
    tried: int
    """How many changes the scheduler tried."""
    complete: bool
    """False if the search was ended because it took too long."""


class WhatIf(Struct, frozen=True, forbid_unknown_fields=True):
    """Assumptions to test. The server changes nothing."""

    resources: AmountsDoc | None = None
    """Resources of each task of the job; null changes nothing."""
    policy: Annotated[str, Meta(max_length=10_000)] | None = None
    """Such as `wait=compute(0.1),order=priority`; other axes stay as they are. Null changes nothing."""
    machines: Annotated[list[MachinesDoc], Meta(max_length=100)] = field(default_factory=list)


class WhatIfView(Struct, frozen=True):
    """What would happen to a job under the assumptions."""

    sentence: str
    """The answer in one sentence."""
    starts: bool
    """Whether it would start at once."""
    cluster: str | None
    """Where it would start; null if it would not."""
    now: WhyView
    """The explanation without the assumptions."""
    then: WhyView
    """The explanation under the assumptions."""


class ReservationView(Struct, frozen=True):
    """Capacity that is kept for a while: for a waiting job, for people, or for maintenance."""

    kind: str
    """`backfill`: the scheduler keeps it for a waiting job; `advance`: a person reserved it for a project;
    `maintenance`: a person reserved it, and no job starts there.
    """
    name: str
    """The name of the job, or of the reservation."""
    job: str | None
    """The waiting job, or the array of which a member waits; null for other kinds."""
    project: str | None
    """The project that may use it; null if none may."""
    cluster: str
    nodes: list[str]
    """Each node once. Until the start, the scheduler may choose other nodes for a waiting job."""
    start: Time
    end: Time | None
    """Expected end; null if it is not known."""
    by: str | None = None
    """The person who reserved it; null if it is for a waiting job."""
    missing: list[str] = []
    """Those of its nodes that have left, or accept no work now."""
    running: list[str] = []
    """Jobs of others that run there although it has begun; they are left to end."""


class ReservationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes to reserve. Set one of `nodes`, `names` and `all`, and either `project` or `maintenance`."""

    start: Annotated[str, Meta(min_length=1, max_length=100)]
    """RFC 3339 with a time zone, `now`, or from now on such as `+2h`."""
    length: Annotated[str, Meta(min_length=1, max_length=100)]
    """Such as 2h or 1h30m."""
    nodes: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """How many nodes; the scheduler chooses them."""
    names: Annotated[list[str], Meta(max_length=100_000)] = []
    """Which nodes."""
    all: bool = False
    """All nodes that the cluster has now."""
    project: str | None = None
    """The project whose jobs may run there."""
    maintenance: bool = False
    """No job starts there."""
    cluster: str | None = None
    """Default: the first cluster that has such nodes."""
    within: str | None = None
    """Level, such as rack: all nodes are in one rack."""
    needs: Annotated[list[str], Meta(max_length=100)] = []
    """Words that each node must offer."""
    name: str | None = None
    """Default: the project and the start."""
    ignore_jobs: bool = False
    """Reserve nodes even if jobs may still run there at the start. They are left to end."""
    dry_run: bool = False
    """Only tell which nodes would be reserved."""


class ReservationRef(Struct, frozen=True, forbid_unknown_fields=True):
    """An advance reservation, by its name."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]


class Ids(Struct, frozen=True, omit_defaults=True):
    """Jobs that were submitted or changed, in the order of the request."""

    jobs: list[str]
    warnings: list[str] = []
    """What they ask for and what has no effect on this server, such as a priority that the order ignores."""


class Action(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An action on jobs, all or none, or on what is in certain states."""

    act: Literal["cancel", "hold", "release", "requeue"]
    jobs: Annotated[list[Ref], Meta(min_length=1, max_length=100_000)]
    """Ids, unique prefixes or unique names."""
    states: list[Literal["HELD", "QUEUED", "PLACED", "RUNNING"]] = []
    """Act only on what is in these states, also within arrays, and leave out what is not; empty acts on all or none."""
    dry_run: bool = False
    """Whether to answer what would change, and change nothing."""


class Rerun(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to submit again, all or none, with the same specs."""

    jobs: Annotated[list[Ref], Meta(min_length=1, max_length=10_000)]
    """Ids, unique prefixes or unique names, of jobs in any state; a member of an array runs under its index."""
    failed: bool = False
    """Whether to run only what failed or reached its walltime: of arrays those members, under their indexes."""
    changes: dict[str, Any] = field(default_factory=dict)
    """`metadata` and `spec` of a job file with the fields that differ, for all of the jobs."""
    empty_state: bool = False
    """Whether jobs with `keep_state` begin with empty folders; else with those that they left when they ended."""


class ResultsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Which results to get, and how long to wait for the first."""

    members: Annotated[str, Meta(min_length=1, max_length=200_000)] | None = None
    """Indexes of an array, such as `0-99,105`; null if the job is not an array."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    timeout: Annotated[float, Meta(ge=0, le=60)] = 0.0
    """Seconds to wait while none of them has ended."""


class ResultsOfJobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose results to get, and how long to wait for the first."""

    jobs: Annotated[list[Ref], Meta(min_length=1, max_length=10_000)]
    """Full ids of jobs that are not arrays."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    timeout: Annotated[float, Meta(ge=0, le=60)] = 0.0
    """Seconds to wait while none of them has ended."""


class ResultView(Struct, frozen=True):
    """How a job ended, and the value that a Python call returned."""

    id: str
    state: str
    exit_code: int | None
    signal: int | None
    reason: ReasonView | None
    value: bytes | None
    """What it returned or raised, in Base64: plain data as JSON, else pickled; null if it is missing or large."""
    value_digest: str | None
    """Digest of the blob with the value if it is large; else null."""


class ResultPage(Struct, frozen=True):
    """Results of the jobs that have ended, by index."""

    results: list[ResultView]


class Patch(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes to a job that waits, or to the walltime of one that runs."""

    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    metadata: dict[str, Any] = {}
    """Fields of a job file: `name`."""
    spec: dict[str, Any] = {}
    """Fields of a job file: `walltime`, `resources`, `estimate`, `deadline`, `queue`, `after` and `priority`, null to
    remove one; and of an array `throttle`, the most members at a time, 0 for all.
    """


class Forecast(Struct, frozen=True):
    """Where and when a job would start, computed by the scheduler on its current state."""

    name: str
    cluster: str | None
    """Where it would start now, or spill over to; null if unknown."""
    node: str | None
    """Null if it would not start now."""
    starts_at: Time | None
    """Now if there is room, else when it would spill over; null if unknown."""
    reason: ReasonView
    cost: float | None
    """Estimated cost; null if its cluster is unknown."""
    spills_at: Time | None
    estimate_s: float | None
    estimated_cost: float | None = None
    """Expected cost where it would start, else on the cheapest rented cluster; null if it cannot be rented."""
    cost_at_walltime: float | None = None
    """Highest possible cost: walltime, grace and 30 s to end. Caps hold this amount. Null without a walltime."""
    given_walltime_s: float | None = None
    """Walltime that its cap would allow; null if it has a walltime of its own, or no cap."""
    note: str | None = None
    """A warning that it would hold the rest of a budget because it has no walltime; usually null."""
    expected_start: ExpectedStart | None = None
    """When it would start; null if the server does not know."""
    nodes: int = 0
    """The number of nodes on which the tasks of a gang would start now; `node` is that of the first. 0 for other jobs."""


class Forecasts(Struct, frozen=True, omit_defaults=True):
    """One forecast for each job, in the order of the request."""

    jobs: list[Forecast]
    warnings: list[str] = []
    """As for submitted jobs."""


class CheckRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a job file or script to check."""

    text: Annotated[str, Meta(max_length=262_144)]
    name: Annotated[str, Meta(max_length=200)] = "job.yaml"
    """Name of the file; its ending says which language a script is in."""
    forecast: bool = False
    """Whether to ask the scheduler too where and when the jobs would start."""


class TextProblem(Struct, frozen=True):
    """One problem of a text."""

    line: int | None
    """Counted from 1; null if it concerns the whole."""
    path: str
    """The field, such as `spec.resources.cpu`; empty for the whole."""
    message: str


class CheckView(Struct, frozen=True):
    """What is wrong with a text, or the jobs in it."""

    problems: list[TextProblem]
    """By line. Empty if the jobs can be submitted."""
    more: int
    """Problems beyond these."""
    jobs: list[dict[str, Any]]
    """The jobs as documents that `POST /v1/jobs` takes; empty if there are problems."""
    warnings: list[TextProblem]
    """What is ignored, and the jobs run without it."""
    forecasts: list[Forecast] | None = None
    """One for each job; null if there are problems, or if none was asked for."""


class FileView(Struct, frozen=True):
    """One output file of a job."""

    path: str
    """Relative to its working directory."""
    digest: str
    """Digest of the blob with its content."""
    size: int
    executable: bool


class FilesView(Struct, frozen=True):
    """Output files of an attempt of a job."""

    job: str
    attempt: int | None
    """Null if no attempt returned files."""
    attempts: list[int]
    """Attempts that returned files."""
    files: list[FileView]


class Digests(Struct, frozen=True, forbid_unknown_fields=True):
    """Blobs, by the SHA-256 of their bytes."""

    digests: Annotated[list[Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]], Meta(max_length=100_000)]


class BlobKept(Struct, frozen=True):
    """A blob that the server has stored."""

    digest: str
    fresh: bool
    """False if the server had it already."""
