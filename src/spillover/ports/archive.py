"""Finished jobs: a projection of the journal with a revision of its own, read by people and by back-tests."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms


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


class Query(Struct, frozen=True):
    """Which finished jobs; newest submission first."""

    state: str | None = None
    project: str | None = None
    user: str | None = None
    name: str | None = None
    since: int | None = None
    """Submitted at or after, nanoseconds UTC."""
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

    async def find(self, prefix: str, limit: int) -> list[JobId]:
        """Ids that start so (members only when the prefix has a dot), newest first."""
        ...

    async def keyed(self, keys: Sequence[str]) -> dict[str, Finished]:
        """Jobs that were submitted under these keys."""
        ...

    async def list(self, query: Query) -> list[Finished]:
        """Newest submission first; for equal numbers by id."""
        ...

    async def count(self) -> int:
        """How many are there."""
        ...

    async def forget(self, before: int, epoch: int) -> int:
        """Drop jobs that finished before a time; returns how many."""
        ...
