"""Finished jobs: a projection of the journal with a revision of its own, read by people and by back-tests."""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from spillover.model.budget import CostBy
from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms

Payment: TypeAlias = tuple[int, str, int]
"""When an attempt was over (nanoseconds UTC), the cluster it ran on, and what it cost (millionths)."""
ProjectKey: TypeAlias = tuple[str, str]
"""A project, and an idempotency key of it."""
COST_BY: Final[tuple[CostBy, ...]] = ("project", "user", "cluster", "day", "week", "month")


class Finished(Struct, frozen=True):
    """One ended job, or one ended member of an array, with all that a back-test needs."""

    job: JobId
    number: int
    """Order of submission; members share their array's."""
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
    """Digest."""
    shape: Shape
    terms: Terms
    why: bytes | None
    """The encoded reason it ended; None for a success."""
    placed_why: bytes | None
    """The encoded reason it ran where it did; None if it never ran."""
    usage: tuple[int, int, int]
    """ran, cpu (ns) and peak_memory (bytes)."""
    key: str | None = None
    body: bytes = b""
    deadline: int | None = None
    not_before: int | None = None
    array: bytes | None = None
    """For an array: its encoded summary by state."""
    predicted: int | None = None
    """Nanoseconds that jobs like it had run when it was submitted; None if that was not asked for, or not known."""
    paid: tuple[Payment, ...] = ()
    """What attempts before the last one cost; those that cost nothing are left out."""
    ready: int | None = None
    """Since when it could have been placed, nanoseconds UTC; None if it never was placed, or if that was not noted."""
    value: bytes = b""
    """What a Python call returned or raised, if it is small."""
    value_digest: str = ""
    """The blob with that if it is not."""
    outputs: tuple[tuple[int, str], ...] = ()
    """Attempts that brought files back, each with the blob that lists them."""
    tasks: bytes | None = None
    """For a gang: its encoded tasks, of the last attempt."""


class Spent(Struct, frozen=True):
    """What was spent on one project, by one user, on one cluster or in one day, week or month."""

    key: str
    """Its name; of a day its date, as 2027-01-31, of a week 2027-W04, of a month 2027-01."""
    amount: int
    """Millionths."""
    jobs: int
    """Jobs that were paid for."""


def listed(number: int, job: str) -> tuple[int, int, str]:
    """Sorts jobs as they are listed; a member has the number of its array, so that its length tells .2 from .10."""
    return -number, len(job), job


class Query(Struct, frozen=True):
    """Which finished jobs; newest submission first."""

    state: str | None = None
    project: str | None = None
    user: str | None = None
    name: str | None = None
    since: int | None = None
    """Submitted at or after, nanoseconds UTC."""
    until: int | None = None
    """Submitted before, nanoseconds UTC."""
    ended_since: int | None = None
    """Finished at or after, nanoseconds UTC."""
    before: tuple[int, str] | None = None
    """Only what comes after (number, job) in the listing."""
    limit: int = 100
    members: bool = False
    """Whether members of arrays are listed; they are always found by id."""


class Archive(Protocol):
    """Where ended jobs stay until their retention is over."""

    async def put(self, jobs: Sequence[Finished], epoch: int) -> None:
        """Store ended jobs in one commit; putting one again replaces it. Raises Fenced under a newer epoch."""
        ...

    async def get(self, job: JobId) -> Finished | None:
        """One job by its full id."""
        ...

    async def some(self, jobs: Sequence[JobId]) -> dict[JobId, Finished]:
        """Those of these jobs that are there, by their full ids."""
        ...

    async def find(self, prefix: str, limit: int, project: str | None = None) -> list[JobId]:
        """Ids that start so (members only when the prefix has a dot), newest first; of one project if it is given."""
        ...

    async def keyed(self, keys: Sequence[ProjectKey]) -> dict[ProjectKey, Finished]:
        """Jobs that were submitted under these keys of projects; the newest where one was used again."""
        ...

    async def list(self, query: Query) -> list[Finished]:
        """Newest submission first; an array before its members, and those by their index."""
        ...

    async def costs(
        self, by: CostBy, since: int | None, without: Sequence[str], project: str | None = None
    ) -> Sequence[Spent]:
        """What attempts cost that were over at or after a time (None: all), by key; without those of some jobs.

        Of one project if it is given.

        An attempt counts to the cluster that it ran on and to the day, week (of ISO 8601) or month, in UTC, in which it was over.
        """
        ...

    async def count(self) -> int:
        """How many are there."""
        ...

    async def forget(self, before: int, epoch: int) -> int:
        """Drop jobs that finished before a time; returns how many."""
        ...


def payments(job: Finished) -> list[Payment]:
    """What each attempt of a job cost, where and when; none for an array, whose members paid."""
    if job.array is not None:
        return []
    last = job.cost - sum(amount for _, _, amount in job.paid)
    return (
        [*job.paid, (job.finished, job.cluster, last)]
        if last > 0 and job.cluster is not None
        else [*job.paid]
    )
