"""Last in, first out."""

from spillover.core.jobs import Job


class Lifo:
    """The newest job first."""

    def key(self, job: Job) -> int:
        """Later is earlier; members of an array stay together."""
        return -job.number
