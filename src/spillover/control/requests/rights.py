"""Checks whether a caller may change jobs and give priorities, and says who may if it may not."""

from collections.abc import Sequence
from copy import copy
from typing import Self

from spillover.control.requests.lookup import Found, PendingMember, project_of
from spillover.core.records.jobs import Job
from spillover.forms.jobs.reading import JobForm
from spillover.model.access import Access
from spillover.model.tokens import TokenRole
from spillover.ports.callers import ADMIN, Caller
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem


class AccessRules:
    """The rules in use, which a new configuration can replace while the server runs."""

    def __init__(self, access: Access | None = None) -> None:
        self.access = access if access is not None else Access()


class Rights:
    """What one caller may change. Without a caller, everything."""

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self._caller = ADMIN

    def of(self, caller: Caller) -> Self:
        """Return the rights of a caller."""
        rights = copy(self)
        rights._caller = caller  # noqa: SLF001 - a copy of this object
        return rights

    def check_change(self, job: Job | PendingMember, user: str, act: str) -> None:
        """Raise CommandError unless the caller, as a user, may change a job. `act` is a verb, such as `cancel`."""
        if self.may_change(job, user):
            return
        access, project = self._rules.access, project_of(job)
        array = job.array if isinstance(job, PendingMember) else job
        told = (
            f"{job.id} ({array.name}) belongs to {array.user}, and you are {user}; "
            f"only {access.who_may_change(project, array.user)} may {act} it"
        )
        raise CommandError(ErrorKind.FORBIDDEN, told)

    def may_change(self, job: Found, user: str) -> bool:
        """Return whether the caller, as a user, may change a job, or might if it had not ended."""
        access, caller = self._rules.access, self._caller
        role = access.role_in(project_of(job), caller.role, caller.user)
        owner = job.array.user if isinstance(job, PendingMember) else job.user
        return access.may_change(role, user, owner)

    def check_secret(self, project: str, user: str, act: str) -> None:
        """Raise CommandError unless the caller may change secrets of a project. `act` is a verb, such as `set`."""
        access, caller = self._rules.access, self._caller
        if access.role_in(project, caller.role, caller.user) in {TokenRole.MAINTAIN, TokenRole.ADMIN}:
            return
        told = (
            f"you are {user}, and only {access.who_maintains(project)} may {act} secrets of project {project}"
        )
        raise CommandError(ErrorKind.FORBIDDEN, told)

    def check_priority(self, project: str, priority: int) -> None:
        """Raise CommandError if a priority is higher than the caller may give in a project."""
        if (told := self._too_high(project, priority)) is not None:
            raise CommandError(ErrorKind.FORBIDDEN, told, [FieldProblem("priority", told)])

    def check_priorities(self, forms: Sequence[JobForm]) -> None:
        """Raise CommandError for all jobs of a submission with a higher priority than the caller may give."""
        problems = [
            FieldProblem(f"jobs[{at}].spec.priority", f"{form.spec.name}: {told}")
            for at, form in enumerate(forms)
            if (told := self._too_high(form.spec.project, form.spec.priority)) is not None
        ]
        if problems:
            raise CommandError(ErrorKind.FORBIDDEN, problems[0].message, problems)

    def _too_high(self, project: str, priority: int) -> str | None:
        """Return why the caller may not give a priority in a project; None if it may."""
        access, caller = self._rules.access, self._caller
        role = access.role_in(project, caller.role, caller.user)
        most = access.max_priority.get(role)
        if most is None or priority <= most:
            return None
        return (
            f"priority {priority} is more than role {role} may give, which is {most}; "
            f"ask {access.who_may_exceed(project, role, priority)}, or write {most} or less"
        )
