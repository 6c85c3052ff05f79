"""What a person means by JOB: an id, a unique prefix of one, or a unique name; live or in the archive."""

from spillover.control.loop import Loop
from spillover.core.state import Job
from spillover.model.ids import JobId, split_member
from spillover.ports.archive import Archive, Finished, Query
from spillover.ports.commands import CommandError, Kind

SHORTEST = 3
"""Letters that a prefix of an id has at the least, so that a short name is not taken for one."""


class Lookup:
    """Finds jobs."""

    def __init__(self, loop: Loop, archive: Archive) -> None:
        self._loop = loop
        self._archive = archive

    async def find(self, ref: str) -> Job | Finished:
        """The job that is meant; raises if there is none, or several."""
        engine = await self._loop.read()
        jobs = engine.state.jobs
        if (job := jobs.get(JobId(ref))) is not None:
            return job
        member = _member(ref)
        if member is not None and (array := jobs.get(member[0])) is not None:
            row = await self._archive.get(JobId(ref))
            return row if row is not None else array
        if (row := await self._archive.get(JobId(ref))) is not None:
            return row
        return await self._guess(ref)

    async def live(self, ref: str) -> JobId:
        """The id of a job that can still be changed."""
        found = await self.find(ref)
        if isinstance(found, Finished):
            raise CommandError(Kind.CONFLICT, f"{found.job} has ended ({found.state}): it cannot be changed")
        return found.id

    async def _guess(self, ref: str) -> Job | Finished:
        """By prefix, then by name."""
        state = (await self._loop.read()).state
        found: dict[str, Job | None] = {}
        prefix = ref if len(ref) >= SHORTEST else None
        for job in state.jobs.values():
            member = "." in job.id  # which has its array's name
            if member and "." not in ref:
                continue
            if (prefix is not None and job.id.startswith(prefix)) or (job.name == ref and not member):
                found[job.id] = job
                if len(found) > 1:
                    raise _ambiguous(ref, list(found))
        archived = await self._archive.find(prefix, 2) if prefix is not None else []
        named = await self._archive.list(Query(name=ref, limit=2))
        for each in (*archived, *(row.job for row in named)):
            found.setdefault(each, None)
        if len(found) > 1:
            raise _ambiguous(ref, list(found))
        if not found:
            raise CommandError(Kind.UNKNOWN, f"there is no job {ref!r}")
        ((job_id, live),) = found.items()
        row = None if live is not None else await self._archive.get(JobId(job_id))
        result = live if live is not None else row
        if result is None:
            raise CommandError(Kind.UNKNOWN, f"there is no job {ref!r}")
        return result


def _member(ref: str) -> tuple[JobId, int] | None:
    """The array and index of what may be the id of a member."""
    _, dot, index = ref.partition(".")
    return (
        split_member(JobId(ref)) if dot and index.isascii() and index.isdigit() and len(index) < 12 else None
    )


def _ambiguous(ref: str, ids: list[str]) -> CommandError:
    return CommandError(
        Kind.AMBIGUOUS, f"{ref!r} means several jobs, among them {ids[0]} and {ids[1]}: say which by its id"
    )
