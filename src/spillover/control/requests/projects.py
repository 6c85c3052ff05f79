"""Limits what callers with a token for one project may submit and see."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import structs

from spillover.control.requests.lookup import Lookup
from spillover.core.events import AnyEvent
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.forms.jobs.reading import JobForm
from spillover.model.ids import JobId, split_member
from spillover.model.reasons import (
    AfterArrays,
    AfterJobs,
    BehindOthers,
    KeptFor,
    KeptForGang,
    OverBudget,
    Reason,
    Reserved,
)
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import BudgetView, FieldProblem, MachineView, PoolView

DEFAULT: Final = "default"
"""The project of a job that names none."""
OTHER: Final = JobId("a job of another project")
"""Replaces the id of a job of another project."""
MOST_KNOWN: Final = 5_000
"""Jobs whose project is cached while history is read; small, as each reader has its own cache."""


def forms_of(forms: Sequence[JobForm], project: str | None) -> Sequence[JobForm]:
    """Return jobs with the caller's project if they name none; raise CommandError if they name another."""
    if project is None:
        return forms
    problems: list[FieldProblem] = []
    own: list[JobForm] = []
    for at, form in enumerate(forms):
        named = form.spec.project
        if named not in {project, DEFAULT}:
            message = (
                f"{form.spec.name}: your token is for project {project!r}; it cannot submit to {named!r}"
            )
            problems.append(FieldProblem(f"jobs[{at}].metadata.project", message))
        spec = form.spec if named == project else structs.replace(form.spec, project=project)
        own.append(form if spec is form.spec else structs.replace(form, spec=spec))
    if problems:
        raise CommandError(ErrorKind.FORBIDDEN, problems[0].message, problems)
    return own


def jobs_of(jobs: Iterable[Job], project: str | None) -> list[Job]:
    """Return the jobs of a project; all jobs if it is None."""
    return [job for job in jobs if project is None or job.kind.project == project]


def budgets_of(budgets: list[BudgetView], project: str | None) -> list[BudgetView]:
    """Return the budgets that a project spends from; all budgets if it is None."""
    if project is None:
        return budgets
    return [each for each in budgets if each.of == "project" and each.name in {project, "*"}]


def pools_of(pools: list[PoolView], state: State, project: str | None) -> list[PoolView]:
    """Return pools without the ids of jobs of other projects."""
    if project is None:
        return pools

    def own(machine: MachineView) -> MachineView:
        found = None if machine.job is None else state.jobs.get(JobId(machine.job))
        if machine.job is None or (found is not None and found.kind.project == project):
            return machine
        return structs.replace(machine, job=OTHER)

    return [structs.replace(pool, machines=[own(each) for each in pool.machines]) for pool in pools]


def reason_within(reason: Reason | None, state: State, project: str | None) -> Reason | None:
    """Return a reason without ids of jobs of other projects; a dependency keeps its id, which the submitter chose."""
    match reason:
        case AfterJobs(jobs) | AfterArrays(jobs) if any(_is_foreign(job, state, project) for job in jobs):
            return structs.replace(reason, names=())
        case BehindOthers(job) if _is_foreign(job, state, project):
            return BehindOthers(OTHER)
        case KeptFor(job) if _is_foreign(job, state, project):
            return KeptFor(OTHER)
        case KeptForGang(job=job) if _is_foreign(job, state, project):
            return structs.replace(reason, job=OTHER)
        case OverBudget(holder=job) if job and _is_foreign(JobId(job), state, project):
            return structs.replace(reason, holder=OTHER)
        case Reserved(project=owner) if project is not None and owner not in {"", project}:
            return structs.replace(reason, name="its name is not shown", project="other than yours")
        case _:
            return reason


def _is_foreign(job: JobId, state: State, project: str | None) -> bool:
    found = state.jobs.get(job)  # None if the caller only tries it
    return project is not None and found is not None and found.kind.project != project


class OwnHistory:
    """Finds the part of history that is about jobs of one project."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        """Limited to that project."""
        self._known: dict[str, bool] = {}

    @property
    def project(self) -> str | None:
        """The project; None if there is no limit."""
        return self._lookup.project

    async def part(self, event: AnyEvent) -> AnyEvent | None:
        """Return the part of an event that is about jobs of the project; None if there is none."""
        jobs = event.about()
        if (project := event.of_project()) is not None:
            own = [job for job in jobs if self._note(job, own=project == self._lookup.project)]
        else:
            own = [job for job in jobs if await self._is_own(job)]
        if not own:
            return None
        return event if len(own) == len(jobs) else event.only(frozenset(own))

    async def _is_own(self, job: JobId) -> bool:
        """Return whether a job belongs to the project; False if it is neither in the state nor in the archive."""
        member = split_member(job)
        array = member[0] if member is not None else job
        if (known := self._known.get(array)) is not None:
            return known
        return self._note(array, own=await self._lookup.knows(array))

    def _note(self, job: str, *, own: bool) -> bool:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[job] = own
        return own
