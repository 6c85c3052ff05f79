"""What somebody who is let in for one project alone may submit and see of history."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import structs

from spillover.control.lookup import Lookup
from spillover.core.events import AnyEvent
from spillover.core.jobs import Job
from spillover.core.state import State
from spillover.forms.jobs import JobForm
from spillover.model.ids import JobId, split_member
from spillover.model.reasons import BehindOthers, KeptFor, OverBudget, Reason
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import BudgetView, FieldProblem

DEFAULT: Final = "default"
"""The project of a job that names none."""
OTHER: Final = JobId("a job of another project")
"""Stands for one that is not to be named."""
MOST_KNOWN: Final = 5_000
"""Jobs whose project is remembered while history is read: by each who reads, so it is not many."""


def forms_of(forms: Sequence[JobForm], project: str | None) -> Sequence[JobForm]:
    """Jobs as somebody of a project submits them: those that name no project are of it, any other project is refused."""
    if project is None:
        return forms
    problems: list[FieldProblem] = []
    own: list[JobForm] = []
    for at, form in enumerate(forms):
        named = form.spec.project
        if named not in {project, DEFAULT}:
            told = f"{form.spec.name}: your token is for project {project!r}; it may not submit to {named!r}"
            problems.append(FieldProblem(f"jobs[{at}].metadata.project", told))
        spec = form.spec if named == project else structs.replace(form.spec, project=project)
        own.append(form if spec is form.spec else structs.replace(form, spec=spec))
    if problems:
        raise CommandError(ErrorKind.FORBIDDEN, problems[0].message, problems)
    return own


def jobs_of(jobs: Iterable[Job], project: str | None) -> list[Job]:
    """Those of a project; all of them if there is no limit."""
    return [job for job in jobs if project is None or job.kind.project == project]


def budgets_of(budgets: list[BudgetView], project: str | None) -> list[BudgetView]:
    """Those that a project spends from."""
    if project is None:
        return budgets
    return [each for each in budgets if each.of == "project" and each.name in {project, "*"}]


def reason_within(reason: Reason | None, state: State, project: str | None) -> Reason | None:
    """Why a job is where it is, as somebody of a project may know: without the id of a job of another one."""
    match reason:
        case BehindOthers(job) if _is_foreign(job, state, project):
            return BehindOthers(OTHER)
        case KeptFor(job) if _is_foreign(job, state, project):
            return KeptFor(OTHER)
        case OverBudget(holder=job) if job and _is_foreign(JobId(job), state, project):
            return structs.replace(reason, holder=OTHER)
        case _:
            return reason


def _is_foreign(job: JobId, state: State, project: str | None) -> bool:
    found = state.jobs.get(job)  # None if it is only tried, by the one who asks
    return project is not None and found is not None and found.kind.project != project


class OwnHistory:
    """Finds out what of history is about jobs of one project."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        """Of that project."""
        self._known: dict[str, bool] = {}

    @property
    def project(self) -> str | None:
        """The project; None if all jobs are found."""
        return self._lookup.project

    async def part(self, event: AnyEvent) -> AnyEvent | None:
        """What of an event is about jobs of the project; None if nothing is."""
        jobs = event.about()
        if (project := event.of_project()) is not None:
            own = [job for job in jobs if self._note(job, own=project == self._lookup.project)]
        else:
            own = [job for job in jobs if await self._is_own(job)]
        if not own:
            return None
        return event if len(own) == len(jobs) else event.only(frozenset(own))

    async def _is_own(self, job: JobId) -> bool:
        """Whether a job is of the project; one that nobody knows any more is not."""
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
