"""The audit: what people did, kept for longer than the events that say it.

An entry holds the sentence of its event, not the event: it needs no decoder of an old release, and never holds what an
event hides. Entries follow the journal in order, and none is missing up to `audited`.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class AuditEntry(Struct, frozen=True):
    """Something that a person did."""

    revision: int
    """Of its event."""
    at: int
    """Nanoseconds UTC. Never before that of an earlier revision."""
    user: str
    type: str
    """The type of its event."""
    job: str
    """Empty if it is not about a job."""
    project: str
    """Empty if it is not about a project."""
    text: str


class AuditQuery(Struct, frozen=True):
    """Selects entries, newest first."""

    user: str | None = None
    type: str | None = None
    job: str | None = None
    """A job; of an array, also its members."""
    project: str | None = None
    since: int | None = None
    """At or after, nanoseconds UTC; None for any time."""
    until: int | None = None
    """Before, nanoseconds UTC; None for any time."""
    before: int | None = None
    """Only entries of earlier revisions; None for all."""
    limit: int = 100

    def selects(self, entry: AuditEntry) -> bool:
        """Return whether an entry is asked for."""
        return (
            self.user in {None, entry.user}
            and self.type in {None, entry.type}
            and self.project in {None, entry.project}
            and (self.job is None or entry.job == self.job or entry.job.startswith(f"{self.job}."))
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
            and (self.before is None or entry.revision < self.before)
        )


class Audit(Protocol):
    """Stores what people did until its retention is over."""

    async def audited(self) -> int:
        """Return the last revision whose event was looked at."""
        ...

    async def put(self, after: int, upto: int, entries: Sequence[AuditEntry], epoch: int) -> None:
        """Add the entries of a span of revisions, in order; raise Moved unless it starts where the last one ended.

        The span must be in the journal.
        """
        ...

    async def list(self, query: AuditQuery) -> list[AuditEntry]:
        """Return selected entries, newest first."""
        ...

    async def forget(self, before: int, epoch: int) -> int:
        """Delete entries from before a time; return how many."""
        ...
