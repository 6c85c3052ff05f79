"""How jobs change, as programs watch it: history as states of jobs, from a revision on and as it happens."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from spillover.control.lookup import Lookup, PendingMember, id_of
from spillover.control.loop import Loop
from spillover.control.projects import OwnHistory
from spillover.control.subscribers import Subscription
from spillover.control.views import reason_view
from spillover.core import ranges
from spillover.core.events import AnyEvent, JobState
from spillover.core.jobs import Ended, Job, Placed, Running, Spread
from spillover.core.transitions import TERMINAL
from spillover.model.ids import JobId, split_member
from spillover.ports.archive import Finished
from spillover.ports.commands import CommandError, ErrorKind, JobChange, JobChanges
from spillover.ports.journal import Journal
from spillover.wire.api import FieldProblem
from spillover.wire.journal import decode_event, decode_reason

MOST: Final = 500
"""Changes that are told at once."""


class Watching:
    """Jobs that somebody watches."""

    def __init__(self, loop: Loop, journal: Journal, lookup: Lookup, *, whole: bool = True) -> None:
        self._loop = loop
        self._journal = journal
        self._lookup = lookup
        self._own = None if whole else OwnHistory(lookup)
        """Finds what is of the project; None if all of history is."""
        self._left: dict[JobId, None] | None = None
        """Jobs that are watched and have not ended; None if all are watched."""
        self._named: frozenset[str] = frozenset()

    async def changes(self, after: int | None, refs: Sequence[str]) -> AsyncGenerator[JobChanges, None]:
        """What there is first, then what becomes of it."""
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
        """Tells of what may be of the jobs that are watched."""
        subscribers, project = self._loop.subscribers, self._lookup.project
        if jobs:
            return subscribers.to_jobs(jobs)
        return (
            subscribers.to_all() if self._own is None or project is None else subscribers.to_project(project)
        )

    async def _first(
        self, found: Sequence[Job | Finished | PendingMember], after: int | None
    ) -> tuple[JobChanges, int]:
        """The first answer, and the revision to go on from."""
        state = (await self._loop.read()).state
        now = self._loop.gate.durable
        if after is not None and after > now:
            told = f"revision {after} has not been reached; the last one is {now}"
            raise CommandError(ErrorKind.INVALID, told, [FieldProblem("after", told)])
        if not found:
            return JobChanges(now if after is None else after, []), now if after is None else after
        changes = [self._now(state.jobs.get(id_of(each)) or each, now) for each in found]
        self._named = frozenset(change.job for change in changes)
        self._left = {JobId(change.job): None for change in changes if change.state not in TERMINAL}
        if after is None or not self._left:  # nothing more will come of those that have ended
            return JobChanges(now, changes), now
        return JobChanges(after, []), after

    def _now(self, found: Job | Finished | PendingMember, revision: int) -> JobChange:
        """A job as it is."""
        match found:
            case PendingMember(array):
                return JobChange(revision, array.submitted, found.id, array.state, array.attempt)
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
        """What an event says of the jobs that are watched."""
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
        """Whether a job was named, or its array, or one of the members that a change is about."""
        job = change.job
        return (
            job in self._named or job.partition(".")[0] in self._named or bool(_dropped(change, self._named))
        )


def _dropped(change: JobChange, jobs: Iterable[str]) -> list[JobId]:
    """Those of some jobs that are members which were dropped."""
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
    """The states that an event brings jobs to, or in which it moves them."""
    return [
        JobChange(revision, at, job, state, attempt, cluster, node, code, signal, reason_view(why), members)
        for job, at, state, attempt, cluster, node, code, signal, why, members in event.reached()
    ]


def _forgotten(after: int) -> CommandError:
    return CommandError(
        ErrorKind.CONFLICT,
        f"history after revision {after} is not kept any more; watch without `after`, and look at jobs for what you missed",
    )
