"""Bodies about jobs: submissions, lists, changes, results and files."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import JobDoc

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
    """GPU seconds: GPUs times runtime."""
    members: int = 0
    """Members of an array that have run, of which these are sums; 0 for other jobs."""
    hints: list[str] = field(default_factory=list)
    """What to ask for next time, if much was wasted."""
    gpu: float | None = None
    """Part of the time for which its GPUs were busy; null if it was not measured."""
    gpu_used_s: float = 0.0
    """GPU seconds for which they were busy, of those that were measured."""
    gpu_memory_used: int | None = None
    """Most bytes in use of one GPU; null if it was not measured, and for arrays."""


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
