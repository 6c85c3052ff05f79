"""Earliest deadline first."""

from spillover.core.jobs import Job
from spillover.model.units import FOREVER


class EarliestDeadline:
    """By deadline, the earliest first; jobs without one come last, in the order of submission."""

    def key(self, job: Job) -> int:
        """Latest finish, nanoseconds UTC."""
        deadline = job.extra.deadline
        return FOREVER if deadline is None else deadline
