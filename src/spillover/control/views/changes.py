"""Streams state changes of jobs to watching programs, from any revision on."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from spillover.control.live.loop import Loop
from spillover.control.live.subscribers import Subscription
from spillover.control.requests.lookup import Lookup, PendingMember, id_of
from spillover.control.requests.projects import OwnHistory
from spillover.control.views.jobs import reason_view
from spillover.core.events import AnyEvent, JobState
from spillover.core.records.jobs import Ended, Job, Placed, Running, Spread
from spillover.core.transitions import TERMINAL
from spillover.model import ranges
from spillover.model.ids import JobId, split_member
from spillover.ports.archive import Finished
from spillover.ports.commands import CommandError, ErrorKind, JobChange, JobChanges
from spillover.ports.journal import Journal
from spillover.wire.api import FieldProblem
from spillover.wire.journal import decode_event, decode_reason

MOST: Final = 500
"""Most changes in one message."""


class Watching:
    """One watch on some jobs, a project, or all jobs."""

    def __init__(self, loop: Loop, journal: Journal, lookup: Lookup, *, whole: bool = True) -> None:
        self._loop = loop
        self._journal = journal
        self._lookup = lookup
        self._own = None if whole else OwnHistory(lookup)
        """Filters history by project; None if the whole history is visible."""
        self._left: dict[JobId, None] | None = None
        """Watched jobs that have not ended; None if all jobs are watched."""
        self._named: frozenset[str] = frozenset()

    async def changes(self, after: int | None, refs: Sequence[str]) -> AsyncGenerator[JobChanges, None]:
        """Yield the current states first, then changes."""
        found = [await self._lookup.find(ref) for ref in refs]
        if after is not None and after + 1 < await self._journal.oldest():
            raise _forgotten(after)
        with self._subscribed([id_of(each) for each in found]) as news:
            first, at = await self._first(found, after)
            yield first
            while self._left is None or self._left:
                changes: list[JobChange] = []
                async for stored in self._journal.tail(at):
                    at = stored.revision
                    changes += await self._told(at, decode_event(stored.event))
                    if len(changes) >= MOST:
                        yield JobChanges(at, changes)
                        changes = []
                if changes:
                    yield JobChanges(at, changes)
                if self._left is None or self._left:
                    at = max(at, await news.wait())

    def _subscribed(self, jobs: Sequence[JobId]) -> AbstractContextManager[Subscription]:
        """Subscribe to events that may concern the watched jobs."""
        subscribers, project = self._loop.subscribers, self._lookup.project
        if jobs:
            return subscribers.to_jobs(jobs)
        return (
            subscribers.to_all() if self._own is None or project is None else subscribers.to_project(project)
        )

    async def _first(
        self, found: Sequence[Job | Finished | PendingMember], after: int | None
    ) -> tuple[JobChanges, int]:
        """Return the first message, and the revision to continue from."""
        state = (await self._loop.read()).state
        now = self._loop.gate.durable
        if after is not None and after > now:
            message = f"revision {after} is in the future; the latest is {now}"
            raise CommandError(ErrorKind.INVALID, message, [FieldProblem("after", message)])
        if not found:
            return JobChanges(now if after is None else after, []), now if after is None else after
        changes = [self._now(state.jobs.get(id_of(each)) or each, now) for each in found]
        self._named = frozenset(change.job for change in changes)
        self._left = {JobId(change.job): None for change in changes if change.state not in TERMINAL}
        if after is None or not self._left:  # ended jobs do not change any more
            return JobChanges(now, changes), now
        return JobChanges(after, []), after

    def _now(self, found: Job | Finished | PendingMember, revision: int) -> JobChange:
        """Return the current state of a job."""
        match found:
            case PendingMember(array):
                return JobChange(revision, array.submitted, found.id, found.state, array.attempt)
            case Finished():
                why = None if found.why is None else reason_view(decode_reason(found.why))
                return JobChange(
                    revision,
                    found.finished,
                    found.job,
                    JobState(found.state),
                    found.attempt,
                    found.cluster,
                    found.node,
                    found.exit_code,
                    found.signal,
                    why,
                )
            case Job():
                return _live(found, revision)

    async def _told(self, revision: int, event: AnyEvent) -> list[JobChange]:
        """Return the changes of watched jobs in an event, and drop ended jobs from the watch."""
        changes = changes_of(revision, event)
        if self._named:
            changes = [change for change in changes if self._is_watched(change)]
        if not changes:
            return []
        if self._own is not None:
            own = await self._own.part(event)
            known = {change.job for change in changes_of(revision, own)} if own is not None else ()
            changes = [change for change in changes if change.job in known]
        if self._left is not None:
            for change in [change for change in changes if change.state in TERMINAL]:
                for job in _dropped(change, self._left) if change.members else [JobId(change.job)]:
                    self._left.pop(job, None)
        return changes

    def _is_watched(self, change: JobChange) -> bool:
        """Return whether a change concerns a watched job, a member of a watched array, or a watched dropped member."""
        job = change.job
        return (
            job in self._named or job.partition(".")[0] in self._named or bool(_dropped(change, self._named))
        )


def _dropped(change: JobChange, jobs: Iterable[str]) -> list[JobId]:
    """Return the given jobs that a change lists as dropped members."""
    members = ((job, split_member(JobId(job))) for job in jobs)
    return [
        JobId(job)
        for job, member in members
        if member is not None and member[0] == change.job and ranges.contains(change.members, member[1])
    ]


def _live(job: Job, revision: int) -> JobChange:
    phase = job.phase
    match phase:
        case Ended():
            return JobChange(
                revision,
                phase.at,
                job.id,
                phase.state,
                job.attempt,
                phase.cluster,
                phase.node,
                phase.exit_code,
                phase.signal,
                reason_view(phase.why),
            )
        case Running():
            return JobChange(revision, phase.since, job.id, job.state, job.attempt, phase.cluster, phase.node)
        case Placed():
            return JobChange(revision, phase.at, job.id, job.state, job.attempt, phase.cluster, phase.node)
        case Spread():
            return JobChange(revision, phase.since, job.id, job.state, job.attempt)
        case _:
            return JobChange(revision, job.submitted, job.id, job.state, job.attempt)


def changes_of(revision: int, event: AnyEvent) -> list[JobChange]:
    """Return the states that jobs reach, or change within, through an event."""
    return [
        JobChange(revision, at, job, state, attempt, cluster, node, code, signal, reason_view(why), members)
        for job, at, state, attempt, cluster, node, code, signal, why, members in event.reached()
    ]


def _forgotten(after: int) -> CommandError:
    return CommandError(
        ErrorKind.CONFLICT,
        f"history after revision {after} was deleted; watch without `after`, and list jobs to see what you missed",
    )
