"""Least slack first: by the latest start that keeps the deadline."""

from spillover.core.jobs import Job
from spillover.deciding.forecast.estimates import estimate
from spillover.model.units import FOREVER, HOUR


class LeastSlack:
    """By deadline less expected runtime, the earliest first; jobs without a deadline come last, in the order of submission."""

    unknown_runtime: int = HOUR
    """Nanoseconds expected of a job of which nothing is known; set when the policies are put together."""

    def key(self, job: Job) -> int:
        """Latest start, nanoseconds UTC: slack shrinks for all jobs alike as time goes by, so this sorts as slack does."""
        deadline = job.extra.deadline
        return FOREVER if deadline is None else deadline - estimate(job, self.unknown_runtime).runtime
