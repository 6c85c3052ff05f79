"""Longest job first."""

from typing import ClassVar

from spillover.core.state import Job
from spillover.deciding.estimates import estimate
from spillover.model.units import HOUR


class LongestFirst:
    """By expected runtime, the longest first; equal ones in the order of submission."""

    by_runtime: ClassVar = True

    def __init__(self, unknown_runtime: int = HOUR) -> None:
        self._unknown = unknown_runtime
        """Nanoseconds expected of a job of which nothing is known."""

    def key(self, job: Job) -> int:
        """Nanoseconds that it is expected to run, turned round."""
        return -estimate(job, self._unknown).runtime
