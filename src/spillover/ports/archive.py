"""The archive of ended jobs, which users and backtests read."""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from spillover.model.budget import CostBy
from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms

Payment: TypeAlias = tuple[int, str, int]
"""End of an attempt (nanoseconds UTC), its cluster, and its cost (millionths)."""
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


class Spent(Struct, frozen=True):
    """The costs of one project, user, cluster, day, week or month."""

    key: str
    """Name, or date such as 2027-01-31 for a day, 2027-W04 for a week and 2027-01 for a month."""
    amount: int
    """Millionths."""
    jobs: int
    """Number of jobs with costs."""


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

    async def count(self) -> int:
        """Return the number of jobs."""
        ...

    async def forget(self, before: int, epoch: int) -> int:
        """Delete jobs that ended before a time; return how many."""
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
