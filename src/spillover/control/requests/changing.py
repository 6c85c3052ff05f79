"""Changes jobs that wait, and the walltime of those that run, by the rules that hold for a submission.

A change is a part of a job file. It is put over the job file that the job would have now, and the whole is read again,
so every rule and message of a submission holds here too.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import structs

from spillover.control.live.loop import TRIES, Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.lookup import Lookup, PendingMember, project_of
from spillover.control.requests.rights import Rights
from spillover.control.requests.submitting import Submitting
from spillover.control.requests.unused import change_without_effect
from spillover.core.proposals import ChangeJob, Dependency, Proposal, Refusal, RefusalKind, SetPriority
from spillover.core.records.jobs import Job, Placed, Running
from spillover.forms.jobs.likeness import says_what
from spillover.forms.jobs.meaning import AfterRef, JobForm
from spillover.forms.jobs.options import merged
from spillover.forms.jobs.reading import read_job, to_doc
from spillover.forms.problems import BadForm, shown
from spillover.model.admission import WALLTIMES
from spillover.model.ids import split_member
from spillover.model.job import JobSpec
from spillover.ports.cluster import Agents
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import FieldProblem, Ids, Patch
from spillover.wire.journal import encode_spec

_FIELDS: Final = {
    "metadata": ("name",),
    "spec": ("walltime", "resources", "estimate", "deadline", "queue", "after", "priority", "throttle"),
}
"""Fields of a job file that can change, and the throttle of an array."""
_MOST_THROTTLE: Final = 10**9
_MOST_PRIORITY: Final = 1_000_000


class Changing:
    """Changes jobs for one caller."""

    def __init__(
        self,
        loop: Loop,
        specs: Specs,
        submitting: Submitting,
        lookup: Lookup,
        agents: Agents,
        rights: Rights,
    ) -> None:
        self._loop = loop
        self._specs = specs
        self._submitting = submitting
        self._lookup = lookup
        self._agents = agents
        self._rights = rights

    async def change(self, ref: str, patch: Patch, who: str) -> Ids:
        """Change a job as asked."""
        changes = _asked(patch)
        last: Refusal | None = None
        for _ in range(TRIES):
            job = await self._lookup.live(ref)
            self._rights.check_change(job, who, "change")
            if isinstance(job, PendingMember):
                told = f"{job.id} has not been placed yet; change its array {job.array.id} instead"
                raise CommandError(ErrorKind.CONFLICT, told)
            proposal, blobs = await self._proposal(job, changes, who)
            (reply,) = await self._loop.propose(proposal, blobs=blobs)
            match reply:
                case Refusal(RefusalKind.STALE):
                    last = reply
                case Refusal():
                    raise refused(reply)
                case _:
                    return Ids([job.id], change_without_effect(changes["spec"], self._loop.state))
        raise refused(last or Refusal(RefusalKind.STALE, "try again"))

    async def _proposal(
        self, job: Job, changes: dict[str, Any], who: str
    ) -> tuple[Proposal, dict[bytes, bytes]]:
        """Return what to propose, and the spec to store with it."""
        if not changes["metadata"] and changes["spec"].keys() == {"priority"}:
            priority = _priority(changes["spec"]["priority"])
            self._rights.check_priority(project_of(job), priority)
            return SetPriority(job.id, priority, who), {}
        stored = (await self._specs.get([job.spec])).get(job.spec)
        if stored is None:
            raise CommandError(ErrorKind.CONFLICT, f"{job.id}: its spec is no longer stored")
        now = structs.replace(stored, priority=job.priority)
        form = _read(now, changes, runs=isinstance(job.phase, Running))
        spec = _with(now, form.spec, changes)
        if not isinstance(job.phase, Placed | Running):
            spec = self._checked(job, now, spec)
        changed = tuple(_differences(now, spec, asks="after" in changes["spec"]))
        if spec.priority != job.priority:
            self._rights.check_priority(project_of(job), spec.priority)
        if isinstance(job.phase, Running) and changed == ("walltime",):
            self._check_agents(job, job.phase)
        after = await self._after(job, spec, form) if "after" in changed else ()
        digest, body = encode_spec(spec)
        self._specs.keep(digest, spec, len(body))
        named = says_what(spec.name, spec.work)
        return ChangeJob(job.id, job.spec, spec, digest, changed, who, after, named), {digest: body}

    def _checked(self, job: Job, now: JobSpec, spec: JobSpec) -> JobSpec:
        """Return a job with the defaults of its queue; raise CommandError if no cluster can hold it."""
        sized = (spec.queue, spec.terms, spec.shape) != (now.queue, now.terms, now.shape)
        if sized:
            spec = self._submitting.in_queue(spec)
            if (problem := self._submitting.too_large(spec)) is not None:
                raise CommandError(ErrorKind.INVALID, problem.message, [problem])
        if spec.deadline != now.deadline and (late := self._submitting.late(spec)) is not None:
            raise CommandError(ErrorKind.INVALID, late.message, [late])
        del job
        return spec

    def _check_agents(self, job: Job, phase: Running) -> None:
        """Raise CommandError if an agent of a running job cannot take a new walltime."""
        state = self._loop.state
        for task in job.tasks:
            node = f"{phase.cluster}/{task.node}"
            if not task.lives or node not in state.agents:
                continue  # the decision says what it thinks of other clusters
            contact = self._agents.contact(node)
            if contact is None or not contact.connected:
                told = f"agent {task.node} of {job.id} is not connected; try again when it is back"
                raise CommandError(ErrorKind.CONFLICT, told)
            if WALLTIMES not in contact.abilities:
                told = f"agent {task.node} of {job.id} is of an earlier release, which cannot change the walltime of what runs; update it"
                raise CommandError(ErrorKind.CONFLICT, told)

    async def _after(self, job: Job, spec: JobSpec, form: JobForm) -> tuple[Dependency, ...]:
        """Return what a job waits for: what is asked for, and still the jobs whose files it takes."""
        found: dict[str, Dependency] = {}
        problems: list[FieldProblem] = []
        for place, wanted in enumerate(form.after):
            try:
                one = await self._submitting.dependency(wanted, spec.array)
            except CommandError as error:
                where = "members" if error.kind is ErrorKind.INVALID else "job"
                problems.append(FieldProblem(f"spec.after[{place}].{where}", error.message))
                continue
            found[one.job] = one
        if problems:
            raise CommandError(ErrorKind.INVALID, problems[0].message, problems)
        sources = {each.job for each in spec.taken}
        sources |= {member[0] for each in sources if (member := split_member(each)) is not None}  # type: ignore[arg-type]
        for each in job.extra.after:
            if each.job in sources:
                found.setdefault(each.job, Dependency(each.job, each.on))
        members = job.extra.members
        for waited in () if members is None else members.after:
            if waited.job in sources and waited.job not in found:
                wanted = AfterRef(waited.job, waited.on, same=True)
                found[waited.job] = await self._submitting.dependency(wanted, spec.array)
        return tuple(found.values())


def _asked(patch: Patch) -> dict[str, Any]:
    """Return the changes as parts of a job file; raise CommandError if one cannot change."""
    spec = dict(patch.spec)
    if patch.priority is not None:
        spec.setdefault("priority", patch.priority)
    asked: dict[str, Any] = {"metadata": dict(patch.metadata), "spec": spec}
    problems = [
        FieldProblem(f"{part}.{name}", f"{name} cannot be changed; cancel the job and submit it again")
        for part, fields in asked.items()
        for name in fields
        if name not in _FIELDS[part]
    ]
    throttle = spec.get("throttle", 0)
    if not isinstance(throttle, int) or isinstance(throttle, bool) or not 0 <= throttle <= _MOST_THROTTLE:
        problems.append(
            FieldProblem("spec.throttle", f"{shown(throttle)} is no number of members; write 0 for all")
        )
    if not asked["metadata"] and not spec:
        problems.append(FieldProblem("", "nothing to change; give a field such as walltime"))
    if problems:
        raise CommandError(ErrorKind.INVALID, problems[0].message, problems)
    return asked


def _priority(value: object) -> int:
    """Return a priority; raise CommandError if it is none."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_PRIORITY:
        return value
    told = f"{shown(value)} is no priority; write a whole number between -1000000 and 1000000"
    raise CommandError(ErrorKind.INVALID, told, [FieldProblem("spec.priority", told)])


def _read(now: JobSpec, changes: Mapping[str, Any], *, runs: bool) -> JobForm:
    """Return the job that a changed job file means; raise CommandError with all problems of the changes."""
    before = now
    if (
        runs and "estimate" not in changes["spec"]
    ):  # its walltime may become shorter than it was expected to run
        before = structs.replace(now, terms=structs.replace(now.terms, estimate=None))
    spec = {name: value for name, value in changes["spec"].items() if name != "throttle"}
    doc = merged(to_doc(JobForm(structs.replace(before, after=()))), {**changes, "spec": spec})
    for part in ("metadata", "spec"):
        doc[part] = {name: value for name, value in doc[part].items() if value is not None}
    try:
        return read_job(doc)
    except BadForm as bad:
        problems = [FieldProblem(each.path, each.message) for each in bad.problems]
        told = ": ".join(filter(None, (problems[0].path, problems[0].message)))
        raise CommandError(ErrorKind.INVALID, told, problems) from None


def _with(now: JobSpec, read: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """Return a spec with what may change of it; everything else stays as it was submitted."""
    spec = changes["spec"]
    terms = now.terms
    for name in ("walltime", "estimate"):
        if name in spec:
            terms = structs.replace(terms, **{name: getattr(read.terms, name)})
    shape = now.shape
    if "resources" in spec:
        shape = structs.replace(shape, resources=read.shape.resources, rest=read.shape.rest)
    return structs.replace(
        now,
        name=read.name,
        queue=read.queue,
        priority=read.priority,
        shape=shape,
        terms=terms,
        deadline=read.deadline,
        after=read.after if "after" in spec else now.after,
        throttle=spec.get("throttle", now.throttle),
    )


def _differences(now: JobSpec, spec: JobSpec, *, asks: bool) -> Iterator[str]:
    """Yield what is new, in the words of `JobChanged`."""
    if spec.name != now.name:
        yield "name"
    if spec.queue != now.queue:
        yield "queue"
    if spec.shape.resources != now.shape.resources:
        yield "resources"
    if spec.terms.walltime != now.terms.walltime:
        yield "walltime"
    if spec.terms.estimate != now.terms.estimate:
        yield "estimate"
    if spec.deadline != now.deadline:
        yield "deadline"
    if asks:
        yield "after"
    if spec.throttle != now.throttle:
        yield "throttle"
