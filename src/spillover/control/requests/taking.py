"""Finds the jobs whose outputs a submission takes as inputs: by the names and ids that `after` takes too."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from spillover.control.live.specs import Specs
from spillover.control.requests.lookup import Found, Lookup, PendingMember, id_of, is_array, is_index
from spillover.core.proposals import Dependency
from spillover.model import ranges
from spillover.model.files import MOST_FILES
from spillover.model.ids import JobId, member_id, split_member
from spillover.model.job import FromJob, FromMembers, JobSpec, On
from spillover.model.ranges import Ranges
from spillover.ports.archive import Finished
from spillover.ports.commands import CommandError, ErrorKind


class Named(NamedTuple):
    """A job of this submission, or of an earlier one under its key."""

    job: Dependency
    array: Ranges
    """Empty if it is not an array."""


class _Source(NamedTuple):
    """A job whose outputs are taken."""

    job: JobId
    wait: Dependency
    """On it, or on its array if it is a member that has not been placed."""
    indexes: Ranges = ()
    """The members of an array."""


class Taking:
    """Resolves the jobs in `from`."""

    def __init__(self, lookup: Lookup, specs: Specs) -> None:
        self._lookup = lookup
        self._specs = specs

    async def resolved(self, spec: JobSpec, names: Mapping[str, Sequence[Named]]) -> "Resolved":
        """Return the full ids in what a job takes, what it must wait for, and problems in words."""
        found = Resolved([], [], [])
        for wanted in spec.taken:
            try:
                source = await self._source(wanted.job, names)
                found.taken.append(_taken(wanted, source, spec))
                found.waits.append(source.wait)
            except CommandError as error:
                found.problems.append(error.message)
        return found

    async def _source(self, ref: str, names: Mapping[str, Sequence[Named]]) -> _Source:
        """Return the job that a reference means: in the same submission first, then any job."""
        array, dot, index = ref.rpartition(".")
        for name, member in ((ref, None), (array, int(index) if dot and is_index(index) else None)):
            same = names.get(name, ())
            if (member is None and name != ref) or not same:
                continue
            if len(same) > 1:
                raise CommandError(ErrorKind.AMBIGUOUS, f"{name!r} names {len(same)} jobs of this submission")
            job = same[0].job
            if member is None:
                return _Source(job.job, job, same[0].array)
            if not ranges.contains(same[0].array, member):
                raise CommandError(ErrorKind.UNKNOWN, f"{name} has no member {member}")
            return _Source(member_id(job.job, member), job)
        return await self._earlier(await self._lookup.find(ref))

    async def _earlier(self, found: Found) -> _Source:
        """Return what a job of an earlier submission is as a source."""
        if isinstance(found, PendingMember):
            return _Source(found.id, Dependency(found.array.id))
        job = id_of(found)
        wait = Dependency(
            job, On.SUCCESS, found.state == "SUCCEEDED" if isinstance(found, Finished) else None
        )
        if not is_array(found):
            return _Source(job, wait)
        spec = (await self._specs.get([found.spec])).get(found.spec)
        if spec is None:
            raise CommandError(ErrorKind.CONFLICT, f"{job}: its spec is no longer stored")
        return _Source(job, wait, spec.array)


class Resolved(NamedTuple):
    """What a job takes from others."""

    taken: list[FromJob]
    waits: list[Dependency]
    problems: list[str]

    def after(self, asked: Iterable[Dependency]) -> tuple[Dependency, ...]:
        """Return all that a job waits for: what it asks for itself, and for the success of the other sources."""
        waits = {each.job: each for each in asked}
        for each in self.waits:
            member = split_member(each.job)
            if member is None or member[0] not in waits:
                waits.setdefault(each.job, each)
        return tuple(waits.values())


def _taken(wanted: FromJob, source: _Source, spec: JobSpec) -> FromJob:
    """Return an input with the full id of its source; raise CommandError if it makes no sense for that."""
    members = wanted.members
    if not source.indexes:
        if members is not None:
            raise CommandError(ErrorKind.INVALID, f"{wanted.job} is not an array; remove `members`")
        return replace(wanted, job=source.job, indexes=())
    if members is None:
        members = FromMembers.SAME if spec.array else FromMembers.ALL
    if members is FromMembers.SAME:
        if missing := ranges.minus(spec.array, source.indexes):
            told = f"{wanted.job} has no member {missing[0].first}; write `members: all`, or the same indexes"
            raise CommandError(ErrorKind.INVALID, told)
        return replace(wanted, job=source.job, members=members, indexes=())
    if (size := ranges.size(source.indexes)) > MOST_FILES:
        told = f"{wanted.job} has {size:,} members; a job can take files of {MOST_FILES:,} at most"
        raise CommandError(ErrorKind.INVALID, told)
    if wanted.to and not wanted.to.endswith("/"):
        told = f"{wanted.to!r} is one path for all members of {wanted.job}; write {wanted.to + '/'!r}"
        raise CommandError(ErrorKind.INVALID, told)
    return replace(wanted, job=source.job, members=members, indexes=source.indexes)
