"""Submits jobs that ran before again: the same specs with changes, whole or only the failed members of arrays."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from msgspec import structs

from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.files import JobFiles
from spillover.control.requests.lookup import (
    Found,
    Lookup,
    PendingMember,
    ended_members,
    id_of,
    is_array,
    project_of,
)
from spillover.control.requests.rights import Rights
from spillover.control.views.history import events_of
from spillover.core.events import JobEnded, JobRequeued, JobState, JobSubmitted
from spillover.core.records.jobs import Ended, Job
from spillover.forms.jobs.arrays import MOST_RANGES
from spillover.forms.jobs.meaning import AfterRef, JobForm
from spillover.forms.jobs.options import merged
from spillover.forms.jobs.reading import read_job, to_doc
from spillover.forms.problems import BadForm
from spillover.model.ids import split_member
from spillover.model.job import JobSpec, Range
from spillover.ports.archive import Archive, Finished
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Journal
from spillover.wire.api import FieldProblem, Rerun

FAILED: Final = frozenset({JobState.FAILED, JobState.TIMED_OUT})
"""States of members that are run again. Cancelled ones are not: somebody did not want them."""
_NAMED: Final = 3
"""Most missing inputs to name."""


class Rerunning:
    """Makes the forms of jobs to submit again."""

    def __init__(
        self,
        loop: Loop,
        journal: Journal,
        archive: Archive,
        specs: Specs,
        files: JobFiles | None,
        lookup: Lookup,
        rights: Rights,
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._archive = archive
        self._specs = specs
        self._files = files
        self._lookup = lookup
        self._rights = rights
        self.warnings: list[str] = []
        """A line for each folder that a job does not begin with, although the other one left it."""

    async def forms(self, asked: Rerun, user: str) -> list[JobForm]:
        """Return the jobs to submit, in the order of the request; raise CommandError if one cannot run again."""
        found = {id_of(job): job for job in [await self._lookup.find(ref) for ref in asked.jobs]}
        specs = [await self._spec(job, failed=asked.failed) for job in found.values()]
        names = {str(job): spec.name for job, spec in zip(found, specs, strict=True)}
        forms: list[JobForm] = []
        for at, spec in enumerate(specs):
            after = tuple([ref async for ref in self._after(spec, names)])
            taken = tuple([structs.replace(each, job=_again(each.job, names)) for each in spec.taken])
            form = JobForm(structs.replace(spec, after=(), taken=taken), after)
            forms.append(_changed(form, asked.changes, at, failed=asked.failed))
        if self._files is not None:
            await self._check_files(forms)
            if not asked.empty_state:
                left = [
                    await self._left(each, form, user)
                    for each, form in zip(found.values(), forms, strict=True)
                ]
                await self._check_left(left)
                return left
        return forms

    async def _left(self, found: Found, form: JobForm, user: str) -> JobForm:
        """Return a job that begins with the folders that an ended one left, if they are for whoever asks."""
        # Members begin with empty ones: an array has no record of each of its members to put them into.
        if not form.spec.keep_state or form.spec.array:
            return form
        if not _has_ended(found):
            self.warnings.append(
                f"{form.spec.name}: begins with an empty folder (SPILL_STATE), because {id_of(found)} has not ended and still uses its own"
            )
            return form
        saved: dict[int, str] = {}
        async for event in events_of(self._loop, self._journal, id_of(found)):
            match event:
                case JobSubmitted() | JobRequeued() | JobEnded():
                    saved |= {rank: blob for rank, blob in enumerate(event.saved) if blob}
                case _:
                    pass
        if not saved or _state(found) == JobState.SUCCEEDED:
            return form
        if (why := self._withheld(found, form, user)) is not None:
            self.warnings.append(
                f"{form.spec.name}: begins with an empty folder (SPILL_STATE), not with the one that {id_of(found)} left, {why}"
            )
            return form
        by_rank = tuple([saved.get(rank, "") for rank in range(max(saved) + 1)])
        return structs.replace(form, saved=by_rank, saved_by=id_of(found))

    def _withheld(self, found: Found, form: JobForm, user: str) -> str | None:
        """Return why a job does not get the folders of another one, which its program can read; None if it gets them."""
        if form.spec.project != (project := project_of(found)):
            return f"which is for project {project}"
        if not self._rights.may_change(found, user):
            return "as you may not change that job"
        return None

    async def _check_left(self, forms: Sequence[JobForm]) -> None:
        """Raise CommandError with one line for each job whose folder is no longer stored."""
        wanted = [each for form in forms for each in form.saved if each]
        if self._files is None or not wanted:
            return
        there = await self._files.stored(wanted)
        problems = [
            FieldProblem(
                f"jobs[{at}]",
                f"{form.spec.name}: the server no longer has the folder that {form.saved_by} left; "
                "begin with an empty one by --empty-state (`empty_state`)",
            )
            for at, form in enumerate(forms)
            if not there.issuperset(filter(None, form.saved))
        ]
        if problems:
            raise CommandError(ErrorKind.CONFLICT, problems[0].message, problems)

    async def _spec(self, found: Found, *, failed: bool) -> JobSpec:
        """Return the spec of a job; of a member that of its array, with its index alone."""
        job = found.array if isinstance(found, PendingMember) else found
        spec = (await self._specs.get([job.spec])).get(job.spec)
        if spec is None:
            raise CommandError(ErrorKind.CONFLICT, f"{id_of(found)}: its spec is no longer stored")
        if failed and is_array(found):
            if not (members := await self._failed(found)):
                raise CommandError(ErrorKind.CONFLICT, f"{id_of(found)} ({spec.name}) has no failed members")
            if len(members) > MOST_RANGES:
                raise CommandError(
                    ErrorKind.CONFLICT,
                    f"{id_of(found)} ({spec.name}): its failed members are {len(members):,} separate ranges; the maximum is {MOST_RANGES:,}",
                )
            return structs.replace(spec, array=members)
        if failed and (state := _state(found)) not in FAILED:
            raise CommandError(
                ErrorKind.CONFLICT, f"{id_of(found)} ({spec.name}) has not failed: it is {state}"
            )
        member = split_member(id_of(found))
        return (
            spec
            if member is None
            else structs.replace(spec, array=(Range(member[1], member[1]),), throttle=0)
        )

    async def _failed(self, array: Found) -> tuple[Range, ...]:
        """Return the indexes of the members of an array that have failed."""
        return await ended_members(self._loop, self._archive, array, FAILED)

    async def _after(self, spec: JobSpec, names: dict[str, str]) -> AsyncIterator[AfterRef]:
        """Yield what a job waits for again: jobs of the same request, and jobs that have not ended."""
        for text in spec.after:
            wanted = AfterRef.of(text)
            ref = wanted.ref
            if ref in names or ref in names.values():
                yield structs.replace(wanted, ref=names.get(ref, ref))
                continue
            try:
                found = await self._lookup.find(ref)
            except CommandError:
                continue  # it is gone, or its name now stands for several jobs
            if isinstance(found, Job) and type(found.phase) is not Ended:
                yield structs.replace(wanted, ref=found.id)

    async def _check_files(self, forms: Sequence[JobForm]) -> None:
        """Raise CommandError with one line for each job whose inputs are no longer stored."""
        if self._files is None:
            return
        gone = await self._files.gone(forms, self._lookup.project)
        problems = [
            FieldProblem(
                f"jobs[{at}]", f"{forms[at].spec.name}: {_told(lost)}; submit it again from its files"
            )
            for at, lost in gone.items()
        ]
        if problems:
            raise CommandError(ErrorKind.CONFLICT, problems[0].message, problems)


def without_folder(forms: Sequence[JobForm]) -> Iterator[str]:
    """Yield a line for each array that begins without the folders that members of the other one left."""
    for form in forms:
        if form.spec.keep_state and form.spec.array:
            yield f"{form.spec.name}: members of arrays begin with empty folders (SPILL_STATE), not with those that they left"


def _again(job: str, names: dict[str, str]) -> str:
    """Return the job of the same request that runs a job again, or its member; the job itself if there is none."""
    array, dot, index = job.partition(".")
    return f"{names[array]}{dot}{index}" if array in names else job


def _told(lost: Sequence[str]) -> str:
    """Say in one line which inputs are gone."""
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    return f"the server no longer has {', '.join(lost[:_NAMED])}{more}"


def _changed(form: JobForm, changes: dict[str, Any], at: int, *, failed: bool) -> JobForm:
    """Return a job with changed fields, which are those of a job file."""
    if not changes:
        return form
    problems = [
        FieldProblem(f"changes.{name}", "is not a part of a job file that can change; write metadata or spec")
        for name in changes
        if name not in {"metadata", "spec"}
    ]
    spec = changes.get("spec", {})
    if failed and isinstance(spec, dict) and "array" in spec:
        problems.append(
            FieldProblem("changes.spec.array", "the failed members keep their indexes; leave it out")
        )
    if problems:
        raise CommandError(ErrorKind.INVALID, problems[0].message, problems)
    try:
        changed = read_job(merged(to_doc(form), changes))
    except BadForm as bad:
        found = [FieldProblem(f"changes.{problem.path}", problem.message) for problem in bad.problems]
        raise CommandError(ErrorKind.INVALID, f"jobs[{at}]: {found[0].message}", found) from None
    return changed if "after" in spec else structs.replace(changed, after=form.after)


def _has_ended(found: Found) -> bool:
    """Return whether a job has ended; a job that still runs has left nothing yet."""
    return isinstance(found, Finished) or (isinstance(found, Job) and type(found.phase) is Ended)


def _state(found: Found) -> str:
    return str(found.state)
