"""Who holds the rest of a budget: jobs that were rented without a walltime of their own, so that others wait until they end."""

from typing import Final

from spillover.core.jobs import Job
from spillover.core.state import State
from spillover.model.ids import JobId

MANY: Final = 64
"""Jobs of one budget from which on those are dropped that hold nothing any more."""


class Holders:
    """Those jobs, by the key of a budget in its period."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs: dict[str, dict[JobId, None]] = {}
        """Some hold nothing any more."""

    def copy(self, state: State) -> "Holders":
        """The same, of a book of its own."""
        own = Holders(state)
        own._jobs = {key: jobs.copy() for key, jobs in self._jobs.items()}
        return own

    def note(self, job: Job) -> None:
        """A job may hold the rest of budgets."""
        hold = job.extra.hold
        if hold is None or hold.limit is None:
            return
        for key in hold.periods:
            jobs = self._jobs.setdefault(key, {})
            jobs[job.id] = None
            if len(jobs) > MANY:
                self._drop(key)

    def most(self, key: str) -> tuple[JobId, int] | None:
        """The job that holds most of a budget, and how much, in millionths; None if none does."""
        self._drop(key)
        held = [(self._held(job, key), job) for job in self._jobs.get(key, ())]
        amount, job = max(held, default=(0, None))
        return None if job is None else (job, amount)

    def _drop(self, key: str) -> None:
        """Forget jobs that hold nothing any more."""
        jobs = {job: None for job in self._jobs.pop(key, ()) if self._held(job, key)}
        if jobs:
            self._jobs[key] = jobs

    def _held(self, job: JobId, key: str) -> int:
        """Millionths that a job holds of a budget because it has no walltime."""
        found = self._state.jobs.get(job)
        hold = None if found is None else found.extra.hold
        return 0 if hold is None or hold.limit is None or key not in hold.periods else hold.amount
