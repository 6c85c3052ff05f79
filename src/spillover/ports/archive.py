"""The archive of ended jobs, which users and backtests read."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from spillover.core.events import Evidence
from spillover.model.bounds import bounded
from spillover.model.budget import CostBy, Per, UsageBy, period_of
from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms
from spillover.model.resources import Resources
from spillover.model.units import SECOND

Payment: TypeAlias = tuple[int, str, int]
"""End of an attempt (nanoseconds UTC), its cluster, and its cost (millionths)."""
Earlier: TypeAlias = tuple[int, str, int, int]
"""End of an attempt (nanoseconds UTC), its cluster, its runtime (nanoseconds) and its number of tasks."""
ProjectKey: TypeAlias = tuple[str, str]
"""A project and one of its idempotency keys."""
COST_BY: Final[tuple[CostBy, ...]] = ("project", "user", "cluster", "day", "week", "month")


class Finished(Struct, frozen=True):
    """An ended job, or an ended member of an array, with everything that a backtest needs."""

    job: JobId
    number: int
    """Order of submission; members share the number of their array."""
    name: str
    user: str
    project: str
    queue: str
    priority: int
    state: str
    submitted: int
    started: int | None
    finished: int
    cluster: str | None
    node: str | None
    attempt: int
    exit_code: int | None
    signal: int | None
    cost: int
    spec: bytes
    """Digest of the spec."""
    shape: Shape
    terms: Terms
    why: bytes | None
    """Encoded reason for its end; None for a success."""
    placed_why: bytes | None
    """Encoded reason for its placement; None if it never ran."""
    usage: tuple[int, int, int]
    """Runtime (ns), CPU time (ns) and peak memory (bytes)."""
    key: str | None = None
    body: bytes = b""
    deadline: int | None = None
    not_before: int | None = None
    array: bytes | None = None
    """Encoded counts of members by state; None if it is not an array."""
    predicted: int | None = None
    """Runtime predicted from similar jobs at submission, in nanoseconds; None if unknown or not predicted."""
    paid: tuple[Payment, ...] = ()
    """Costs of attempts before the last; those that cost nothing are left out."""
    ready: int | None = None
    """Since when it could have been placed, nanoseconds UTC; None if it was never placed or this was not recorded."""
    value: bytes = b""
    """What a Python call returned or raised, if it is small."""
    value_digest: str = ""
    """Digest of the blob with that value, if it is large."""
    outputs: tuple[tuple[int, str], ...] = ()
    """Attempts with output files, each with the digest of their list."""
    tasks: bytes | None = None
    """Encoded tasks of the last attempt of a gang; None for other jobs."""
    tried: tuple[Earlier, ...] = ()
    """Attempts before the last that ran; unknown for jobs that ended before this was recorded."""
    evidence: Evidence | None = None
    """What the predicted runtime rests on; None also for jobs that ended before this was recorded."""
    gpu: tuple[int, int, int] = (0, 0, 0)
    """For how long its GPUs were busy (ns), of how much time of them that is known (ns), and the peak memory of one
    (bytes); zeros if it was not measured."""


class Spent(Struct, frozen=True):
    """The costs of one project, user, cluster, day, week or month."""

    key: str
    """Name, or date such as 2027-01-31 for a day, 2027-W04 for a week and 2027-01 for a month."""
    amount: int
    """Millionths."""
    jobs: int
    """Number of jobs with costs."""


class Amounts(Struct, frozen=True, array_like=True):
    """What attempts asked for, for as long as they ran, and how much of that was not used."""

    cpu: int = 0
    """Asked: thousandths of a CPU, times seconds."""
    gpu: int = 0
    """Asked: thousandths of a GPU, times seconds."""
    memory: int = 0
    """Asked: MiB, times seconds."""
    cpu_measured: int = 0
    """The part of `cpu` in attempts whose use of CPUs was measured."""
    cpu_unused: int = 0
    """The part of `cpu_measured` that was not used."""
    memory_measured: int = 0
    """The part of `memory` in attempts whose peak was measured."""
    memory_unused: int = 0
    """The part of `memory_measured` above the peak."""
    gpu_measured: int = 0
    """The part of `gpu` in attempts whose use of GPUs was measured."""
    gpu_unused: int = 0
    """The part of `gpu_measured` for which they were not busy."""

    def __add__(self, more: "Amounts") -> "Amounts":
        return Amounts(*map(sum, zip(astuple(self), astuple(more), strict=True)))


class Spell(Struct, frozen=True):
    """One attempt, as usage counts it."""

    job: JobId
    at: int
    """Its end, nanoseconds UTC."""
    project: str
    user: str
    queue: str
    cluster: str
    last: bool
    """Whether it is the last attempt of its job, for which the job counts."""
    amounts: Amounts
    peak: int = 0
    """Peak memory of a task in bytes; 0 if unknown."""
    cost: int = 0
    """Millionths."""


class Used(Struct, frozen=True):
    """What attempts on one cluster used, of one group."""

    keys: tuple[str, ...]
    """In the order of the question: names, or dates as in `Spent`."""
    cluster: str
    jobs: int
    amounts: Amounts
    peak: int
    """Highest peak memory of a task in bytes; 0 if unknown."""
    cost: int


class UsageQuery(Struct, frozen=True):
    """Selects attempts of ended jobs, and groups them."""

    by: tuple[UsageBy, ...] = ()
    since: int | None = None
    """Ended at or after, nanoseconds UTC; None for any time."""
    without: Sequence[str] = ()
    """Jobs to leave out."""
    project: str | None = None
    array: JobId | None = None
    """Only members of this array."""


def listed(number: int, job: str) -> tuple[int, int, str]:
    """Return the sort key of a job in lists; members share a number, and the length of the id puts .2 before .10."""
    return -number, len(job), job


class Query(Struct, frozen=True):
    """Selects ended jobs; newest submission first."""

    state: str | None = None
    project: str | None = None
    user: str | None = None
    name: str | None = None
    since: int | None = None
    """Submitted at or after, nanoseconds UTC; None for any time."""
    until: int | None = None
    """Submitted before, nanoseconds UTC; None for any time."""
    ended_since: int | None = None
    """Ended at or after, nanoseconds UTC; None for any time."""
    before: tuple[int, str] | None = None
    """Only jobs after this (number, job) in the list; None starts at its head."""
    limit: int = 100
    members: bool = False
    """Whether to list members of arrays."""
    queue: str | None = None
    number: int | None = None
    """Only the job with this number; an array and its members share one."""


class Archive(Protocol):
    """Stores ended jobs until their retention is over."""

    async def put(self, jobs: Sequence[Finished], epoch: int) -> None:
        """Store ended jobs in one commit, and replace those that exist. Raises Fenced under a newer epoch."""
        ...

    async def get(self, job: JobId) -> Finished | None:
        """Return the job with a full id; None if there is none."""
        ...

    async def some(self, jobs: Sequence[JobId]) -> dict[JobId, Finished]:
        """Return those of these jobs that exist, by full id."""
        ...

    async def find(self, prefix: str, limit: int, project: str | None = None) -> list[JobId]:
        """Return ids with a prefix, newest first; members only if it has a dot, and one project only if it is given."""
        ...

    async def keyed(self, keys: Sequence[ProjectKey]) -> dict[ProjectKey, Finished]:
        """Return jobs by their keys; the newest job if a key was used again."""
        ...

    async def list(self, query: Query) -> list[Finished]:
        """Return selected jobs, newest submission first; an array precedes its members, which are ordered by index."""
        ...

    async def costs(
        self, by: CostBy, since: int | None, without: Sequence[str], project: str | None = None
    ) -> Sequence[Spent]:
        """Return costs by key of attempts that ended at or after a time (None: all), except of jobs in `without`.

        A given project limits them to its jobs. An attempt counts for the cluster that it ran on, and for the day,
        ISO 8601 week or month, in UTC, in which it ended.
        """
        ...

    async def usage(self, query: UsageQuery) -> Sequence[Used]:
        """Return sums over attempts, by the asked keys and by cluster; sorted by both."""
        ...

    async def count(self) -> int:
        """Return the number of jobs."""
        ...

    async def forget(self, before: int, epoch: int, but: Collection[int] = ()) -> int:
        """Delete jobs that ended before a time, except those with these numbers; return how many."""
        ...


def payments(job: Finished) -> list[Payment]:
    """Return what each attempt of a job cost, where and when; empty for an array, whose members have the costs."""
    if job.array is not None:
        return []
    last = job.cost - sum(amount for _, _, amount in job.paid)
    return (
        [*job.paid, (job.finished, job.cluster, last)]
        if last > 0 and job.cluster is not None
        else [*job.paid]
    )


def spells(job: Finished) -> list[Spell]:
    """Return the attempts of a job that ran or cost something; empty for an array, whose members have them."""
    if job.array is not None:
        return []
    found: list[Spell] = []

    def add(
        at: int, cluster: str, amounts: Amounts, peak: int = 0, cost: int = 0, *, last: bool = False
    ) -> None:
        found.append(Spell(job.job, at, job.project, job.user, job.queue, cluster, last, amounts, peak, cost))

    for at, cluster, ran, tasks in job.tried:
        add(at, cluster, asked(job.shape.sized(tasks).total, ran))
    for at, cluster, amount in job.paid:
        add(at, cluster, Amounts(), cost=amount)
    if job.cluster is not None:
        ran, cpu, peak = job.usage
        cost = job.cost - sum(amount for _, _, amount in job.paid)
        if job.started is not None or ran or cost > 0:
            add(
                job.finished,
                job.cluster,
                used_of(job.shape, ran, cpu, peak, job.gpu),
                peak,
                max(0, cost),
                last=True,
            )
    return found


def key_of(spell: Spell, by: UsageBy) -> str:
    """Return the group that an attempt counts under: a name, or the label of a day, week or month in UTC."""
    match by:
        case "project":
            return spell.project
        case "user":
            return spell.user
        case "cluster":
            return spell.cluster
        case "queue":
            return spell.queue
        case "day" | "week" | "month":
            return period_of(Per(by), spell.at).label


def summed(by: Sequence[UsageBy], found: Iterable[Spell]) -> list[Used]:
    """Return sums over attempts, by keys and by cluster; sorted by both."""
    sums: dict[tuple[str, ...], Used] = {}
    for spell in found:
        keys = tuple(key_of(spell, each) for each in by)
        old = sums.get((*keys, spell.cluster)) or Used(keys, spell.cluster, 0, Amounts(), 0, 0)
        sums[*keys, spell.cluster] = Used(
            keys,
            spell.cluster,
            old.jobs + spell.last,
            old.amounts + spell.amounts,
            max(old.peak, spell.peak),
            old.cost + spell.cost,
        )
    return [used for _, used in sorted(sums.items())]


def asked(resources: Resources, ran: int) -> Amounts:
    """Return what an attempt asked for, of whose use nothing is known."""
    return Amounts(
        bounded(resources.cpu * ran // SECOND),
        bounded(resources.gpu * 1000 * ran // SECOND),
        bounded(resources.memory * ran // (SECOND << 20)),
    )


def used_of(shape: Shape, ran: int, cpu: int, peak: int, gpus: tuple[int, int, int] = (0, 0, 0)) -> Amounts:
    """Return what an attempt asked for, and what it left unused as far as that was measured.

    The peak is that of the largest task. In a gang of unlike tasks that says nothing about the others.
    """
    whole = asked(shape.total, ran)
    unused_cpu = unused_memory = 0
    if cpu:
        unused_cpu = max(0, whole.cpu - cpu * 1000 // SECOND)
    knows_memory = bool(peak and whole.memory and not shape.groups and shape.rest is None)
    if knows_memory:
        unused_memory = bounded(max(0, shape.resources.memory - peak) * shape.tasks * ran // (SECOND << 20))
    return Amounts(
        whole.cpu,
        whole.gpu,
        whole.memory,
        whole.cpu if cpu else 0,
        unused_cpu,
        whole.memory if knows_memory else 0,
        min(unused_memory, whole.memory),
        gpu_measured := min(whole.gpu, bounded(gpus[1] * 1000 // SECOND)),
        bounded(max(0, gpu_measured - gpus[0] * 1000 // SECOND)),
    )
