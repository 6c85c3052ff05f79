"""Longest job first."""

from spillover.core.jobs import Job
from spillover.deciding.forecast.estimates import estimate
from spillover.model.units import HOUR


class LongestFirst:
    """By expected runtime, the longest first; equal ones in the order of submission."""

    unknown_runtime: int = HOUR
    """Nanoseconds expected of a job of which nothing is known; set when the policies are put together."""

    def key(self, job: Job) -> int:
        """Nanoseconds that it is expected to run, turned round."""
        return -estimate(job, self.unknown_runtime).runtime
