"""Turns job forms into proposals: draws ids, resolves names in `after` and `from`, and looks up keys in the archive."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple, Self

from msgspec import structs

from spillover.control.live.loop import TRIES, Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.files import JobFiles
from spillover.control.requests.limits import Gauge
from spillover.control.requests.lookup import Lookup, PendingMember, ended_members
from spillover.control.requests.starts import after, steps_for, time_for
from spillover.control.requests.taking import Named, Taking
from spillover.control.requests.whatif import on_snapshot
from spillover.control.secrets.delivery import SecretDelivery
from spillover.core.deciders.submissions import key_taken
from spillover.core.events import JobState
from spillover.core.proposals import Dependency, NewJob, Refusal, RefusalKind, Submit, Submitted
from spillover.core.records.jobs import Job
from spillover.deciding.expected import StartRange, starts_if_submitted
from spillover.deciding.explain.feasibility import Feasibility, TooLarge
from spillover.deciding.whatif import Snapshot, Trial, try_jobs
from spillover.forms.jobs.likeness import command_of, says_what
from spillover.forms.jobs.meaning import AfterRef
from spillover.forms.jobs.reading import JobForm
from spillover.model import ranges
from spillover.model.ids import ID_BITS, JobId, job_id, split_member
from spillover.model.job import JobSpec, On, Range, Shape, Terms
from spillover.model.ranges import Ranges
from spillover.model.reasons import GangTooBig, NoSuchLevel, TooBig, TooBigInside
from spillover.model.units import SECOND, format_duration, format_moment
from spillover.ports.archive import Archive, Finished, ProjectKey
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import FieldProblem
from spillover.wire.journal import encode_spec, encode_value, spec_identity

_LIMITS = {
    RefusalKind.FULL: "queued",
    RefusalKind.PROJECT_FULL: "queued_per_project",
    RefusalKind.QUEUE_FULL: "queued_in_queue",
}


def draw_id() -> JobId:
    """Return a random, unique job id that cannot be guessed."""
    return job_id(secrets.randbits(ID_BITS))


DRY_RUN: Final = 2 * SECOND
"""How long a dry run computes expected starts at most."""


class _Earlier(NamedTuple):
    """Jobs of earlier submissions under the keys of this one."""

    archived_count: int | None
    """How many jobs had been archived when the state was read; None if no job has a key."""
    live: Mapping[ProjectKey, JobId]
    """Jobs in the state."""
    archived: Mapping[ProjectKey, Finished]
    """Jobs in the archive."""

    def row_of(self, form: JobForm) -> Finished | None:
        """Return the archived job under the key of a form."""
        return None if form.key is None else self.archived.get((form.spec.project, form.key))

    def is_live(self, form: JobForm) -> bool:
        """Return whether a live job has the key of a form."""
        return self.live_of(form) is not None

    def live_of(self, form: JobForm) -> JobId | None:
        """Return the live job under the key of a form."""
        return None if form.key is None else self.live.get((form.spec.project, form.key))


class _Draft(NamedTuple):
    """A job of a submission, before the names in its `after` and `from` are resolved."""

    at: int
    """Its position in the submission."""
    form: JobForm
    job: JobId
    spec: JobSpec
    digest: bytes
    body: bytes
    signature: bytes


class Submitting:
    """Submits job forms, or tries them in a dry run."""

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
        files: JobFiles | None = None,
        gauge: Gauge | None = None,
        refuse_too_large: bool = True,
        secrets: SecretDelivery | None = None,
    ) -> None:
        self._loop = loop
        self._gauge = gauge
        """None if nothing is limited."""
        self._archive = archive
        self._lookup = lookup
        self._specs = specs
        self._lost_after = lost_after
        self._least_lost_after = least_lost_after
        """Nanoseconds; agents end tasks that they cannot renew one heartbeat before `lost_after`."""
        self._draw = draw
        self._files = files
        """None if jobs cannot have files."""
        self._refuse_too_large = refuse_too_large
        """Whether jobs that no cluster can ever hold are refused; otherwise they wait."""
        self.secrets = secrets
        """None if jobs cannot have secrets."""
        self._feasibility = Feasibility()

    def within(self, lookup: Lookup) -> Self:
        """Return the same for a caller who can see only some jobs."""
        limited = copy(self)
        limited._lookup = lookup  # noqa: SLF001 - a copy of this object
        return limited

    async def submit(self, forms: Sequence[JobForm], user: str, traceparent: str = "") -> tuple[str, ...]:
        """Submit all of these jobs or none, as parts of a trace if it is given; return their ids."""
        if self._files is not None:
            await self._files.check(forms, self._lookup.project)
        if self._unfit(forms, user):
            earlier = await self._earlier(forms)
            await self._loop.read()  # what the refusal rests on must be durable
            if problems := self._unfit(forms, user, earlier):
                raise CommandError(ErrorKind.INVALID, problems[0].message, problems)
        await self._check_secrets(forms, user)
        last: Refusal | None = None
        for _ in range(TRIES):
            blobs: dict[bytes, bytes] = {}
            proposal, known = await self._proposal(forms, user, blobs, traceparent)
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

    async def trial(
        self, forms: Sequence[JobForm], user: str
    ) -> tuple[list[JobId | str], Trial, Mapping[JobId, StartRange]]:
        """Return what would happen to these jobs, and when they would start, without submitting them."""
        await self._check_secrets(forms, user)
        proposal, known = await self._proposal(forms, user, {})
        engine = await self._loop.ready()
        now, steps = self._loop.now(), steps_for(engine) // 4
        most = min(DRY_RUN, time_for(engine))

        def ask(snapshot: Snapshot) -> tuple[Trial | Refusal, Mapping[JobId, StartRange]]:
            starts = starts_if_submitted(snapshot, now, proposal, steps, after(self._loop, most))
            return try_jobs(snapshot, now, proposal), starts

        tried, starts = await on_snapshot(self._loop, ask, few=0)
        if isinstance(tried, Refusal):
            raise refused(tried)
        fresh = iter(proposal.jobs)
        return [known[at] if at in known else next(fresh).job for at in range(len(forms))], tried, starts

    async def _check_secrets(self, forms: Sequence[JobForm], user: str) -> None:
        """Raise CommandError for jobs that cannot have their secrets, unless they were submitted earlier."""
        if not any(form.spec.secrets for form in forms):
            return
        if self.secrets is None:
            raise CommandError(ErrorKind.CONFLICT, "this server does not store secrets")
        earlier = await self._earlier(forms)
        known = [
            at for at, form in enumerate(forms) if earlier.is_live(form) or earlier.row_of(form) is not None
        ]
        await self.secrets.check(forms, user, known)

    def _unfit(
        self, forms: Sequence[JobForm], user: str, earlier: "_Earlier | None" = None
    ) -> list[FieldProblem]:
        """Return the problems of jobs that can never run, in their queue or at all, unless they were submitted earlier."""
        problems: list[FieldProblem] = []
        queues = self._loop.engine.state.queues
        for at, form in enumerate(forms) if queues else ():
            if earlier is not None and (earlier.is_live(form) or earlier.row_of(form) is not None):
                continue
            spec = form.spec
            if (queue := queues.of(spec.queue)) is None:
                found: Iterable[tuple[str, str]] = [("queue", queues.unknown(spec.queue))]
            else:
                found = queue.problems(queue.completed(spec), user)
            problems += [
                FieldProblem(f"jobs[{at}].spec.{field}", f"{spec.name}: {told}") for field, told in found
            ]
        return problems or (self._too_large(forms, earlier) if self._refuse_too_large else [])

    def in_queue(self, spec: JobSpec) -> JobSpec:
        """Return a job with the defaults of its queue; as it is if there are no queues, or none of its name."""
        queue = self._loop.engine.state.queues.of(spec.queue)
        return spec if queue is None else queue.completed(spec)

    def _shape_in_queue(self, spec: JobSpec) -> Shape:
        """Return the shape of a job with the defaults of its queue, and for the clusters of that alone."""
        queue = self._loop.engine.state.queues.of(spec.queue)
        return spec.shape if queue is None else queue.restricted(queue.completed(spec).shape)

    def _too_large(self, forms: Sequence[JobForm], earlier: "_Earlier | None" = None) -> list[FieldProblem]:
        """Return a problem for each job that no cluster can ever hold, unless it was submitted earlier."""
        engine, known = self._loop.engine, dict[Shape, TooLarge | None]()
        if not engine.is_ready:
            return []
        clusters = engine.index.capacity.values()
        problems: list[FieldProblem] = []
        for at, form in enumerate(forms):
            shape = self._shape_in_queue(form.spec)
            if earlier is not None and (earlier.is_live(form) or earlier.row_of(form) is not None):
                continue
            if shape not in known:
                known[shape] = self._feasibility.too_large(clusters, shape)
            if (reason := known[shape]) is not None:
                field, advice = _advice(reason, shape)
                message = f"{form.spec.name}: {reason}; {advice}"
                problems.append(FieldProblem(f"jobs[{at}].spec.{field}", message))
        return problems

    def too_large(self, spec: JobSpec) -> FieldProblem | None:
        """Return the problem of a job that no cluster can ever hold; None if one can, or if such jobs may wait."""
        found = self._too_large([JobForm(spec)]) if self._refuse_too_large else []
        return structs.replace(found[0], path=found[0].path.removeprefix("jobs[0].")) if found else None

    def late(self, spec: JobSpec) -> FieldProblem | None:
        """Return the problem of a job whose deadline has passed; None if it has not."""
        if spec.deadline is None or spec.deadline > (now := self._loop.now()):
            return None
        until, here = format_moment(spec.deadline), format_moment(now)
        message = (
            f"{spec.name}: its deadline {until} has passed (the server's time is {here}); write a later one"
        )
        return FieldProblem("spec.deadline", message)

    async def dependency(self, wanted: AfterRef, array: Ranges) -> Dependency:
        """Return the job that an `after` of a job refers to; `array` has the members of that job."""
        return await self._dependency(wanted, {}, array)

    async def _proposal(
        self, forms: Sequence[JobForm], user: str, blobs: dict[bytes, bytes], trace: str = ""
    ) -> tuple[Submit, dict[int, str]]:
        """Return the proposal, and by position the ids of jobs that the archive has under their keys."""
        earlier = await self._earlier(forms)
        known: dict[int, str] = {}
        names: dict[str, list[Named]] = {}
        drafts: list[_Draft] = []
        problems: list[FieldProblem] = []
        for at, form in enumerate(forms):
            row = earlier.row_of(form)
            draft = self._draft(at, form, self._draw() if row is None else row.job)
            problems += self._time_problems(draft, earlier)
            if row is None:
                drafts.append(draft)
                same = Dependency(earlier.live_of(form) or draft.job)
            else:
                known[at] = _same(row, form, draft.signature)
                same = Dependency(row.job, On.SUCCESS, row.state == "SUCCEEDED")
            names.setdefault(form.spec.name, []).append(Named(same, form.spec.array))
        new: list[NewJob] = []
        for drafted in drafts:
            draft, after = await self._resolved(drafted, names, problems)
            form = draft.form
            job = NewJob(
                draft.job,
                draft.spec,
                draft.digest,
                after,
                form.key,
                draft.signature,
                says_what(draft.spec.name, draft.spec.work),
                trace,
                command=command_of(draft.spec),
            )
            new.append(structs.replace(job, saved=form.saved, saved_by=form.saved_by) if form.saved else job)
            blobs[draft.digest] = draft.body
            self._specs.keep(draft.digest, draft.spec, len(draft.body))
        if problems:
            raise CommandError(ErrorKind.INVALID, problems[0].message, problems)
        return Submit(tuple(new), user, earlier.archived_count), known

    async def _earlier(self, forms: Sequence[JobForm]) -> "_Earlier":
        """Look up the keys of a submission: which of them are taken by a live job, and which by an archived one."""
        keys = [(form.spec.project, form.key) for form in forms if form.key is not None]
        if not keys:
            return _Earlier(None, {}, {})
        state = (await self._loop.read()).state
        # Read this count before the archive. By it the engine notices a job under one of the keys that is archived
        # meanwhile, and refuses the proposal as stale.
        archived_count = state.facts.archived
        live = {each: job for each in keys if (job := state.keys.find(*each)) is not None}
        return _Earlier(archived_count, live, await self._archive.keyed(keys))

    def _draft(self, at: int, form: JobForm, job: JobId) -> "_Draft":
        """Complete the spec of a job and encode it."""
        spec = self._completed(form.spec)
        digest, body = encode_spec(spec)
        # The identity is that of the job as submitted: defaults of its queue may change before it is submitted again.
        signature = _signature(spec_identity(body), form) if form.key is not None else b""
        if (queued := self.in_queue(spec)) != spec:
            spec = queued
            digest, body = encode_spec(spec)
        return _Draft(at, form, job, spec, digest, body, signature)

    def _time_problems(self, draft: "_Draft", earlier: "_Earlier") -> Iterator[FieldProblem]:
        """Yield times of a job that make no sense on this server, now."""
        spec, form = draft.spec, draft.form
        if spec.terms.lost_after < self._least_lost_after:
            least = format_duration(self._least_lost_after)
            message = f"{spec.name}: lost_after is less than three heartbeats; write {least} or more"
            yield FieldProblem(f"jobs[{draft.at}].spec.lost_after", message)
        # A submission that repeats a known key is answered with the existing job, even after its deadline.
        if earlier.is_live(form) or earlier.row_of(form) is not None:
            return
        if (problem := self.late(spec)) is not None:
            yield structs.replace(problem, path=f"jobs[{draft.at}].{problem.path}")

    async def _resolved(
        self, draft: "_Draft", names: dict[str, list[Named]], problems: list[FieldProblem]
    ) -> tuple["_Draft", tuple[Dependency, ...]]:
        """Resolve the jobs in `after` and `from`; append those that cannot be waited for to the problems."""
        form = draft.form
        after: list[Dependency] = []
        for place, wanted in enumerate(form.after):
            try:
                after.append(await self._dependency(wanted, names, form.spec.array))
            except CommandError as error:
                message = f"{form.spec.name}: {error.message}"
                where = "members" if error.kind is ErrorKind.INVALID else "job"
                problems.append(FieldProblem(f"jobs[{draft.at}].spec.after[{place}].{where}", message))
        if not draft.spec.taken:
            return draft, tuple(after)
        found = await Taking(self._lookup, self._specs).resolved(draft.spec, names)
        where = f"jobs[{draft.at}].spec.inputs"
        problems += [FieldProblem(where, f"{form.spec.name}: {told}") for told in found.problems]
        spec = structs.replace(draft.spec, taken=tuple(found.taken))
        digest, body = encode_spec(spec)
        return draft._replace(spec=spec, digest=digest, body=body), found.after(after)

    def _completed(self, spec: JobSpec) -> JobSpec:
        """Return a spec with this server's defaults."""
        default = Terms().lost_after
        if self._lost_after == default or spec.terms.lost_after != default:
            return spec
        return structs.replace(spec, terms=structs.replace(spec.terms, lost_after=self._lost_after))

    async def _dependency(self, wanted: AfterRef, names: dict[str, list[Named]], array: Ranges) -> Dependency:
        """Return the job that an `after` refers to: in the same submission first, then any job."""
        ref, on, found = wanted.ref, wanted.on, None
        same = names.get(ref, [])
        if len(same) > 1:
            raise CommandError(ErrorKind.AMBIGUOUS, f"{ref!r} names {len(same)} jobs of this submission")
        if same:
            job = structs.replace(same[0].job, on=on)
            if not wanted.same:
                return job
            if job.succeeded is None and not await self._lookup.knows(job.job):
                _check_members(ref, same[0].array, array)
                return structs.replace(job, same=True)
            found = await self._lookup.find(job.job)  # there already, under its key
        found = await self._lookup.find(ref) if found is None else found
        if isinstance(found, PendingMember):
            raise CommandError(
                ErrorKind.CONFLICT,
                f"{found.id} has not been placed yet; run after its array {found.array.id} instead",
            )
        job = (
            Dependency(found.job, on, found.state == "SUCCEEDED")
            if isinstance(found, Finished)
            else Dependency(found.id, on)
        )
        return await self._by_member(ref, job, found, array) if wanted.same else job

    async def _by_member(self, ref: str, job: Dependency, found: Job | Finished, array: Ranges) -> Dependency:
        """Return a dependency on each member of an array, with what is known about those that have ended."""
        spec = (await self._specs.get([found.spec])).get(found.spec)
        if spec is None:
            raise CommandError(ErrorKind.CONFLICT, f"{job.job}: its spec is no longer stored")
        _check_members(ref, spec.array, array)
        job = structs.replace(job, same=True)
        ended = spec.array
        if isinstance(found, Job) and (members := found.extra.members) is not None:
            if not members.ended:
                return job
            placed = [split_member(each) for each in self._loop.state.members.get(found.id, ())]
            going = ranges.merged(Range(each[1], each[1]) for each in placed if each is not None)
            ended = ranges.outside(spec.array, [members.unplaced, going])
        well = await ended_members(self._loop, self._archive, found, {JobState.SUCCEEDED})
        return structs.replace(job, ended=ended, well=well)


def _check_members(ref: str, other: Ranges, own: Ranges) -> None:
    """Raise CommandError if another job does not have the members that those of an array would wait for."""
    if not other:
        told = f"{ref} is not an array; remove `members`"
        raise CommandError(ErrorKind.INVALID, told)
    if missing := ranges.minus(own, other):
        told = f"{ref} has no member {missing[0].first}; write `members: all`, or the same indexes"
        raise CommandError(ErrorKind.INVALID, told)


def _advice(reason: TooLarge, shape: Shape) -> tuple[str, str]:
    """Return the field that makes a job too large, and what to write there."""
    match reason:
        case GangTooBig(most=most, spread=level) if level:
            return "tasks", f"write {most} or less, or let `spread` allow more in each {level}"
        case GangTooBig(most=most):
            return "tasks", f"write {most} or less, or smaller tasks"
        case NoSuchLevel(level=level):
            named = shape.topology is not None and shape.topology.within == level
            return ("within" if named else "spread"), "write one of those"
        case TooBigInside(link=link, gpus=gpus) if link and not gpus:
            return "gpu_link", "write one that they have, or remove it"
        case TooBigInside(cpus=0):
            return "pin", "remove it, or update the agents"
        case TooBig() | TooBigInside():
            return "resources", "request no more than one machine has"


def _signature(digest: bytes, form: JobForm) -> bytes:
    """Return what distinguishes two submissions under one key."""
    after = [
        (wanted.ref, wanted.on.value, "same") if wanted.same else (wanted.ref, wanted.on.value)
        for wanted in form.after
    ]
    return digest + encode_value(after)


def _same(row: Finished, form: JobForm, signature: bytes) -> str:
    """Return the id of an archived job with the same key; raise CommandError if that is a different job."""
    if row.body != signature:
        raise CommandError(ErrorKind.CONFLICT, key_taken(form.key, row.job))
    return row.job
