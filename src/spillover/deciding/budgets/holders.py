"""Finds the jobs without a walltime that hold the rest of a budget, so that other jobs wait for their end."""

from typing import Final

from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.model.ids import JobId

MANY: Final = 64
"""The number of jobs for one budget beyond which entries without a hold are dropped."""


class Holders:
    """Jobs that hold the rest of a budget, by the key of the budget period."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs: dict[str, dict[JobId, None]] = {}
        """Some jobs hold nothing any more."""

    def copy(self, state: State) -> "Holders":
        """Return a copy for another state."""
        own = Holders(state)
        own._jobs = {key: jobs.copy() for key, jobs in self._jobs.items()}
        return own

    def note(self, job: Job) -> None:
        """Record a job that may hold the rest of budgets."""
        hold = job.extra.hold
        if hold is None or hold.limit is None:
            return
        for key in hold.periods:
            jobs = self._jobs.setdefault(key, {})
            jobs[job.id] = None
            if len(jobs) > MANY:
                self._drop(key)

    def most(self, key: str) -> tuple[JobId, int] | None:
        """Return the job that holds most of a budget, and its amount in millionths; None if none holds any."""
        self._drop(key)
        held = [(self._held(job, key), job) for job in self._jobs.get(key, ())]
        amount, job = max(held, default=(0, None))
        return None if job is None else (job, amount)

    def _drop(self, key: str) -> None:
        """Drop jobs that hold nothing any more."""
        jobs = {job: None for job in self._jobs.pop(key, ()) if self._held(job, key)}
        if jobs:
            self._jobs[key] = jobs

    def _held(self, job: JobId, key: str) -> int:
        """Return how many millionths a job holds of a budget because it has no walltime."""
        found = self._state.jobs.get(job)
        hold = None if found is None else found.extra.hold
        return 0 if hold is None or hold.limit is None or key not in hold.periods else hold.amount
