"""Finds the job that a user means by an id, a unique prefix, or a name; live or archived.

A name means the only job with it that has not ended, or if all have ended, the newest. So it goes on to mean one job
after that was run again, and never picks one of several that could still be changed.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator
from itertools import islice
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.control.live.loop import Loop
from spillover.core.deciders.changes import pending_member
from spillover.core.deciders.endings import ITSELF
from spillover.core.events import JobState, MembersDropped
from spillover.core.records.jobs import Ended, Job
from spillover.core.state import START, State
from spillover.deciding.explain.explain import explain_member
from spillover.model import ranges
from spillover.model.ids import JobId, is_name, member_id, split_member
from spillover.model.job import Range
from spillover.model.reasons import CancelledBy, PastDeadline, Reason
from spillover.ports.archive import Archive, Finished, Query
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.journal import encode_reason

PAGE: Final = 2000
"""Members to read from the archive at once."""
MOST_NAMED: Final = 5
"""The most jobs to list if several match."""
MOST_ALIKE: Final = 10_000
"""The most jobs with one name in the state, of which others may be archived, to look for one that has not ended."""


class PendingMember(Struct, frozen=True):
    """A member of an array that is not a separate job yet."""

    array: Job
    index: int
    reason: Reason | None = None
    """Why it waits for a member of another array; None if its array says why it waits."""

    @property
    def state(self) -> JobState:
        """The state that users see."""
        return self.array.state if self.reason is None else JobState.HELD

    @property
    def id(self) -> JobId:
        """Its id once it is placed."""
        return member_id(self.array.id, self.index)


Found: TypeAlias = Job | Finished | PendingMember


def id_of(found: Found) -> JobId:
    """Return the id of a found job."""
    return found.job if isinstance(found, Finished) else found.id


def project_of(found: Found) -> str:
    """Return the project of a found job."""
    if isinstance(found, Finished):
        return found.project
    return (found.array if isinstance(found, PendingMember) else found).kind.project


Dropped: TypeAlias = Callable[[JobId, int], Awaitable[MembersDropped | None]]
"""Returns the event by which a member of an array ended before it was placed; None if there is none."""


class Lookup:
    """Finds jobs in the state and the archive."""

    def __init__(
        self, loop: Loop, archive: Archive, project: str | None = None, dropped: "Dropped | None" = None
    ) -> None:
        self._loop = loop
        self._archive = archive
        self.project = project
        """The only project to search; None means all."""
        self._dropped = dropped
        """Finds what became of members that were never placed, in history; None finds none."""

    def within(self, project: str | None) -> "Lookup":
        """Return a lookup that is limited to a project."""
        return Lookup(self._loop, self._archive, project, self._dropped)

    async def knows(self, job: JobId) -> bool:
        """Return whether a job with this full id exists."""
        return await self._exact(job) is not None

    async def find(self, ref: str) -> Found:
        """Return the job that a reference means; raise CommandError if none or several match."""
        if not is_name(ref):  # some stores do not accept every text
            raise _unknown(ref)
        found = await self._exact(JobId(ref))
        if found is not None:
            return found
        array, dot, index = ref.rpartition(".")
        if dot and is_index(index) and (member := await self._member(array, int(index))) is not None:
            return member
        return await self._guess(ref)

    async def live(self, ref: str) -> Job | PendingMember:
        """Return a job that can still be changed; raise CommandError if it is archived."""
        found = await self.find(ref)
        if isinstance(found, Finished):
            raise CommandError(
                ErrorKind.CONFLICT, f"{found.job} has ended ({found.state}) and cannot be changed"
            )
        return found

    async def _exact(self, job_id: JobId) -> Found | None:
        """Return the job with a full id; None if there is none."""
        state = (await self._loop.read()).state
        found: Found | None
        if (job := state.jobs.get(job_id)) is not None:
            found = job
        elif (found := _pending(state, job_id)) is not None:
            pass
        else:
            found = await self._archive.get(job_id) or await self._never_placed(state, job_id)
        return found if found is not None and self._is_ours(project_of(found)) else None

    async def _never_placed(self, state: State, job_id: JobId) -> Finished | None:
        """Return a member that ended before it was placed, if history still has that; None if there is none."""
        split = split_member(job_id)
        if split is None or self._dropped is None:
            return None
        array = state.jobs.get(split[0]) or await self._archive.get(split[0])
        if array is None or not is_array(array):
            return None
        event = await self._dropped(*split)
        return None if event is None else _ended_unplaced(array, job_id, event)

    def _is_ours(self, project: str) -> bool:
        """Return whether this lookup covers a project."""
        return self.project is None or project == self.project

    async def _member(self, array: str, index: int) -> Found | None:
        """Return a member of an array that is given by prefix or name; None if there is none."""
        try:
            found = await self._exact(JobId(array)) or await self._guess(array)
        except CommandError as error:
            if error.kind is ErrorKind.UNKNOWN:
                return None
            raise
        member = await self._exact(member_id(id_of(found), index))
        if member is None and is_array(found):
            message = f"{member_id(id_of(found), index)} is not a member of the array, or was dropped before it started"
            raise CommandError(ErrorKind.UNKNOWN, message)
        return member

    async def _guess(self, ref: str) -> Job | Finished:
        """Return the job that matches a prefix or a name; raise CommandError if none or several do."""
        state = (await self._loop.read()).state
        more = MOST_NAMED + 1  # one more than are listed, to say so
        found: dict[JobId, Job | None] = {}
        for job in _starting(state, ref):
            if self._is_ours(job.kind.project):
                found[job.id] = job
                if len(found) == more:
                    break
        if len(ref) >= START and len(found) < more:
            for each in await self._archive.find(ref, more, self.project):
                found.setdefault(each, None)
        for job_id, live in await self._named(state, ref):
            found.setdefault(job_id, live)
        if len(found) > 1:
            raise await self._ambiguous(ref, found)
        for job_id, live in found.items():
            result = live if live is not None else await self._archive.get(job_id)
            if result is not None:
                return result
        raise _unknown(ref)

    async def _named(self, state: State, name: str) -> list[tuple[JobId, Job | None]]:
        """Return the jobs that a name may mean: those that have not ended, or else the newest."""
        newest: Job | None = None
        unended: list[Job] = []
        called = [state.jobs[each] for each in islice(state.called(name, self.project), MOST_ALIKE + 1)]
        for job in called:
            if type(job.phase) is not Ended:
                unended.append(job)
                if len(unended) > MOST_NAMED:
                    break
            elif newest is None or job.number > newest.number:
                newest = job
        if unended:
            return [(job.id, job) for job in unended]
        if len(called) > MOST_ALIKE:
            raise CommandError(
                ErrorKind.AMBIGUOUS,
                f"more than {MOST_ALIKE:,} jobs that ended just now are called {name!r}; use the id",
            )
        archived = await self._archive.list(Query(name=name, project=self.project, limit=1))
        if archived and (newest is None or archived[0].number > newest.number):
            return [(archived[0].job, None)]
        return [] if newest is None else [(newest.id, newest)]

    async def _ambiguous(self, ref: str, found: dict[JobId, Job | None]) -> CommandError:
        """Return the error for a reference that matches several jobs, with those."""
        rows = await self._archive.some([each for each, live in found.items() if live is None])
        lines: list[str] = []
        for each, live in list(found.items())[:MOST_NAMED]:
            known = live if live is not None else rows.get(each)
            lines.append(each if known is None else f"{each} ({known.name}, {known.state})")
        others = " and others" if len(found) > MOST_NAMED else ""
        return CommandError(
            ErrorKind.AMBIGUOUS, f"{ref!r} matches several jobs: {', '.join(lines)}{others}; use the id"
        )


def _pending(state: State, job_id: JobId) -> PendingMember | None:
    """Return a member that is not a separate job yet; None if there is no such member."""
    if (found := pending_member(state, job_id)) is None:
        return None
    return PendingMember(*found, explain_member(state, *found))


def _ended_unplaced(array: Job | Finished, member: JobId, event: MembersDropped) -> Finished:
    """Return a member that ended before it was placed, as the archive would have it."""
    why: Reason | None = event.why
    if why is None and event.who != ITSELF:
        why = CancelledBy(event.who)
    elif why is None and event.state is JobState.TIMED_OUT:
        why = PastDeadline()
    return Finished(
        job=member,
        number=array.number,
        name=array.name,
        user=array.user,
        project=project_of(array),
        queue=array.queue if isinstance(array, Finished) else array.kind.queue,
        priority=array.priority,
        state=event.state,
        submitted=array.submitted,
        started=None,
        finished=event.at,
        cluster=None,
        node=None,
        attempt=1,
        exit_code=None,
        signal=None,
        cost=0,
        spec=array.spec,
        shape=array.shape,
        terms=array.terms,
        why=None if why is None else encode_reason(why),
        placed_why=None,
        usage=(0, 0, 0),
    )


def _unknown(ref: str) -> CommandError:
    """Return the error for a reference that matches no job."""
    short = f"; a prefix needs at least {START} letters" if len(ref) < START else ""
    return CommandError(ErrorKind.UNKNOWN, f"there is no job {ref[:80]!r}{short}; `spill ls` lists jobs")


def _starting(state: State, prefix: str) -> Iterator[Job]:
    """Yield jobs in the state whose ids start with a prefix."""
    if len(prefix) >= START:
        yield from (state.jobs[each] for each in state.starting(prefix))
    array, dot, _ = prefix.partition(".")
    if dot:
        members = state.members.get(JobId(array), ())
        yield from (state.jobs[each] for each in members if each.startswith(prefix))


def is_array(found: Found) -> bool:
    """Return whether a job is an array."""
    if isinstance(found, Finished):
        return found.array is not None
    return isinstance(found, Job) and found.extra.members is not None


async def ended_members(
    loop: Loop, archive: Archive, array: Found, states: Collection[JobState]
) -> ranges.Ranges:
    """Return the indexes of the members of an array that ended in one of these states."""
    # The state first. A member that is archived meanwhile is then in both, never in neither.
    prefix = f"{id_of(array)}."
    ended = await loop.scan(
        lambda jobs: [
            job.id
            for job in jobs
            if type(job.phase) is Ended and job.phase.state in states and job.id.startswith(prefix)
        ]
    )
    found = set(map(_index, ended))
    number = array.number if isinstance(array, Job | Finished) else array.array.number
    for wanted in sorted(states):
        before: tuple[int, str] | None = None
        while True:
            rows = await archive.list(
                Query(state=wanted, number=number, members=True, before=before, limit=PAGE)
            )
            found.update(_index(row.job) for row in rows if "." in row.job)
            if len(rows) < PAGE:
                break
            before = rows[-1].number, rows[-1].job
    return ranges.merged(Range(index, index) for index in found)


def _index(member: JobId) -> int:
    return int(member.rpartition(".")[2])


def is_index(text: str) -> bool:
    """Return whether a text can be the index of a member."""
    return text.isascii() and text.isdigit() and len(text) < 12


def is_among(job: JobId, dropped: MembersDropped) -> bool:
    """Return whether a job is among the dropped members, of which there may be a million."""
    member = split_member(job)
    return member is not None and member[0] == dropped.array and ranges.contains(dropped.members, member[1])
