"""Highest priority first."""

from spillover.core.jobs import Job


class Priority:
    """Jobs of higher priority first; equal ones in the order of their submission."""

    def key(self, job: Job) -> int:
        """Higher is earlier."""
        return -job.priority
