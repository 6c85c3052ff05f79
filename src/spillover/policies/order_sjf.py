"""Shortest job first."""

from spillover.core.jobs import Job
from spillover.deciding.forecast.estimates import estimate
from spillover.model.units import HOUR


class ShortestFirst:
    """By expected runtime, the shortest first; equal ones in the order of submission."""

    unknown_runtime: int = HOUR
    """Nanoseconds expected of a job of which nothing is known; set when the policies are put together."""

    def key(self, job: Job) -> int:
        """Nanoseconds that it is expected to run."""
        return estimate(job, self.unknown_runtime).runtime
