"""Adds output files of earlier jobs to the jobs that take them as inputs, when their tasks are sent.

They stay blobs: a task gets their paths and digests as those of any other input, and its agent fetches them.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from spillover.control.agents.earlier import Missing
from spillover.control.live.loop import Loop
from spillover.control.requests.files import Unlisted, files_in
from spillover.core.records.jobs import Ended
from spillover.core.state import State
from spillover.forms.jobs.matching import among, landing
from spillover.forms.jobs.meaning import MOST_JOB, size_of
from spillover.model import ranges
from spillover.model.files import MOST_FILES, File, clash, is_kept_stream, is_pattern, wrong_path
from spillover.model.ids import JobId, member_id, split_member
from spillover.model.job import FromJob, FromMembers, JobSpec
from spillover.model.units import format_memory
from spillover.ports.archive import Archive
from spillover.ports.blobs import GIB, BlobError, Blobs, NoBlob

SOME: Final = 2_000
"""Most jobs to read from the archive at once."""
_LISTS: Final = 256
"""Most lists of files to remember, as all members of an array may take from one job."""


class Outputs(NamedTuple):
    """How a job ended, and what it made."""

    name: str
    succeeded: bool
    listed: str
    """The blob that lists the output files of its last attempt; empty if there are none."""


class TakenFiles:
    """Finds the files that jobs take from others."""

    def __init__(self, loop: Loop, archive: Archive, blobs: Blobs, max_inputs: int = GIB) -> None:
        self._loop = loop
        self._archive = archive
        self._blobs = blobs
        self._max_inputs = max_inputs
        """Most bytes of all inputs of a job."""
        self._lists: OrderedDict[str, dict[str, File]] = OrderedDict()

    async def filled(self, jobs: Mapping[JobId, JobSpec]) -> dict[JobId, JobSpec | Missing]:
        """Return jobs with the files that they take among their inputs; Missing for those that cannot have theirs."""
        state = (await self._loop.read()).state
        ended = await outputs_of(
            state, self._archive, {each for job, spec in jobs.items() for each in _asked(job, spec)}
        )
        found: dict[JobId, JobSpec | Missing] = {}
        for job, spec in jobs.items():
            try:
                files = [*spec.inputs]
                for wanted in spec.taken:
                    files += await self._taken(job, wanted, ended)
                await self._check(spec, files)
                found[job] = replace(spec, inputs=tuple(files), taken=())
            except Missing as error:
                found[job] = error
            except BlobError as error:
                found[job] = Missing(f"its inputs from other jobs cannot be read: {error}")
        return found

    async def _taken(self, job: JobId, wanted: FromJob, ended: Mapping[JobId, Outputs]) -> list[File]:
        """Return the files of one entry, each with its path where the job runs."""
        to = wanted.to or None
        if wanted.members is not FromMembers.ALL:
            source = _source(job, wanted)
            if (made := ended.get(source)) is None:
                raise Missing(f"{source}, whose {wanted.path} it takes, is no longer stored")
            if not (files := await self._files(source, made, wanted.path, to)):
                raise Missing(f"{made.name} ({source}) has no output {wanted.path}")
            return files
        found: list[File] = []
        array = ended.get(JobId(wanted.job))
        for index in ranges.indexes(wanted.indexes):
            source = member_id(JobId(wanted.job), index)
            made = ended.get(source)
            if made is None and (array is None or array.succeeded):
                raise Missing(f"{source}, whose {wanted.path} it takes, is no longer stored")
            if made is None:
                continue  # it never ran
            files = await self._files(source, made, wanted.path, f"{to or ''}{index}/", keeps=to is None)
            if not files and made.succeeded:
                raise Missing(f"{made.name} ({source}) has no output {wanted.path}")
            found += files
            if len(found) > MOST_FILES:
                break  # refused below, as is all that is too much
        if not found:
            raise Missing(f"no member of {wanted.job} has an output {wanted.path}")
        return found

    async def _files(
        self, source: JobId, made: Outputs, pattern: str, to: str | None, *, keeps: bool = False
    ) -> list[File]:
        """Return the output files that a pattern means; with `keeps`, each with its whole path in the folder `to`."""
        if not made.listed:
            return []
        there = await self._list(source, made)
        paths = among(there, pattern)
        if keeps:
            placed = [(path, f"{to}{path}") for path in paths]
        else:
            placed = landing(paths, pattern, to, folder=not is_pattern(pattern) and pattern not in there)
        return [replace(there[path], path=into) for path, into in placed]

    async def _list(self, source: JobId, made: Outputs) -> dict[str, File]:
        """Return the output files of an attempt by path."""
        if (known := self._lists.get(made.listed)) is not None:
            self._lists.move_to_end(made.listed)
            return known
        try:
            files = await files_in(self._blobs, made.listed)
        except (NoBlob, Unlisted):
            raise Missing(f"the outputs of {made.name} ({source}) were deleted") from None
        found = {file.path: file for file in files if not is_kept_stream(file.path)}
        self._lists[made.listed] = found
        if len(self._lists) > _LISTS:
            self._lists.popitem(last=False)
        return found

    async def _check(self, spec: JobSpec, files: Sequence[File]) -> None:
        """Raise Missing if the inputs of a job are too many or too large, clash, or are not on the server any more."""
        if len(files) > MOST_FILES:
            raise Missing(
                f"its inputs are more than {MOST_FILES:,} files, with those that it takes from other jobs"
            )
        for file in files:
            if (wrong := wrong_path(file.path)) is not None:
                raise Missing(f"its input {file.path[:100]!r} {wrong}")
        if (twice := clash(file.path for file in files)) is not None:
            raise Missing(f"its input {twice!r} would be written twice; rename one with `as`")
        stdin = () if spec.stdin is None else (spec.stdin,)
        if (total := sum(file.size for file in (*files, *stdin))) > self._max_inputs:
            raise Missing(
                f"its inputs total {format_memory(total)}, with those that it takes from other jobs; "
                f"the maximum is {format_memory(self._max_inputs)} (files.max_inputs)"
            )
        if size_of(spec.work, spec.env, tuple(files), spec.groups) > MOST_JOB:
            raise Missing("its inputs, with those that it takes from other jobs, make it larger than 1 MiB")
        there = await self._blobs.sizes([file.digest for file in files])
        for file in files:
            if file.digest not in there:
                raise Missing(f"its input {file.path} is no longer on the server")


async def outputs_of(state: State, archive: Archive, jobs: Iterable[JobId]) -> dict[JobId, Outputs]:
    """Return what ended jobs made in their last attempts; jobs that are not stored are left out."""
    found: dict[JobId, Outputs] = {}
    rest: list[JobId] = []
    for name in jobs:
        job = state.jobs.get(name)
        if job is None:
            rest.append(name)
        elif type(job.phase) is Ended:
            listed = dict(job.extra.outputs).get(job.attempt, "")
            found[name] = Outputs(job.name, job.state == "SUCCEEDED", listed)
    for start in range(0, len(rest), SOME):
        for name, row in (await archive.some(rest[start : start + SOME])).items():
            listed = dict(row.outputs).get(row.attempt, "")
            found[name] = Outputs(row.name, row.state == "SUCCEEDED", listed)
    return found


def _asked(job: JobId, spec: JobSpec) -> Iterator[JobId]:
    """Yield the jobs that a job takes files from."""
    for wanted in spec.taken:
        yield _source(job, wanted)
        for index in ranges.indexes(wanted.indexes):
            yield member_id(JobId(wanted.job), index)


def _source(job: JobId, wanted: FromJob) -> JobId:
    """Return the job, member or array that an entry means, for a job or a member."""
    member = split_member(job) if wanted.members is FromMembers.SAME else None
    return JobId(wanted.job) if member is None else member_id(JobId(wanted.job), member[1])
