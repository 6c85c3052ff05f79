"""What a person means by JOB: an id, a unique prefix of one, or a unique name; live or in the archive."""

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from spillover.control.loop import Loop
from spillover.core import ranges
from spillover.core.deciders.changes import pending_member
from spillover.core.events import MembersDropped
from spillover.core.jobs import Job
from spillover.core.state import START, State
from spillover.model.ids import JobId, is_name, member_id, split_member
from spillover.ports.archive import Archive, Finished, Query
from spillover.ports.commands import CommandError, ErrorKind


class PendingMember(Struct, frozen=True):
    """A member of an array that is not a job of its own yet."""

    array: Job
    index: int

    @property
    def id(self) -> JobId:
        """The id that it will have."""
        return member_id(self.array.id, self.index)


Found: TypeAlias = Job | Finished | PendingMember


def id_of(found: Found) -> JobId:
    """The id of what was found."""
    return found.job if isinstance(found, Finished) else found.id


def project_of(found: Found) -> str:
    """The project of what was found."""
    if isinstance(found, Finished):
        return found.project
    return (found.array if isinstance(found, PendingMember) else found).kind.project


class Lookup:
    """Finds jobs."""

    def __init__(self, loop: Loop, archive: Archive, project: str | None = None) -> None:
        self._loop = loop
        self._archive = archive
        self.project = project
        """The only one whose jobs are found; None finds all."""

    def within(self, project: str | None) -> "Lookup":
        """The same for jobs of one project: there are no others for it."""
        return Lookup(self._loop, self._archive, project)

    async def knows(self, job: JobId) -> bool:
        """Whether there is a job of this full id."""
        return await self._exact(job) is not None

    async def find(self, ref: str) -> Found:
        """The job that is meant; raises if there is none, or several."""
        if not is_name(ref):  # nor may the archive be asked for anything: not every store takes every text
            raise CommandError(ErrorKind.UNKNOWN, f"there is no job {ref[:80]!r}; `spill ls` lists them")
        found = await self._exact(JobId(ref))
        if found is not None:
            return found
        array, dot, index = ref.rpartition(".")
        if dot and is_index(index) and (member := await self._member(array, int(index))) is not None:
            return member
        return await self._guess(ref)

    async def live(self, ref: str) -> JobId:
        """The id of a job that can still be changed."""
        found = await self.find(ref)
        if isinstance(found, Finished):
            raise CommandError(
                ErrorKind.CONFLICT, f"{found.job} has ended ({found.state}): it cannot be changed"
            )
        return found.id

    async def _exact(self, job_id: JobId) -> Found | None:
        """The job of a full id."""
        state = (await self._loop.read()).state
        found: Found | None
        if (job := state.jobs.get(job_id)) is not None:
            found = job
        elif (member := pending_member(state, job_id)) is not None:
            found = PendingMember(*member)
        else:
            found = await self._archive.get(job_id)
        return found if found is not None and self._is_ours(project_of(found)) else None

    def _is_ours(self, project: str) -> bool:
        """Whether jobs of a project are to be found."""
        return self.project is None or project == self.project

    async def _member(self, array: str, index: int) -> Found | None:
        """The member of an array that is named by anything but its full id."""
        try:
            found = await self._exact(JobId(array)) or await self._guess(array)
        except CommandError as error:
            if error.kind is ErrorKind.UNKNOWN:
                return None
            raise
        member = await self._exact(member_id(id_of(found), index))
        if member is None and is_array(found):
            told = f"{member_id(id_of(found), index)} is no member, or was given up before it started"
            raise CommandError(ErrorKind.UNKNOWN, told)
        return member

    async def _guess(self, ref: str) -> Job | Finished:
        """By prefix, then by name."""
        state = (await self._loop.read()).state
        prefix = ref if len(ref) >= START else None
        found: dict[str, Job | None] = {}
        for job in _candidates(state, ref, self.project):
            if self._is_ours(job.kind.project):
                found[job.id] = job
                if len(found) > 1:
                    raise _ambiguous(ref, list(found))
        archived = await self._archive.find(prefix, 2, self.project) if prefix is not None else []
        named = await self._archive.list(Query(name=ref, project=self.project, limit=2))
        for each in (*archived, *(row.job for row in named)):
            found.setdefault(each, None)
        if len(found) > 1:
            raise _ambiguous(ref, list(found))
        if not found:
            raise CommandError(ErrorKind.UNKNOWN, f"there is no job {ref!r}; `spill ls` lists them")
        ((job_id, live),) = found.items()
        row = None if live is not None else await self._archive.get(JobId(job_id))
        result = live if live is not None else row
        if result is None:
            raise CommandError(ErrorKind.UNKNOWN, f"there is no job {ref!r}; `spill ls` lists them")
        return result


def _candidates(state: State, ref: str, project: str | None) -> Iterator[Job]:
    """Jobs of the state whose id starts so, or whose name this is; members, which have their array's name, by id alone."""
    if len(ref) >= START:
        yield from (state.jobs[each] for each in state.starting(ref))
    array, dot, _ = ref.partition(".")
    if dot:
        members = state.members.get(JobId(array), ())
        yield from (state.jobs[each] for each in members if each.startswith(ref))
    yield from (state.jobs[each] for each in state.called(ref, project))


def is_array(found: Found) -> bool:
    """Whether a job has members."""
    if isinstance(found, Finished):
        return found.array is not None
    return isinstance(found, Job) and found.extra.members is not None


def is_index(text: str) -> bool:
    """Whether this can be the index of a member."""
    return text.isascii() and text.isdigit() and len(text) < 12


def _ambiguous(ref: str, ids: list[str]) -> CommandError:
    return CommandError(
        ErrorKind.AMBIGUOUS,
        f"{ref!r} means several jobs, among them {ids[0]} and {ids[1]}: say which by its id",
    )


def is_among(job: JobId, dropped: MembersDropped) -> bool:
    """Whether a job is one of the members that were dropped, of which there may be a million."""
    member = split_member(job)
    return member is not None and member[0] == dropped.array and ranges.contains(dropped.members, member[1])
