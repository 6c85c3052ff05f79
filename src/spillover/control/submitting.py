"""Job forms to proposals: ids drawn, names in `after` resolved, keys looked up in the archive."""

import secrets
from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

from msgspec import structs

from spillover.control.files import FileDesk
from spillover.control.limits import Gauge
from spillover.control.lookup import Lookup, PendingMember
from spillover.control.loop import TRIES, Loop
from spillover.control.specs import Specs
from spillover.control.whatif import on_snapshot
from spillover.core.deciders.submissions import key_taken
from spillover.core.proposals import Dependency, NewJob, Refusal, RefusalKind, Submit, Submitted
from spillover.deciding.whatif import Trial, try_jobs
from spillover.forms.jobs import JobForm
from spillover.model.ids import ID_BITS, JobId, job_id
from spillover.model.job import JobSpec, On, Terms
from spillover.model.units import format_duration, format_moment
from spillover.ports.archive import Archive, Finished
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import FieldProblem
from spillover.wire.journal import encode_spec, encode_value

_LIMITS = {RefusalKind.FULL: "queued", RefusalKind.PROJECT_FULL: "queued_per_project"}


def draw_id() -> JobId:
    """An id that nobody can guess and nobody else has."""
    return job_id(secrets.randbits(ID_BITS))


class Submitting:
    """Takes forms in."""

    def __init__(
        self,
        loop: Loop,
        archive: Archive,
        lookup: Lookup,
        specs: Specs,
        *,
        lost_after: int = Terms().lost_after,
        least_lost_after: int = 0,
        draw: Callable[[], JobId] = draw_id,
        files: FileDesk | None = None,
        gauge: Gauge | None = None,
    ) -> None:
        self._loop = loop
        self._gauge = gauge
        """None where nothing is limited."""
        self._archive = archive
        self._lookup = lookup
        self._specs = specs
        self._lost_after = lost_after
        self._least_lost_after = least_lost_after
        """Nanoseconds; agents end tasks that cannot be renewed a heartbeat before their time."""
        self._draw = draw
        self._files = files
        """None where no job has any."""

    def within(self, lookup: Lookup) -> Self:
        """The same for somebody to whom there are no other jobs than some."""
        limited = copy(self)
        limited._lookup = lookup  # noqa: SLF001 - its own
        return limited

    async def submit(self, forms: Sequence[JobForm], user: str) -> tuple[str, ...]:
        """Take all of these jobs, or none."""
        if self._files is not None:
            await self._files.check(forms, self._lookup.project)
        last: Refusal | None = None
        for _ in range(TRIES):
            blobs: dict[bytes, bytes] = {}
            proposal, known = await self._proposal(forms, user, blobs)
            if self._gauge is not None:
                proposal = structs.replace(proposal, bounds=self._gauge.bounds)
            (reply,) = await self._loop.propose(proposal, blobs=blobs)
            match reply:
                case Submitted(jobs):
                    taken = iter(jobs)
                    return tuple(known[at] if at in known else next(taken) for at in range(len(forms)))
                case Refusal(RefusalKind.STALE):
                    last = reply
                case Refusal(kind) if self._gauge is not None and kind in _LIMITS:
                    raise self._gauge.full(_LIMITS[kind], reply.message)
                case Refusal():
                    raise refused(reply)
        raise refused(last or Refusal(RefusalKind.STALE, "try again"))

    async def trial(self, forms: Sequence[JobForm], user: str) -> tuple[list[JobId | str], Trial]:
        """What would become of these jobs; nothing is submitted."""
        proposal, known = await self._proposal(forms, user, {})
        now = self._loop.now()
        tried = await on_snapshot(self._loop, lambda snapshot: try_jobs(snapshot, now, proposal))
        if isinstance(tried, Refusal):
            raise refused(tried)
        fresh = iter(proposal.jobs)
        return [known[at] if at in known else next(fresh).job for at in range(len(forms))], tried

    async def _proposal(
        self, forms: Sequence[JobForm], user: str, blobs: dict[bytes, bytes]
    ) -> tuple[Submit, dict[int, str]]:
        """The proposal, and the ids of jobs that the archive knows by their keys, by position."""
        keys = [(form.spec.project, form.key) for form in forms if form.key is not None]
        state = (await self._loop.read()).state if keys else None
        # How many were archived is noted before the archive is asked: what leaves the state from here on is told from what left before.
        archived = state.facts.archived if state is not None else None
        live = frozenset(each for each in keys if state is not None and state.keys.find(*each) is not None)
        rows = await self._archive.keyed(keys) if keys else {}
        known: dict[int, str] = {}
        names: dict[str, list[Dependency]] = {}
        new: list[NewJob] = []
        problems: list[FieldProblem] = []
        drawn: list[tuple[int, JobForm, NewJob, bytes]] = []
        for at, form in enumerate(forms):
            spec = self._completed(form.spec)
            if spec.terms.lost_after < self._least_lost_after:
                least = format_duration(self._least_lost_after)
                told = f"{spec.name}: lost_after is less than three heartbeats; write {least} or more"
                problems.append(FieldProblem(f"jobs[{at}].spec.lost_after", told))
            digest, body = encode_spec(spec)
            signature = _signature(digest, form) if form.key is not None else b""
            row = rows.get((spec.project, form.key)) if form.key is not None else None
            if row is not None:
                known[at] = _same(row, form, signature)
                same = Dependency(row.job, On.SUCCESS, row.state == "SUCCEEDED")
            else:
                # One that is there under its key is answered with that, however late it is repeated.
                now = self._loop.now()
                if (
                    spec.deadline is not None
                    and spec.deadline <= now
                    and (spec.project, form.key) not in live
                ):
                    until, here = format_moment(spec.deadline), format_moment(now)
                    told = f"{spec.name}: its deadline, {until}, has passed: it is {here} on the server; write a later one"
                    problems.append(FieldProblem(f"jobs[{at}].spec.deadline", told))
                job = NewJob(self._draw(), spec, digest, (), form.key, signature)
                same = Dependency(job.job)
                drawn.append((at, form, job, body))
            names.setdefault(form.spec.name, []).append(same)
        for at, form, job, body in drawn:
            after: list[Dependency] = []
            for place, wanted in enumerate(form.after):
                try:
                    after.append(await self._dependency(wanted.ref, names, wanted.on))
                except CommandError as error:
                    told = f"{form.spec.name}: cannot run after {wanted.ref!r}: {error.message}"
                    problems.append(FieldProblem(f"jobs[{at}].spec.after[{place}].job", told))
            blobs[job.digest] = body
            self._specs.keep(job.digest, job.spec, len(body))
            new.append(structs.replace(job, after=tuple(after)) if after else job)
        if problems:
            raise CommandError(ErrorKind.INVALID, problems[0].message, problems)
        return Submit(tuple(new), user, archived), known

    def _completed(self, spec: JobSpec) -> JobSpec:
        """The spec with this server's defaults."""
        default = Terms().lost_after
        if self._lost_after == default or spec.terms.lost_after != default:
            return spec
        return structs.replace(spec, terms=structs.replace(spec.terms, lost_after=self._lost_after))

    async def _dependency(self, ref: str, names: dict[str, list[Dependency]], on: On) -> Dependency:
        """The job that an `after` means: of the same submission first, else any."""
        same = names.get(ref, [])
        if len(same) > 1:
            raise CommandError(ErrorKind.AMBIGUOUS, f"{ref!r} names {len(same)} jobs of this submission")
        if same:
            return structs.replace(same[0], on=on)
        found = await self._lookup.find(ref)
        if isinstance(found, Finished):
            return Dependency(found.job, on, found.state == "SUCCEEDED")
        if isinstance(found, PendingMember):
            raise CommandError(
                ErrorKind.CONFLICT,
                f"{found.id} has not been placed yet: run after its array, {found.array.id}",
            )
        return Dependency(found.id, on)


def _signature(digest: bytes, form: JobForm) -> bytes:
    """What tells one body under a key from another."""
    return digest + encode_value([(wanted.ref, wanted.on.value) for wanted in form.after])


def _same(row: Finished, form: JobForm, signature: bytes) -> str:
    """The id of an archived job that was submitted under a key, if it was this very job."""
    if row.body != signature:
        raise CommandError(ErrorKind.CONFLICT, key_taken(form.key, row.job))
    return row.job
